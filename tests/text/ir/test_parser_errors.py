"""What is said about IR text that is wrong: a code, the place, what disagrees, and a way out."""

from __future__ import annotations

import re
from collections.abc import Generator

import pytest

from dlc.dialects import func
from dlc.dialects.builtin import Module
from dlc.errors import ModelError
from dlc.errors.catalog import PAGES
from dlc.text.ir import attributes, lexer, parser
from dlc.text.ir.parser import parse_module, parse_op
from tests.ir import toy
from tests.suites import together


@pytest.fixture(autouse=True)
def toys() -> Generator[None]:
    with toy.registered():
        yield


def inside(line: str) -> str:
    """A text whose fourth line is this one, with %x and %y: f32 and %t: tensor<2xf32> around it."""
    return (
        '"builtin.module"() ({\n'
        '  "func.func"() <{sym_name = "main", function_type = (f32, f32, tensor<2xf32>) -> ()}> ({\n'
        "  ^bb0(%x: f32, %y: f32, %t: tensor<2xf32>):\n"
        f"{line}\n"
        '    "func.return"() : () -> ()\n'
        "  }) : () -> ()\n"
        "}) : () -> ()\n"
    )


def holding(value: str) -> str:
    return inside(f'"toy.facts"() {{test.value = {value}}} : () -> ()')


def complaints(text: str) -> ModelError:
    with pytest.raises(ModelError) as caught:
        parse_module(text, "a.dlir")
    return caught.value


