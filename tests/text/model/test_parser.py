"""What texts mean: the trees that they are read as."""

from __future__ import annotations

import pytest

from dlc.errors import ModelError, SourceLocation
from dlc.text.model import ast
from dlc.text.model.parser import parse, parse_or_raise
from dlc.text.model.tree import dump, same, walk
from dlc.text.source import Source
from tests.suites import together
from tests.text.model.programs import PROGRAMS, parsed_expression


def item(text: str) -> ast.Item:
    (only,) = parse_or_raise(Source("text", f"dlc 1\n{text}")).items
    return only


def member(text: str) -> ast.Member:
    module = item(f"module M {{ {text} }}")
    assert isinstance(module, ast.Module)
    (only,) = module.members
    return only


def statement(text: str) -> ast.Statement:
    fn = item(f"fn f() {{ {text} }}")
    assert isinstance(fn, ast.Fn) and isinstance(fn.body, ast.Block)
    (only,) = fn.body.statements
    return only


def grouped(text: str) -> str:
    """The expression with parentheses around every operation."""
    return show(parsed_expression(text))


def show(node: ast.Expr) -> str:
    match node:
        case ast.Name(name=name):
            return name
        case ast.Number(text=text):
            return text
        case ast.Unary(op=op, operand=operand):
            return f"({op} {show(operand)})"
        case ast.Compare(op=op, left=left, right=right):
            return f"({show(left)} {op} {show(right)})"
        case ast.Binary(first=first, rest=rest):
            return f"({' '.join([show(first), *(f'{t.op} {show(t.operand)}' for t in rest)])})"
        case ast.Pipe(first=first, stages=stages):
            return f"({' |> '.join([show(first), *(show(s.function) for s in stages)])})"
        case ast.Call(function=function, arguments=arguments):
            return f"{show(function)}({', '.join(show(a.value) for a in arguments)})"
        case ast.If(condition=condition, chosen=chosen, otherwise=otherwise):
            return f"(if {show(condition)} then {show(chosen)} else {show(otherwise)})"
        case _:
            return type(node).__name__


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_five_programs_are_read_without_a_remark(name: str) -> None:
    assert parse(Source(name, PROGRAMS[name])).diagnostics == ()


@together(
    ("text", "meaning"),
    [
        ("a + b * c", "(a + (b * c))"),
        ("a - b + c", "(a - b + c)"),
        ("a @ b * c / d", "(a @ b * c / d)"),
        ("-x ** 2", "(- (x ** 2))"),
        ("2 ** -1", "(2 ** (- 1))"),
        ("a ** b ** c", "(a ** (b ** c))"),
        ("-a * b", "((- a) * b)"),
        ("a * -b", "(a * (- b))"),
        ("not a == b and c", "((not (a == b)) and c)"),
        ("a or b and c", "(a or (b and c))"),
        ("a + b < c * d", "((a + b) < (c * d))"),
        ("a |> f |> g", "(a |> f |> g)"),
        ("a or b |> f", "((a or b) |> f)"),
        ("a |> f(b)", "(a |> f(b))"),
        ("f(a)(b) + c", "(f(a)(b) + c)"),
        ("if a then b else c + d", "(if a then b else (c + d))"),
        ("a + if b then c else d + e", "(a + (if b then c else (d + e)))"),
        ("if a then b else if c then d else e", "(if a then b else (if c then d else e))"),
        ("(a + b) * c", "((a + b) * c)"),
        ("a % b // c", "(a % b // c)"),
    ],
)
def test_operators_bind_as_the_reference_says(text: str, meaning: str) -> None:
    assert grouped(text) == meaning


def test_a_chain_of_one_level_is_one_flat_node() -> None:
    chain = parsed_expression("a - b + c - d")
    assert isinstance(chain, ast.Binary)
    assert [term.op for term in chain.rest] == ["-", "+", "-"]


@pytest.mark.parametrize(
    ("text", "value"),
    [("28", 28), ("1_000", 1000), ("0xff", 255), ("1e-5", 1e-5), ("0.5", 0.5), ("2e3", 2000.0)],
)
def test_a_number_keeps_its_value_and_its_spelling(text: str, value: float) -> None:
    number = parsed_expression(text)
    assert isinstance(number, ast.Number)
    assert (number.value, type(number.value), number.text) == (value, type(value), text)


