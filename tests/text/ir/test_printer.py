"""How IR is written, and that reading gives back exactly what was written."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Generator

import numpy as np
import pytest

from dlc.dialects import func
from dlc.dialects.builtin import Module
from dlc.ir.attributes import Attribute, Dense, Symbol, encode
from dlc.ir.core import PENDING, Block, Builder
from dlc.ir.dims import symbol
from dlc.ir.location import FileLocation, FusedLocation, Location, UnknownLocation
from dlc.ir.types import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I64,
    INDEX,
    POINTER,
    ROOT,
    U8,
    U64,
    DType,
    FunctionType,
    TensorType,
    Type,
    VectorType,
    ViewType,
)
from dlc.text.ir.parser import parse_op
from dlc.text.ir.printer import print_module, print_pieces
from dlc.text.sizes import parse_size
from tests.ir import toy
from tests.ir.random_modules import RandomModule
from tests.suites import every, together

HERE = FileLocation("toy.dlm", 2, 3)
B, T = symbol("B"), symbol("T")
TYPE = TensorType(F32, (2,))


@pytest.fixture(autouse=True)
def toys() -> Generator[None]:
    with toy.registered():
        yield


def holding(value: Attribute) -> toy.Facts:
    """An operation with an attribute of any kind."""
    op = toy.Facts()
    op.attributes["test.value"] = value
    op.location = HERE
    return op


def same(one: Attribute, other: Attribute) -> bool:
    """Equal in value and in type, inside tuples too, NaN to the same NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return struct.pack("d", one) == struct.pack("d", other)
    return one == other


def read(text: str) -> Attribute:
    return parse_op(text, "a.dlir", toy.Facts).attributes["test.value"]