# A line of a function, carets under what is marked, the code, the message and the help.
LINES = r"""
%z = "toy.ad"(%x, %y) : (f32, f32) -> f32
     ^^^^^^^^
D0152: there is no operation toy.ad; did you mean toy.add?

%z = "far.away"() : () -> f32
     ^^^^^^^^^^
D0152: there is no operation far.away

%z = "toy.add"(%x, %xx) : (f32, f32) -> f32
                   ^^^
D0153: %xx is used, but not defined before; did you mean %x?

%x = "toy.add"(%x, %y) : (f32, f32) -> f32
^^
D0154: %x is defined twice

%z = "toy.add"(%x, %t) : (f32, f32) -> f32
                   ^^
D0155: %t is tensor<2xf32>, used here as f32

%z = "toy.add"(%x, %y) : (f32) -> f32
                         ^
D0155: 2 operands, but 1 types for them are written

%z = "toy.add"(%x, %y) : (f32, f32) -> f64
     ^^^^^^^^^
D0155: toy.add gives f32, the text says f64

%z = "toy.add"(%x, %t) : (f32, tensor<2xf32>) -> f32
     ^^^^^^^^^
D0301: cannot add f32 and tensor<2xf32>; make them the same

%z = "toy.add"(%x) : (f32) -> f32
     ^^^^^^^^^
D0158: toy.add has 1 operand instead of 2

%z = "toy.groups"(%x, %y) <{segments = array<i64: 1, 1>}> : (f32, f32) -> f32
     ^^^^^^^^^^^^
D0158: toy.groups has segments [1, 1] for 1 operand in groups

%z = "toy.groups"(%x) <{segments = array<i64: 0>}> : (f32) -> f32
     ^^^^^^^^^^^^
D0158: toy.groups has segments [0] for 2 groups of operands

%z = "toy.groups"(%x) <{segments = array<i64: -1, 1>}> : (f32) -> f32
     ^^^^^^^^^^^^
D0158: toy.groups has segments [-1, 1] for 2 groups of operands

%z = "toy.groups"(%x) : (f32) -> f32
     ^^^^^^^^^^^^
D0158: toy.groups lacks the attribute segments: tuple[int, ...]

%z = "toy.make"() : () -> f32
     ^^^^^^^^^^
D0158: toy.make lacks the attribute type: Type

"toy.facts"() <{numbr = 1}> : () -> ()
^^^^^^^^^^^
D0158: toy.facts has the attribute numbr, which it does not declare

"toy.facts"() <{number = "1"}> : () -> ()
^^^^^^^^^^^
D0158: toy.facts has the attribute number that is no int | None: '1'

"toy.facts"() <{number = true}> : () -> ()
^^^^^^^^^^^
D0158: toy.facts has the attribute number that is no int | None: True

"toy.facts"() <{choice = "up"}> : () -> ()
^^^^^^^^^^^
D0158: toy.facts has the attribute choice that is no Literal['left', 'right'] | None: 'up'

"toy.facts"() <{pair = [1, "a", 2]}> : () -> ()
^^^^^^^^^^^
D0158: toy.facts has the attribute pair that is no tuple[int, str] | None: (1, 'a', 2)

"toy.facts"() <{number = 1, number = 2}> : () -> ()
                            ^^^^^^
D0158: the attribute number is given twice

%a, %b, %c = "toy.copies"(%x) : (f32) -> (f32, f32)
^^
D0159: 3 names for the 2 results of toy.copies

%z = "toy.fragile"(%x) : (f32) -> tensor<f32>
     ^^^^^^^^^^^^^
D0159: toy.fragile cannot be made of these parts: AssertionError

%z = "toy.fragile"() : () -> tensor<f32>
     ^^^^^^^^^^^^^
D0159: toy.fragile cannot be made of these parts: not enough values to unpack (expected 1, got 0)

"toy.nest"() ({ "toy.facts"() : () -> () }) : () -> ()
                                         ^
D0160: the region of toy.nest does not end with an operation that may end one

"toy.nest"() ({ }) : () -> ()
                ^
D0160: the region of toy.nest does not end with an operation that may end one

"toy.nest"() ({ "toy.end"() : () -> () "toy.facts"() : () -> () }) : () -> ()
                                       ^^^^^^^^^^^
D0160: toy.facts follows toy.end, which ends the block

"toy.nest"() : () -> ()
^^^^^^^^^^
D0158: toy.nest has 0 regions instead of 1

"toy.box"() ({ "toy.end"(%x) : (f32) -> () }) : () -> f32
                         ^^
D0153: %x is defined outside of toy.box, which uses no values around it

toy.add %x, %y
^^^^^^^
D0151: expected the operation in quotes, "toy.add", found toy.add

add %x, %y
^^^
D0151: expected an operation, found add

%z "toy.add"(%x)
   ^^^^^^^^^
D0151: expected '=' after the names of the results, found "toy.add"

%z, = "toy.add"(%x)
  ^
D0151: expected '=' after the names of the results, found ,

"toy.end" : () -> ()
          ^
D0151: expected '(', found :

"toy.end"(x) : () -> ()
          ^
D0151: expected an operand, such as %x, found x

"toy.end"(%x %y) : () -> ()
             ^^
D0151: expected ',' or ')', found %y

"toy.end"() : ()
D0151: expected '->', found "func.return"

"toy.facts"() {a b} : () -> ()
                 ^
D0151: expected '=' and the value of a, found b

"toy.facts"() {1 = 2} : () -> ()
               ^
D0151: expected the name of an attribute, found 1

"toy.facts"() {a = 1 b = 2} : () -> ()
                     ^
D0151: expected ',' or '}', found b

"toy.facts"() {a = [1 2]} : () -> ()
                      ^
D0151: expected ',' or ']', found 2

"toy.nest"() ({ ^bb0(x: f32): }) : () -> ()
                     ^
D0151: expected an argument, such as %x, found x

"toy.nest"() ({ ^bb0(%a: f32 %b: f32): }) : () -> ()
                             ^^
D0151: expected ',' or ')', found %b

"toy.nest"() ({ "toy.end"() : () -> () ^bb1: }) : () -> ()
                                       ^^^^
D0151: expected an operation, found ^bb1

"toy.end"() : (f32 f32) -> ()
                   ^^^
D0151: expected ',' or ')', found f32

"toy.end"() : (%x) -> ()
               ^^
D0151: expected a type, found %x

"toy.facts"() : () -> () loc(here)
                             ^^^^
D0151: expected a string, found here

"toy.facts"() : () -> () loc("a":1)
                                  ^
D0151: expected ':', found )

"toy.facts"() : () -> () loc("a":1:-2)
                                   ^^
D0157: '-2' is not a number up to 2147483647

"toy.facts"() : () -> () loc("a":99999999999:1)
                                 ^^^^^^^^^^^
D0157: '99999999999' is not a number up to 2147483647

"toy.facts"() : () -> () loc("..x"("a":1:2))
                             ^^^^^
D0157: 'x' is not a number up to 2147483647

"toy.facts"() : () -> () loc(fused[])
                                   ^
D0151: expected a string, found ]

"toy.facts"() : () -> () loc("..1"("..2"("a":1:2)))
                                  ^
D0151: expected ':', found (

"toy.facts() : () -> ()
^^^^^^^^^^^^^^^^^^^^^^^
D0157: the string is not closed on this line

`
^
D0151: expected an operation, found `
"""