def test_a_string_has_its_escapes_replaced() -> None:
    string = parsed_expression(r'"a\tb\"c\u{3b1}"')
    assert isinstance(string, ast.String)
    assert string.value == 'a\tb"cα'


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("x[i]", ["Name"]),
        ("x[:, -1]", ["Slice", "Unary"]),
        ("x[1:T]", ["Slice"]),
        ("x[::2]", ["Slice"]),
        ("x[.., 0]", ["Dots", "Number"]),
        ("x[:, new]", ["Slice", "NewAxis"]),
        ("x[new + 1]", ["Binary"]),
    ],
)
def test_an_index_has_items_of_several_kinds(text: str, kinds: list[str]) -> None:
    index = parsed_expression(text)
    assert isinstance(index, ast.Index)
    assert [type(item).__name__ for item in index.items] == kinds


def test_a_slice_has_three_optional_parts() -> None:
    index = parsed_expression("x[a::b]")
    assert dump(index) == "Index(Name('x'), (Slice(Name('a'), None, Name('b')),))"


def test_arguments_and_tuples_may_have_names() -> None:
    assert dump(parsed_expression("f(a, k=b)")) == (
        "Call(Name('f'), (Argument(None, Name('a')),Argument('k', Name('b')),))"
    )
    assert dump(parsed_expression("(digit = a, b)")) == (
        "Tuple((Argument('digit', Name('a')),Argument(None, Name('b')),))"
    )


def test_parentheses_make_a_tuple_only_with_a_comma_or_a_name() -> None:
    kinds = [type(parsed_expression(text)).__name__ for text in ("(a)", "(a,)", "(n = a)")]
    assert kinds == ["Name", "Tuple", "Tuple"]


def test_layers_of_a_chain_are_attributes_with_numbers() -> None:
    assert dump(parsed_expression("features.0.1.w")) == (
        "Attribute('w', Attribute('1', Attribute('0', Name('features'))))"
    )


def test_a_scan_has_a_source_an_axis_carries_and_a_body() -> None:
    scan = parsed_expression(
        "scan (x, m) in reverse (xs, mask) along 1 with h = h0, c = c0 { yield h }"
    )
    assert isinstance(scan, ast.Scan)
    assert scan.reverse and scan.along is not None
    assert [carry.name for carry in scan.carries] == ["h", "c"]
    assert [type(s).__name__ for s in scan.body.statements] == ["Yield"]


def test_a_range_is_the_source_of_a_scan() -> None:
    scan = parsed_expression("scan t in 0..N + 1 { yield t }")
    assert isinstance(scan, ast.Scan)
    assert (
        dump(scan.source)
        == "Range(Number(0, '0'), Binary(Name('N'), (Term('+', Number(1, '1')),)))"
    )


def test_reverse_may_also_be_a_name() -> None:
    scan = parsed_expression("scan t in reverse along 1 { yield t }")
    assert isinstance(scan, ast.Scan)
    assert not scan.reverse and isinstance(scan.source, ast.Name)


def test_a_while_may_have_a_limit() -> None:
    loop = parsed_expression("while x > 1 with x = x0 limit 100 { next x = x / 2 }")
    assert isinstance(loop, ast.While)
    assert isinstance(loop.limit, ast.Number) and loop.limit.value == 100


def test_a_list_may_be_made_by_a_comprehension() -> None:
    made = parsed_expression("[for (c, s) in [(64, 1), (128, 2)]: Block(_, c, s)]")
    assert isinstance(made, ast.Comprehension)
    assert isinstance(made.pattern, ast.TuplePattern)


def test_on_takes_an_expression_or_statements() -> None:
    value, block = (
        parsed_expression("on cuda:0 { a @ b }"),
        parsed_expression("on cpu { return a }"),
    )
    assert isinstance(value, ast.On) and isinstance(block, ast.On)
    assert (value.device.kind, value.device.index) == ("cuda", 0)
    assert isinstance(value.body, ast.Binary) and isinstance(block.body, ast.Block)
    assert block.device.index is None