ATTRIBUTES: list[tuple[Attribute, str]] = [
    (True, "true"),
    (False, "false"),
    (0, "0 : i64"),
    (-7, "-7 : i64"),
    (2**63 - 1, "9223372036854775807 : i64"),
    (-(2**63), "-9223372036854775808 : i64"),
    (2**63, "9223372036854775808 : i128"),
    (-(2**63) - 1, "-9223372036854775809 : i128"),
    (1.0, "1.0 : f64"),
    (-0.0, "-0.0 : f64"),
    (0.1, "0.1 : f64"),
    (1e300, "1.0e+300 : f64"),
    (5e-324, "5.0e-324 : f64"),
    (1.5e16, "1.5e+16 : f64"),
    (math.inf, "0x7FF0000000000000 : f64"),
    (-math.inf, "0xFFF0000000000000 : f64"),
    (math.nan, "0x7FF8000000000000 : f64"),
    ("", '""'),
    ("a b", '"a b"'),
    ('"\\', r'"\"\\"'),
    ("\n\t\r\0\x7f", r'"\0A\09\0D\00\7F"'),
    ("é 漢 🙂", '"é 漢 🙂"'),
    ("\ud800", r'"\ED\A0\80"'),
    (B, '#dlc.dim<"B">'),
    (parse_size("3*T + 1"), '#dlc.dim<"3*T + 1">'),
    ((), "[]"),
    ((1,), "array<i64: 1>"),
    ((1, -2, 3), "array<i64: 1, -2, 3>"),
    ((1, 2**63), "[1 : i64, 9223372036854775808 : i128]"),
    ((True,), "[true]"),
    ((True, 1), "[true, 1 : i64]"),
    ((B,), '#dlc.dims<"B">'),
    ((B, 64, -1), '#dlc.dims<"B, 64, -1">'),
    (((B + T) // 2, parse_size("max(B, T)")), '#dlc.dims<"(B + T)//2, max(B, T)">'),
    ((B, 2**64), '[#dlc.dim<"B">, 18446744073709551616 : i128]'),
    ((B, "a"), '[#dlc.dim<"B">, "a"]'),
    (((1, 2), (), ((),)), "[array<i64: 1, 2>, [], [[]]]"),
    (("a", 1.0, (False,)), '["a", 1.0 : f64, [false]]'),
    (Symbol("w"), "@w"),
    (Symbol("f.w$1"), "@f.w$1"),
    (Symbol("blocks[0].w"), '@"blocks[0].w"'),
    (Symbol("0"), '@"0"'),
    (F32, "f32"),
    (U8, "ui8"),
    (BOOL, "i1"),
    (INDEX, "index"),
    (ROOT, "!mem.root"),
    (POINTER, "!loop.pointer"),
    (TensorType(BF16, ()), "tensor<bf16>"),
    (TensorType(I64, (2, 0)), "tensor<2x0xi64>"),
    (TensorType(F32, (B, 64)), 'tensor<?x64xf32, #dlc.dims<"B, 64">>'),
    (VectorType(F32, 8), "vector<8xf32>"),
    (ViewType(F32, (B, 64)), '!mem.view<f32, "B, 64">'),
    (ViewType(F32, ()), '!mem.view<f32, "">'),
    (ViewType(F32, (B, 64), (T, 1)), '!mem.view<f32, "B, 64", "T, 1">'),
    (FunctionType((), ()), "() -> ()"),
    (FunctionType((F32, TYPE), (F32,)), "(f32, tensor<2xf32>) -> f32"),
    (FunctionType((F32,), (F32, F32)), "(f32) -> (f32, f32)"),
    (FunctionType((), (FunctionType((), ()),)), "() -> (() -> ())"),
]


@together(("value", "text"), ATTRIBUTES, ids=[text for _, text in ATTRIBUTES])
def test_an_attribute_is_written_so_and_read_back_equal(value: Attribute, text: str) -> None:
    printed = print_module(holding(value))
    assert printed == f'"toy.facts"() {{test.value = {text}}} : () -> ()\n'
    assert same(read(printed), value)


def constant(dtype: DType, array: object) -> Dense:
    numbers = np.asarray(array, np.float64 if dtype.is_float else dtype.numpy)
    return Dense.of(encode(numbers, dtype), dtype)


CONSTANTS: list[tuple[Dense, str]] = [
    (constant(F32, 1.5), "dense<1.5> : tensor<f32>"),
    (constant(F32, [1, 2.5]), "dense<[1.0, 2.5]> : tensor<2xf32>"),
    (
        constant(F32, [[0.1, 1e30], [-0.0, 1e-45]]),
        "dense<[[0.1, 1.0e+30], [-0.0, 1.0e-45]]> : tensor<2x2xf32>",
    ),
    (constant(F64, [0.1, 1 / 3]), "dense<[0.1, 0.3333333333333333]> : tensor<2xf64>"),
    (constant(F16, [0.1, 65504]), "dense<[0.1, 6.55e+04]> : tensor<2xf16>"),
    (constant(BF16, [0.1, -3]), "dense<[0.100097656, -3.0]> : tensor<2xbf16>"),
    (constant(F32, [2, 2, 2]), "dense<2.0> : tensor<3xf32>"),
    (constant(F32, [-0.0, -0.0]), "dense<-0.0> : tensor<2xf32>"),
    (constant(F32, [0.0, -0.0]), "dense<[0.0, -0.0]> : tensor<2xf32>"),
    (constant(F32, [math.inf, 1]), 'dense<"0x0000807F0000803F"> : tensor<2xf32>'),
    (constant(F32, [math.nan, math.nan]), 'dense<"0x0000C07F"> : tensor<2xf32>'),
    (Dense(TensorType(F32, (1,)), b"\x01\x00\x80\x7f"), 'dense<"0x0100807F"> : tensor<1xf32>'),
    (constant(F32, []), "dense<> : tensor<0xf32>"),
    (constant(I8, [-128, 127]), "dense<[-128, 127]> : tensor<2xi8>"),
    (constant(U8, [0, 255]), "dense<[0, 255]> : tensor<2xui8>"),
    (constant(U64, [0, 2**64 - 1]), "dense<[0, 18446744073709551615]> : tensor<2xui64>"),
    (constant(INDEX, [3, -1]), "dense<[3, -1]> : tensor<2xindex>"),
    (constant(BOOL, [[True], [False]]), "dense<[[true], [false]]> : tensor<2x1xi1>"),
    (constant(BOOL, [True, True]), "dense<true> : tensor<2xi1>"),
    (constant(U8, range(17)), 'dense<"0x000102030405060708090A0B0C0D0E0F10"> : tensor<17xui8>'),
]


@together(("value", "text"), CONSTANTS, ids=[text for _, text in CONSTANTS])
def test_a_constant_is_written_so_and_read_back_with_the_same_bits(value: Dense, text: str) -> None:
    printed = print_module(holding(value))
    assert printed == f'"toy.facts"() {{test.value = {text}}} : () -> ()\n'
    assert read(printed) == value


@pytest.mark.parametrize(("dtype", "part"), every(4, itertools.product([F16, BF16], range(4))))
def test_every_finite_number_of_16_bits_is_read_back_with_the_same_bits(
    dtype: DType, part: int
) -> None:
    """A fourth of the rows of 16 numbers, from any exponent."""
    for first in range(16 * part, 1 << 16, 64):
        bits = np.arange(first, first + 16, dtype=np.uint16)
        value = Dense(TensorType(dtype, (16,)), bits.tobytes())
        assert read(print_module(holding(value))) == value


def test_random_numbers_are_read_back_with_the_same_bits() -> None:
    random = np.random.default_rng(1)
    for dtype in (F32, F64):
        for _ in range(300):
            value = Dense(TensorType(dtype, (8,)), random.bytes(8 * dtype.bytes))
            assert read(print_module(holding(value))) == value


def test_many_bools_are_literals_because_mlir_packs_their_bits() -> None:
    text = print_module(holding(constant(BOOL, [True, False] * 20)))
    assert "dense<[true, false, true," in text


LOCATIONS: list[tuple[Location, str]] = [
    (FileLocation("a.dlm", 3, 4), '"a.dlm":3:4'),
    (FileLocation("a.dlm", 3, 4, 9), '"..9"("a.dlm":3:4)'),
    (FileLocation('a "b"\n', 1, 1), r'"a \"b\"\0A":1:1'),
    (FusedLocation((FileLocation("a", 1, 2),)), 'fused["a":1:2]'),
    (FileLocation("a", 1, 2, 0, "m.x", "silu"), '"m.x:silu"("a":1:2)'),
    (FileLocation("a", 1, 2, 5, "", "exp"), '":exp"("..5"("a":1:2))'),
    (FileLocation("a", 1, 2, 0, "a:b", ""), '"a:b:"("a":1:2)'),
    (
        FileLocation("<n>", 1, 2, 5, "m", "conv", FileLocation("b", 3, 4, 9)),
        '"m:conv"(callsite("..5"("<n>":1:2) at "..9"("b":3:4)))',
    ),
    (FileLocation("a", 1, 2, caller=FileLocation("b", 3, 4)), 'callsite("a":1:2 at "b":3:4)'),
    (
        FusedLocation((FileLocation("a", 1, 2), FileLocation("b", 3, 4, 5))),
        'fused["a":1:2, "..5"("b":3:4)]',
    ),
    (UnknownLocation(), "unknown"),
    (UnknownLocation("made by a test"), '"made by a test"'),
    (UnknownLocation("..3"), '"..3"'),
    (PENDING, '"not placed yet"'),
]


@pytest.mark.parametrize(("location", "text"), LOCATIONS, ids=[text for _, text in LOCATIONS])
def test_a_location_is_written_so_and_read_back_equal(location: Location, text: str) -> None:
    op = toy.Facts()
    op.location = location
    printed = print_module(op, locations=True)
    assert printed == f'"toy.facts"() : () -> () loc({text})\n'
    assert parse_op(printed, "a.dlir", toy.Facts).location == location


def test_an_operation_without_a_location_is_located_in_the_text() -> None:
    text = '"builtin.module"() ({\n  "toy.facts"() : () -> ()\n}) : () -> ()\n'
    module = parse_op(text, "a.dlir", Module)
    assert module.body.first is not None
    assert module.body.first.location == FileLocation("a.dlir", 2, 3, 14)


MODULE = """\
"builtin.module"() ({
  "func.func"() <{sym_name = "main", function_type = (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>}> ({
  ^bb0(%x: tensor<2xf32>, %x_1: tensor<2xf32>):
    %0 = "toy.add"(%x, %x_1) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %1, %h = "toy.copies"(%0) <{count = 2 : i64}> : (tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>)
    %2 = "toy.nest"(%h) ({
    ^bb0(%x_2: tensor<2xf32>):
      %3 = "toy.add"(%x_2, %1) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
      "toy.end"(%3) : (tensor<2xf32>) -> ()
    }) {test.note = "inner"} : (tensor<2xf32>) -> tensor<2xf32>
    "toy.fork"() ({
      "toy.end"() : () -> ()
    }, {
      "toy.end"() : () -> ()
    }) : () -> ()
    "func.return"(%2) : (tensor<2xf32>) -> ()
  }) {dlc.inputs = ["x", "y"]} : () -> ()
  "func.func"() <{sym_name = "empty", function_type = () -> ()}> ({
    %0 = "toy.make"() <{type = f32}> : () -> f32
    "func.return"() : () -> ()
  }) : () -> ()
}) : () -> ()
"""


def module() -> Module:
    """The module that `MODULE` spells."""
    made = Module.empty(HERE)
    body = Block((TYPE, TYPE), ("x", "x"))
    emit = Builder(body, HERE)
    total = emit(toy.Add(*body.arguments))
    one, other = emit.all(toy.Copies(total))
    other.name = "h"
    inner = Block((TYPE,), ("x",))
    inside = Builder(inner, HERE)
    inside.place(toy.End((inside(toy.Add(inner.arguments[0], one)),)))
    nest = emit.place(toy.Nest((other,), inner))
    nest.attributes["test.note"] = "inner"
    emit.place(toy.Fork(_end(), _end()))
    emit.place(func.Return((nest.result,)))
    main = func.Func(body, "main", func.signature(body, (nest.result,)))
    main.attributes["dlc.inputs"] = ("x", "y")
    empty = Block()
    Builder(empty, HERE)(toy.Make(F32))
    Builder(empty, HERE).place(func.Return(()))
    outer = Builder(made.body, HERE)
    outer.place(main)
    outer.place(func.Func(empty, "empty", FunctionType((), ())))
    return made


def _end() -> Block:
    block = Block()
    Builder(block, HERE).place(toy.End(()))
    return block


def test_a_module_is_written_in_mlirs_generic_syntax() -> None:
    assert print_module(module()) == MODULE


def test_a_module_is_read_back() -> None:
    parsed = parse_op(MODULE, "a.dlir", Module)
    assert print_module(parsed) == MODULE


def test_the_pieces_together_are_the_text() -> None:
    assert "".join(print_pieces(module(), locations=True)) == print_module(module(), locations=True)


def test_names_that_mlir_does_not_allow_are_repaired_and_kept_apart() -> None:
    body = Block((F32,) * 6, ("a b", "a_b", "1", "", "é", "a_b_1"))
    Builder(body, HERE).place(toy.End(()))
    text = print_module(toy.Nest((), body))
    names = "(%a_b: f32, %a_b_1: f32, %_1: f32, %0: f32, %_: f32, %a_b_1_1: f32)"
    assert f"^bb0{names}" in text
    assert print_module(parse_op(text, "a.dlir", toy.Nest)) == text


def test_a_name_that_is_taken_often_is_numbered_in_linear_time() -> None:
    body = Block((F32,) * 20_000, ("h",) * 20_000)
    Builder(body, HERE).place(toy.End(()))
    assert "%h_19999: f32" in print_module(toy.Nest((), body))


def test_a_part_of_a_function_can_be_printed() -> None:
    main = module().symbol("main")
    assert isinstance(main, func.Func)
    first = main.body.first
    assert first is not None
    assert print_module(first).startswith('%0 = "toy.add"(%x, %x_1)')


def test_attributes_are_written_in_declared_order_whatever_the_order_they_were_set_in() -> None:
    op = toy.Facts(number=1, text="a")
    attributes: dict[str, Attribute] = {"test.b": 1, "text": "a", "test.a": 2, "number": 1}
    op.attributes = attributes
    assert print_module(op) == (
        '"toy.facts"() <{number = 1 : i64, text = "a"}> {test.b = 1 : i64, test.a = 2 : i64}'
        " : () -> ()\n"
    )


def test_what_is_read_has_its_attributes_in_the_order_of_the_constructor() -> None:
    text = '"toy.facts"() {text = "a", test.b = 1, number = 1} : () -> ()'
    parsed = parse_op(text, "a.dlir", toy.Facts)
    assert tuple(parsed.attributes) == (*toy.Facts(number=1, text="a").attributes, "test.b")


def test_an_attribute_that_is_left_out_has_its_default() -> None:
    text = '%a, %b = "toy.copies"(%x) : (f32) -> (f32, f32)'
    wrapped = f'"toy.nest"() ({{\n^bb0(%x: f32):\n{text}\n"toy.end"() : () -> ()}}) : () -> ()'
    parsed = parse_op(wrapped, "a.dlir", toy.Nest).body.first
    assert isinstance(parsed, toy.Copies)
    assert parsed.attributes == {"count": 2}


def test_comments_blanks_and_line_ends_of_windows_are_nothing() -> None:
    text = MODULE.replace("\n", '  // a "comment"\r\n\r\n').replace(" : ", "\t:\t")
    assert print_module(parse_op(text, "a.dlir", Module)) == MODULE


def test_regions_may_be_nested_deep() -> None:
    op = toy.Nest((), _end())
    for _ in range(150):
        block = Block()
        emit = Builder(block, HERE)
        emit.place(op)
        emit.place(toy.End(()))
        op = toy.Nest((), block)
    text = print_module(op)
    assert print_module(parse_op(text, "a.dlir", toy.Nest)) == text


def test_what_mlir_prints_for_several_results_is_read() -> None:
    text = MODULE.replace("%1, %h =", "%1:2 =").replace("(%h)", "(%1#1)").replace("%1)", "%1#0)")
    parsed = parse_op(text, "a.dlir", Module)
    assert print_module(parsed) == MODULE.replace("%h", "%2").replace("%3", "%4").replace(
        '%2 = "toy.nest"', '%3 = "toy.nest"'
    ).replace('"func.return"(%2)', '"func.return"(%3)')


@pytest.mark.parametrize("locations", every(2, [True, False]))
def test_printing_what_was_read_from_print_prints_the_same(locations: bool) -> None:
    made: set[str] = set()
    for seed in range(40):
        random = RandomModule(seed)
        text = print_module(random.module(), locations=locations)
        assert print_module(parse_op(text, "a.dlir", Module), locations=locations) == text
        made |= random.made
    assert len(made) > 120, "the random modules have too few operations to say something"


def test_every_type_is_read_back_as_the_same_object() -> None:
    for seed in range(300):
        type = RandomModule(seed).type()
        found = read(print_module(holding(type)))
        assert isinstance(found, Type)
        assert found is type