@together("case", LINES.strip("\n").split("\n\n"))
def test_a_line_that_is_wrong_is_marked_and_explained(case: str) -> None:
    line, *marks, said = case.split("\n")
    [found] = complaints(inside(line)).diagnostics
    way_out = f"; {found.help}" if found.help else ""
    assert f"{found.code}: {found.message}{way_out}" == said
    assert found.place is not None
    if marks:
        assert (found.place.file, found.place.line) == ("a.dlir", 4)
        assert marks == [" " * (found.place.column - 1) + "^" * found.place.width]


VALUES = [
    ("1 : i32", "D0157", "1 : i32 is not a number of an attribute"),
    ("1 : f32", "D0157", "1 : f32 is not a number of an attribute"),
    ("1.5 : i64", "D0157", "1.5 : i64 is not a number of an attribute"),
    ("9223372036854775808", "D0157", "9223372036854775808 is not a number of an attribute"),
    ("9223372036854775808 : i64", "D0157", "9223372036854775808 : i64 is not a number of an attribute"),
    ("1.0e999", "D0157", "1.0e999 is not a number of an attribute"),
    ("0x7F : f64", "D0157", "0x7F : f64 is not a number of an attribute"),
    ("-", "D0157", "- is not a number of an attribute"),
    ('"a\\qb"', "D0157", "\\q is not an escape"),
    ('"a\\FF"', "D0157", "the escapes in the string are not UTF-8"),
    ("unit", "D0156", "'unit' is not a type"),
    ("f31", "D0156", "'f31' is not a type"),
    ("!mem.rot", "D0156", "'!mem.rot' is not a type"),
    ("!mem.view<f32>", "D0156", '!mem.view<f32> is not a view; write !mem.view<f32, "B, 64">'),
    ('!mem.view<f32, "2", "1, 1">', "D0156", "the view has 1 sizes and 2 strides"),
    ("tensor<2x3>", "D0156", "'3' is not an element type"),
    ("tensor<2x-3xf32>", "D0156", "tensor<2x-3xf32> is not a tensor type; write tensor<2x3xf32>"),
    ("tensor<2xf33>", "D0156", "'f33' is not an element type"),
    ("tensor<99999999999999999999xf32>", "D0156", "is beyond 2**62"),
    ("tensor<9223372036854775808x2xf32>", "D0156", "'9223372036854775808' is beyond 2**62"),
    ("tensor<?xf32>", "D0156", 'tensor<?xf32> does not name its sizes: #dlc.dims<"...">'),
    ('tensor<?x2xf32, #dlc.dims<"B, 3">>', "D0156", "and its sizes 'B, 3' disagree"),
    ('tensor<?xf32, #dlc.dims<"B, 3">>', "D0156", "and its sizes 'B, 3' disagree"),
    ('tensor<3xf32, #dlc.dims<"3">>', "D0156", "and its sizes '3' disagree"),
    ('tensor<?xf32, #dlc.dims<"B +">>', "D0156", "expected a number or a name in the size"),
    ("tensor<" + "1x" * 65 + "f32>", "D0156", "the tensor has 65 axes, more than 64"),
    ("vector<0xf32>", "D0156", "vector<0xf32> is not a vector type; write vector<8xf32>"),
    ("vector<4097xf32>", "D0156", "vector<4097xf32> is not a vector type; write vector<8xf32>"),
    ("array<i32: 1>", "D0157", "expected integers, such as array<i64: 1, 0>"),
    ("array<i64: 1, a>", "D0157", "expected integers, such as array<i64: 1, 0>"),
    ("array<i64: 9223372036854775808>", "D0157", "an integer does not fit i64"),
    ("#dlc.other<\"B\">", "D0157", '#dlc.other is not an attribute; write #dlc.dims<"B, 64">'),
    ("#kernel.packed<0>", "D0157", "columns of #kernel.packed is 0; it is a number of at least 1"),
    ('#kernel.packed<"B">', "D0157", "columns of #kernel.packed is B; it is a number of at least 1"),
    ("#kernel.packed", "D0157", "#kernel.packed takes 1 parameters and is given 0"),
    ("#kernel.blas<3>", "D0157", "#kernel.blas takes 0 parameters and is given 1"),
    ('#kernel.split_k<"B +">', "D0157", "expected a number or a name in the size"),
    ("#dlc.dim<B>", "D0157", '#dlc.dim is not an attribute; write #dlc.dims<"B, 64">'),
    ('#dlc.dim<"B//0">', "D0156", "the size 'B//0' divides by 0"),
    ('#dlc.dim<"' + "B+" * 8000 + '1">', "D0156", "a size of 16001 characters is too long"),
    ("dense<1.0> : f32", "D0157", "the type of a constant is a tensor of known size, not f32"),
    ('dense<1.0> : tensor<?xf32, #dlc.dims<"B">>', "D0157", "the type of a constant is a tensor"),
    ("dense<[1.0]> : tensor<2xf32>", "D0157", "the elements are not 2 literals nested as [2]"),
    ("dense<[[1.0, 2.0]]> : tensor<2xf32>", "D0157", "the elements are not 2 literals nested as [2]"),
    ("dense<[1.0, 2.0> : tensor<2xf32>", "D0157", "the elements are not 2 literals nested as [2]"),
    ("dense<[1.0 2.0]> : tensor<2xf32>", "D0157", "the elements are not 2 literals nested as [2]"),
    ("dense<> : tensor<2xf32>", "D0157", "there are no elements for tensor<2xf32>"),
    ("dense<a> : tensor<2xf32>", "D0157", "'a' is not a number"),
    ("dense<0x7F> : tensor<2xf32>", "D0157", "'0x7F' is not 32 bits"),
    ("dense<256> : tensor<ui8>", "D0157", "'256' is no ui8"),
    ("dense<1.5> : tensor<i8>", "D0157", "'1.5' is no i8"),
    ("dense<1> : tensor<i1>", "D0157", "'1' is neither true nor false"),
    ('dense<"0x01"> : tensor<i1>', "D0157", "the elements of a tensor of i1 are written as true"),
    ('dense<"0x01"> : tensor<2xf32>', "D0157", "the bytes, 1, are not a whole number of elements of f32"),
    ('dense<"0x0100"> : tensor<3xi8>', "D0157", "2 bytes do not fill tensor<3xi8>"),
    ('dense<"01"> : tensor<i8>', "D0157", 'expected hexadecimal bytes, such as "0x0000803F"'),
    ("dense<0> : tensor<999999999xi64>", "D0150", "the constants have more than 256 MiB"),
    ("dense<0", "D0151", "expected"),
    ("[" * 70, "D0150", "lists are nested more than 64 deep"),
    ("() -> (" * 70, "D0150", "types are nested more than 64 deep"),
]  # fmt: skip