def test_let_takes_apart_tuples() -> None:
    let = statement("let (.., (a, _), y): f32[B] = t")
    assert isinstance(let, ast.Let)
    assert dump(let.pattern) == (
        "TuplePattern((RestPattern(),TuplePattern((NamePattern('a'),IgnorePattern(),)),"
        "NamePattern('y'),))"
    )


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("return x", "Return"),
        ("next h = x", "Next"),
        ("yield (a, b)", "Yield"),
        ("set running = x", "Set"),
        ('require n > 0, "why"', "Require"),
        ("debug h", "Debug"),
    ],
)
def test_each_statement_begins_with_its_keyword(text: str, kind: str) -> None:
    assert type(statement(text)).__name__ == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("f32", "TensorType('f32', ())"),
        ("f32[B, T - 1]", "TensorType('f32', (Name('B'),Binary(Name('T'), "
         "(Term('-', Number(1, '1')),)),))"),
        ("f32[.., I]", "TensorType('f32', (Dots(),Name('I'),))"),
        ("F[B, _]", "TensorType('F', (Name('B'),Placeholder(),))"),
        ("(f32, i32[B])", "TupleType((TypeField(None, TensorType('f32', ())),"
         "TypeField(None, TensorType('i32', (Name('B'),))),))"),
        ("(y: f32)", "TupleType((TypeField('y', TensorType('f32', ())),))"),
        ("fn", "FnType()"),
        ("dtype", "DtypeType()"),
    ],
)  # fmt: skip
def test_types_are_read(text: str, kind: str) -> None:
    fn = item(f"fn f(x: {text}) = x")
    assert isinstance(fn, ast.Fn)
    (parameter,) = fn.parameters
    assert parameter.type is not None and dump(parameter.type) == kind


def test_a_function_has_all_its_parts() -> None:
    fn = item("## Doc.\nexport fn f(x: f32[B] = 1, k) -> f32[B] on cuda:1 = x with vjp(x, dy) = dy")
    assert isinstance(fn, ast.Fn)
    assert (fn.name, fn.exported, fn.docs) == ("f", True, "Doc.")
    assert [p.name for p in fn.parameters] == ["x", "k"]
    assert fn.result is not None and fn.device is not None and fn.vjp is not None
    assert [p.name for p in fn.vjp.parameters] == ["x", "dy"]


def test_braces_behind_an_equals_sign_are_the_body_as_well() -> None:
    with_sign, without = item("fn f(x) = { return x }"), item("fn f(x) { return x }")
    assert same(with_sign, without)


def test_members_of_a_module_are_read() -> None:
    param = member('param w: f32[3] = ones() key "conv1/W:0"')
    assert isinstance(param, ast.Param) and param.key == "conv1/W:0"
    bare = member("param w: f32[3]")
    assert isinstance(bare, ast.Param) and bare.init is None and bare.key is None
    use = member("use head = L * Block(D) on cuda:1")
    assert isinstance(use, ast.Use) and use.device is not None
    assert isinstance(member("state m: f32[..] = zeros()"), ast.State)


def test_a_module_may_have_weights_and_no_parameters() -> None:
    module = item('module M from "w.safetensors" { }')
    assert isinstance(module, ast.Module)
    assert module.parameters == () and module.weights is not None
    assert module.weights.value == "w.safetensors"


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("import nn", "Import('nn', False, None, None)"),
        ("import nn (A, B as C)", "Import('nn', False, None, (ImportName('A', None),"
         "ImportName('B', 'C'),))"),
        ('import "o.dlm" as o', "Import('o.dlm', True, 'o', None)"),
        ("dim A, B = 1..1024", "Dims('', (DimEntry('A', None, None),"
         "DimEntry('B', Number(1, '1'), Number(1024, '1024')),))"),
        ("dim T = 2..", "Dims('', (DimEntry('T', Number(2, '2'), None),))"),
        ("limit memory = 512MiB", "Limit('memory', Size(536870912, '512MiB'))"),
        ("limit exact", "Limit('exact', None)"),
        ('names { "a.{i}" = b[i].T }', "Names((NameEntry(String('a.{i}'), "
         "Attribute('T', Index(Name('b'), (Name('i'),)))),))"),
    ],
)  # fmt: skip
def test_items_of_a_file_are_read(text: str, tree: str) -> None:
    assert dump(item(text)) == tree


def test_the_bound_of_a_dim_ends_where_a_statement_begins() -> None:
    file = parse_or_raise(Source("text", "dlc 1 dim T = 2.. limit exact dim N = 1..T names { }"))
    assert [type(item).__name__ for item in file.items] == ["Dims", "Limit", "Dims", "Names"]


