"""The layout of expressions, types and patterns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from dlc.text.layout import (
    HARD,
    Align,
    Brackets,
    Concat,
    Doc,
    Fill,
    Group,
    Line,
    Nest,
    SpaceOrLine,
    Text,
    concat,
    joined,
)
from dlc.text.model import ast, literals
from dlc.text.model.fmt_comments import Comments, Row, documentation, vertical
from dlc.text.model.parser_expressions import LEVELS, NOT_LEVEL, PIPE, PRODUCT, SUM
from dlc.text.model.words import EXPRESSION_WORDS, STATEMENT_WORDS
from dlc.text.source import Span

__all__ = ["ExpressionFormatter"]

T = TypeVar("T", bound=ast.Node)

# How tightly an expression holds together, and how tightly its place asks it to: the levels of the
# parser, with looser ones for what is never an operand and tighter ones for signs, powers and values.
FULL: Final = 0
SIGNED: Final = PRODUCT + 1
POWER: Final = SIGNED + 1
VALUE: Final = POWER + 1


class ExpressionFormatter(ABC):
    """Makes documents of expressions; `parens` are the spans that the author put in parentheses.

    The parts are made in the order of the text: each takes the comments that are in it.
    """

    def __init__(self, comments: Comments, parens: frozenset[Span]) -> None:
        self.comments = comments
        self.parens = parens

    @abstractmethod
    def block(self, block: ast.Block, *, short: bool) -> Doc:
        """Statements in braces; without a text to follow, in one line if `short`."""

    # Brackets -----------------------------------------------------------------------------------

    def listing(
        self,
        opening: str,
        nodes: Sequence[T],
        build: Callable[[T], Doc],
        closing: str,
        limit: int,
        *,
        comma: bool = False,
    ) -> Doc:
        """`nodes` in brackets that close at `limit`, a line each if there are comments among them."""
        if not self.comments.wait_before(limit):
            return Brackets(opening, [build(node) for node in nodes], closing, comma)
        rows, last = self.comments.rows(nodes, build, limit)
        if last or any(row.before or row.behind for row in rows):
            return vertical(opening, rows, last, closing)
        return Brackets(opening, [row.doc for row in rows], closing, comma)

    def enclosed(
        self, opening: str, nodes: Sequence[T], build: Callable[[T], Doc], closing: str
    ) -> Doc:
        """The same where no node spans the brackets, as with the parameters of a function."""
        limit = self.comments.closer_after(nodes[-1].span.end) if nodes else 0
        return self.listing(opening, nodes, build, closing, limit)

    # Expressions --------------------------------------------------------------------------------

    def expression(self, node: ast.Expr, level: int = FULL) -> Doc:
        """An expression where `level` is needed, in parentheses if it holds together less tightly.

        Parentheses of the author's stay around the operands of operators.
        """
        own = _level(node)
        if own < level or (level > FULL and own < VALUE and node.span in self.parens):
            return concat("(", Align(self._bare(node)), ")")
        return self._bare(node)

    def _bare(self, node: ast.Expr) -> Doc:
        match node:
            case ast.Name():
                return Text(node.name)
            case ast.Number():
                return Text(node.text)
            case ast.String():
                return Text(literals.quote(node.value))
            case ast.Bool():
                return Text("true" if node.value else "false")
            case ast.Placeholder():
                return Text("_")
            case ast.Dots():
                return Text("..")
            case ast.Unary():
                return self._unary(node)
            case ast.Binary():
                return self._binary(node)
            case ast.Compare():
                return self._compare(node)
            case ast.Pipe():
                return self._pipe(node)
            case ast.Call():
                function = self.expression(node.function, VALUE)
                limit = node.span.end - 1
                return concat(
                    function, self.listing("(", node.arguments, self._argument, ")", limit)
                )
            case ast.Index():
                value = self.expression(node.value, VALUE)
                limit = node.span.end - 1
                return concat(value, self.listing("[", node.items, self._index_item, "]", limit))
            case ast.Attribute():
                value = self.expression(node.value, VALUE)
                if isinstance(node.value, ast.Number):  # `1.0` would be another number
                    value = concat("(", value, ")")
                return concat(value, ".", node.name)
            case ast.List():
                return self.listing("[", node.items, self.expression, "]", node.span.end - 1)
            case ast.IndexList():
                return self.listing("[", node.items, self._index_item, "]", node.span.end - 1)
            case ast.Comprehension():
                return self._comprehension(node)
            case ast.Tuple():
                comma = len(node.items) == 1 and node.items[0].name is None
                limit = node.span.end - 1
                return self.listing("(", node.items, self._tuple_item, ")", limit, comma=comma)
            case ast.Range():
                return self.range(node.start, node.stop)
            case ast.If():
                return self._if(node)
            case ast.Scan():
                return self._scan(node)
            case ast.While():
                return self._while(node)
            case ast.Block():
                return self.block(node, short=True)
            case ast.On():
                return self._on(node)

    def _unary(self, node: ast.Unary) -> Doc:
        if node.op == "not":
            return concat("not ", self.expression(node.operand, NOT_LEVEL))
        level = POWER if isinstance(node.operand, ast.Unary) else SIGNED  # -(-x), not --x
        return concat("-", self.expression(node.operand, level))

    def _binary(self, node: ast.Binary) -> Doc:
        if node.rest[0].op == "**":
            base = self.expression(node.first, VALUE)
            return concat(base, " ** ", self.expression(node.rest[0].operand, SIGNED))
        level = LEVELS[node.rest[0].op] + 1
        pieces = [self.expression(node.first, level)]
        for term in node.rest:
            pieces.append(concat(f"{term.op} ", self.expression(term.operand, level)))
        return Group(Align(Fill(pieces)))

    def _compare(self, node: ast.Compare) -> Doc:
        left = self.expression(node.left, SUM)
        right = self.expression(node.right, SUM)
        return Group(Align(Fill([left, concat(f"{node.op} ", right)])))

    def _pipe(self, node: ast.Pipe) -> Doc:
        first = self.expression(node.first, PIPE + 1)
        rows, _ = self.comments.rows(node.stages, self._stage, 0)
        noted = any(row.before or row.behind for row in rows)
        lines: list[Doc] = []
        for row in rows:
            lines += [concat(HARD, comment) for comment in row.before]
            behind = [f"  {comment}" for comment in row.behind]
            lines.append(concat(HARD if noted else Line(), row.doc, *behind))
        return Group(Align(concat(first, Nest(Concat(lines)))))

    def _stage(self, stage: ast.Stage) -> Doc:
        return concat("|> ", self.expression(stage.function, PIPE + 1))

    def _argument(self, argument: ast.Argument) -> Doc:
        value = self.expression(argument.value)
        return value if argument.name is None else concat(f"{argument.name}=", value)

    def _tuple_item(self, argument: ast.Argument) -> Doc:
        value = self.expression(argument.value)
        return value if argument.name is None else concat(f"{argument.name} = ", value)

    def _index_item(self, item: ast.IndexItem) -> Doc:
        match item:
            case ast.NewAxis():
                return Text("new")
            case ast.Slice():
                return self._slice(item)
            case ast.Name(name="new"):
                return Text("(new)")
            case _:
                return self.expression(item)

    def _slice(self, item: ast.Slice) -> Doc:
        parts = [item.start, item.stop] + ([item.step] if item.step else [])
        return Concat(joined((self.expression(p) if p else Text("") for p in parts), ":"))

    def _comprehension(self, node: ast.Comprehension) -> Doc:
        head = concat(
            "[for ", self.pattern(node.pattern), " in ", self.expression(node.source), ":"
        )
        return concat(head, SpaceOrLine(self.expression(node.body)), "]")

    def range(self, start: ast.Expr, stop: ast.Expr | None) -> Doc:
        """`start..stop`; without a stop `start..`."""
        begin = self.expression(start, SUM)
        return concat(begin, "..", self.expression(stop, SUM) if stop else "")

    # Control flow -------------------------------------------------------------------------------

    def _if(self, node: ast.If) -> Doc:
        """In one line, or each branch in a line of its own; braces stay open as in other languages."""
        condition = self.expression(node.condition, PIPE)
        chosen = self.expression(node.chosen, PIPE)
        further = isinstance(node.otherwise, ast.If)
        otherwise = self.expression(node.otherwise, FULL if further else PIPE)
        if isinstance(node.chosen, ast.Block) and chosen.forced:
            return concat("if ", condition, " then ", chosen, " else ", otherwise)
        then = SpaceOrLine(concat("then ", chosen))
        lines = concat("if ", condition, then, Line(), "else ", otherwise)
        return Group(Align(lines))

    def _scan(self, node: ast.Scan) -> Doc:
        reverse = "reverse " if node.reverse else ""
        source = self._source(node)
        head = [concat("scan ", self.pattern(node.pattern), " in ", reverse, source)]
        if node.along:
            head.append(concat("along ", self.expression(node.along, SUM)))
        return self._loop(head, node.carries, None, node.body)

    def _source(self, node: ast.Scan) -> Doc:
        """What a scan runs over, its beginning in parentheses if `reverse` could be misread there."""
        if not _reads_otherwise(node):
            return self.expression(node.source)
        if not isinstance(node.source, ast.Range):
            return concat("(", Align(self.expression(node.source)), ")")
        start, stop = node.source.start, node.source.stop
        return concat("(", Align(self.expression(start)), ")..", self.expression(stop, SUM))

    def _while(self, node: ast.While) -> Doc:
        head = [concat("while ", self.expression(node.condition))]
        return self._loop(head, node.carries, node.limit, node.body)

    def _loop(
        self,
        head: list[Doc],
        carries: Sequence[ast.Carry],
        limit: ast.Expr | None,
        body: ast.Block,
    ) -> Doc:
        if carries:
            docs = [concat(f"{c.name} = ", self.expression(c.value)) for c in carries]
            pieces = [*(concat(doc, ",") for doc in docs[:-1]), docs[-1]]
            head.append(concat("with ", Align(Fill(pieces))))
        if limit:
            head.append(concat("limit ", self.expression(limit, SUM)))
        lines = Group(Nest(Nest(Concat(joined(head, Line())))))
        return concat(lines, " ", self.block(body, short=True))

    def _on(self, node: ast.On) -> Doc:
        device = self.device(node.device)
        if isinstance(node.body, ast.Block):
            return concat(device, " ", self.block(node.body, short=True))
        body = self.expression(node.body)
        begin = _beginning(node.body)
        if isinstance(begin, ast.Name) and begin.name in STATEMENT_WORDS:
            body = concat("(", Align(body), ")")
        lines = concat("{", Nest(concat(Line(), body)), Line(), "}")
        return concat(device, " ", Group(lines))

    def device(self, device: ast.Device) -> Doc:
        """`on cuda:0`."""
        if device.is_stage:
            return Text(f"on {device.kind} {device.index}")
        index = "" if device.index is None else f":{device.index}"
        return Text(f"on {device.kind}{index}")

    # Patterns and types -------------------------------------------------------------------------

    def pattern(self, pattern: ast.Pattern) -> Doc:
        """What a `let` or a loop binds."""
        match pattern:
            case ast.NamePattern():
                return Text(pattern.name)
            case ast.IgnorePattern():
                return Text("_")
            case ast.RestPattern():
                return Text("..")
            case ast.TuplePattern():
                first = pattern.items[0]
                comma = len(pattern.items) == 1 and not isinstance(first, ast.RestPattern)
                limit = pattern.span.end - 1
                return self.listing("(", pattern.items, self.pattern, ")", limit, comma=comma)

    def type(self, node: ast.Type) -> Doc:
        """A type."""
        match node:
            case ast.FnType():
                return Text("fn")
            case ast.DtypeType():
                return Text("dtype")
            case ast.TensorType():
                if not node.dims:
                    return Text(node.dtype)
                dims = self.listing("[", node.dims, self.expression, "]", node.span.end - 1)
                return concat(node.dtype, dims)
            case ast.TupleType():
                comma = len(node.fields) == 1 and node.fields[0].name is None
                limit = node.span.end - 1
                return self.listing("(", node.fields, self._type_field, ")", limit, comma=comma)

    def _type_field(self, field: ast.TypeField) -> Doc:
        kind = self.type(field.type)
        return kind if field.name is None else concat(f"{field.name}: ", kind)

    def parameters(self, parameters: Sequence[ast.Parameter]) -> Doc:
        """Parameters in parentheses."""
        if self.comments.source is None and any(p.docs for p in parameters):
            rows = [Row(documentation(p.docs), self._parameter(p), []) for p in parameters]
            return vertical("(", rows, [], ")")
        return self.enclosed("(", parameters, self._parameter, ")")

    def _parameter(self, parameter: ast.Parameter) -> Doc:
        parts: list[Doc | str] = ["inout " * parameter.inout + parameter.name]
        if parameter.type:
            parts += [": ", self.type(parameter.type)]
        if parameter.default:
            parts += [" = ", self.expression(parameter.default)]
        return concat(*parts)


def _level(node: ast.Expr) -> int:
    """How tightly an expression holds together; what ends with a brace could, but looks odd."""
    match node:
        case ast.If() | ast.Range():
            return FULL
        case ast.Pipe() | ast.Scan() | ast.While() | ast.Block() | ast.On():
            return PIPE
        case ast.Compare():
            return LEVELS[node.op]
        case ast.Unary():
            return NOT_LEVEL if node.op == "not" else SIGNED
        case ast.Binary():
            return LEVELS.get(node.rest[0].op, POWER)
        case _:
            return VALUE


def _reads_otherwise(scan: ast.Scan) -> bool:
    """Whether `reverse` before the source would be taken for a name, or a name for `reverse`."""
    begin = _beginning(scan.source)
    if not scan.reverse:
        return isinstance(begin, ast.Name) and begin.name == "reverse"
    if isinstance(begin, ast.Name):
        return begin.name in EXPRESSION_WORDS
    return isinstance(begin, ast.Unary | ast.Block)


def _beginning(node: ast.Expr) -> ast.Expr:
    """The part of an expression that is printed first."""
    while True:
        match node:
            case ast.Binary() | ast.Pipe():
                node = node.first
            case ast.Compare():
                node = node.left
            case ast.Call():
                node = node.function
            case ast.Index() | ast.Attribute():
                node = node.value
            case ast.Range():
                node = node.start
            case _:
                return node