@together(("value", "code", "message"), VALUES, ids=[row[0][:40] for row in VALUES])
def test_a_value_that_is_wrong_is_marked_and_explained(value: str, code: str, message: str) -> None:
    [found] = complaints(holding(value)).diagnostics
    assert found.code == code
    assert message in found.message
    assert found.place is not None
    assert found.place.line == 4


def test_the_report_shows_the_line_and_where_the_value_comes_from() -> None:
    report = complaints(inside('%z = "toy.add"(%x, %t) : (f32, f32) -> f32')).render()
    assert report == (
        "error[D0155]: %t is tensor<2xf32>, used here as f32\n"
        " --> a.dlir:4:20\n"
        "   |\n"
        ' 4 | %z = "toy.add"(%x, %t) : (f32, f32) -> f32\n'
        "   |                    ^^\n"
        "   = note: defined here: a.dlir:3:26"
    )


def test_one_run_reports_many_mistakes_but_no_consequences() -> None:
    lines = [
        '%a = "toy.ad"(%x, %y) : (f32, f32) -> f32',
        '%b = "toy.add"(%a, %y) : (f32, f64) -> f32',
        '%c = "toy.add"(%b, %q) : (f32, f32) -> f32',
        '%d = "toy.nest"() ({ "toy.end"(%r) : (f32) -> () }) : () -> f32',
        '%e = "toy.add"(%d, %d) : (f32, f32) -> f32',
        '%f = "toy.make"() : () -> f32',
    ]
    found = complaints(inside("\n".join(lines))).diagnostics
    assert [(each.code, each.place and each.place.line) for each in found] == [
        ("D0152", 4),
        ("D0153", 6),
        ("D0153", 7),
        ("D0158", 9),
    ]