def test_entries_of_train_are_read() -> None:
    train = item(
        "train M { batch = 3 loss(x: f32) -> f32 = x metric a = 1 metric b(x) { return x } }"
    )
    assert isinstance(train, ast.Train)
    assert [type(entry).__name__ for entry in train.entries] == [
        "Setting",
        "Loss",
        "Metric",
        "Metric",
    ]


def test_keywords_are_names_where_no_statement_can_begin() -> None:
    text = """dlc 1
    fn f(state, set, next, data, loss = 1, train = 2) {
      let use = state + set * next.param
      let key = f(use, module=train) let limit = key
      return if state then limit else -yield
    }
    """
    assert parse(Source("text", text)).diagnostics == ()


def test_line_breaks_never_matter() -> None:
    one_line = " ".join(line for line in PROGRAMS["byte_lm"].split("\n") if "##" not in line)
    assert not parse(Source("text", one_line)).diagnostics
    every_line = parse_or_raise(Source("text", one_line.replace(" ", "\n")))
    assert same(every_line, parse_or_raise(Source("text", one_line)))


@pytest.mark.parametrize("ending", ["\r\n", "\n\n", "\t\n"])
def test_line_endings_never_matter(ending: str) -> None:
    text = PROGRAMS["lenet"]
    other = parse_or_raise(Source("text", text.replace("\n", ending)))
    assert [type(i) for i in other.items] == [
        type(i) for i in parse_or_raise(Source("a", text)).items
    ]


def test_a_byte_order_mark_is_skipped() -> None:
    assert parse(Source("text", "\ufeffdlc 1\nfn f(x) = x")).diagnostics == ()


def test_documentation_belongs_to_what_follows_it() -> None:
    text = """dlc 1
    ## The file.

    ## The module,
    ##   in two lines.
    module M(
      ## The width.
      D,
    ) {
      ## The weight.
      param w: f32[D]
      # no documentation
      use a = b
    }
    """
    file = parse_or_raise(Source("text", text))
    (module,) = file.items
    assert isinstance(module, ast.Module)
    assert file.docs == "The file."
    assert module.docs == "The module,\n  in two lines."
    assert module.parameters[0].docs == "The width."
    docs = [m.docs for m in module.members if isinstance(m, ast.Documented)]
    assert docs == ["The weight.", ""]


def test_documentation_before_an_import_is_the_files() -> None:
    assert parse_or_raise(Source("text", PROGRAMS["lenet"])).docs == "LeNet-5 on 28x28 grey digits."


def test_every_node_has_its_place() -> None:
    source = Source("text", "dlc 1\nfn f(x) =\n  (a + b) * sin(c)")
    fn = parse_or_raise(source).items[0]
    assert isinstance(fn, ast.Fn)
    texts = {type(n).__name__: source.text[n.span.start : n.span.end] for n in walk(fn.body)}
    assert texts["Binary"] == "a + b"
    assert texts["Call"] == "sin(c)"
    assert source.text[fn.body.span.start : fn.body.span.end] == "(a + b) * sin(c)"
    assert source.place(fn.body.span) == SourceLocation("text", 3, 3, 19)
    assert source.place(fn.span) == SourceLocation("text", 2, 1, 10)


@pytest.mark.parametrize("name", PROGRAMS)
def test_children_lie_within_their_parents_and_in_order(name: str) -> None:
    file = parse_or_raise(Source(name, PROGRAMS[name]))
    for node in walk(file):
        assert node.span.start <= node.span.end <= len(PROGRAMS[name])
    statements = [node for node in walk(file) if isinstance(node, ast.Let | ast.Return | ast.Next)]
    starts = [node.span.start for node in statements]
    assert starts == sorted(starts) and len(set(starts)) == len(starts)


def test_errors_are_raised_together_with_the_text() -> None:
    with pytest.raises(ModelError) as caught:
        parse_or_raise(Source("model.dlm", "dlc 1\nfn f(x) = \nfn g(x) = )\nfn h(x) = x"))
    assert [d.place.line for d in caught.value.diagnostics if d.place] == [2, 3]
    assert "3 | fn g(x) = )" in caught.value.render()


def test_what_is_sound_is_there_in_spite_of_errors() -> None:
    parsed = parse(
        Source("model.dlm", "dlc 1\nfn f(x) = +\nfn g(x) = x\nmodule M { use a = }\nlet b = 1")
    )
    names = [i.name for i in parsed.file.items if isinstance(i, ast.Named)]
    assert names == ["g", "M"] and len(parsed.errors) == 2