def test_mistakes_before_one_of_punctuation_are_reported_with_it() -> None:
    found = complaints(inside('%a = "toy.ad"() : () -> f32\n%b = "toy.add"[%x]')).diagnostics
    assert [each.code for each in found] == ["D0152", "D0151"]


def test_a_run_reports_so_many_mistakes_and_no_more() -> None:
    found = complaints(inside('"no.op"() : () -> ()\n' * 100)).diagnostics
    assert len(found) == parser.MAX_ERRORS


def test_what_infer_refuses_is_shown_in_this_text_with_the_place_it_came_from() -> None:
    line = '%z = "toy.add"(%x, %t) : (f32, tensor<2xf32>) -> f32 loc("m.dlm":7:3)'
    [found] = complaints(inside(line)).diagnostics
    assert str(found.place) == "a.dlir:4:6"
    assert [(str(label.place), label.text) for label in found.labels] == [
        ("m.dlm:7:3", "it comes from here")
    ]


def test_a_text_that_is_another_operation_is_refused() -> None:
    text = '"toy.facts"() : () -> ()'
    with pytest.raises(ModelError, match=r"the text is the operation toy\.facts, expected builtin"):
        parse_op(text, "a.dlir", Module)
    with pytest.raises(ModelError, match=r"D0161.* expected func\.func"):
        parse_op(text, "a.dlir", func.Func)


@pytest.mark.parametrize("text", ["", " \n// nothing\n"])
def test_a_text_without_an_operation_is_refused(text: str) -> None:
    assert complaints(text).diagnostics[0].message == "expected an operation, the text ends"


def test_a_text_of_two_operations_is_refused() -> None:
    [found] = complaints('"toy.facts"() : () -> ()\n"toy.facts"() : () -> ()').diagnostics
    assert found.message == 'expected the end of the text after one operation, found "toy.facts"'
    assert str(found.place) == "a.dlir:2:1"


def test_a_text_that_stops_anywhere_is_refused() -> None:
    text = inside('%z = "toy.add"(%x, %y) {test.a = [1, "b"]} : (f32, f32) -> f32 loc("a":1:2)')
    whole = text.rstrip()
    for end in range(len(whole)):
        assert complaints(whole[:end]).diagnostics[0].code.startswith("D01")
    parse_module(whole, "a.dlir")


def test_too_long_texts_and_lines_are_refused() -> None:
    for text in ("\n" * (lexer.MAX_LENGTH + 1), " " * (lexer.MAX_LINE + 1)):
        assert complaints(text).diagnostics[0].code == "D0150"


def test_regions_that_are_nested_too_deep_are_refused() -> None:
    depth = parser.MAX_NESTING + 1
    found = complaints('"toy.nest"() ({' * depth).diagnostics
    assert [each.code for each in found] == ["D0150"]


def test_many_constants_of_few_letters_are_refused_before_they_are_made() -> None:
    size = attributes.MAX_CONSTANTS // 4
    text = f"[{', '.join([f'dense<0> : tensor<{size}xi8>'] * 5)}]"
    assert complaints(holding(text)).diagnostics[0].code == "D0150"


def test_every_code_here_has_a_page() -> None:
    codes = {*re.findall(r"^D\d{4}", LINES, re.M), *(row[1] for row in VALUES), "D0161"}
    assert codes <= PAGES.keys()
