"""What the graph passes make of the classic small programs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pytest

from dlc.dialects import array
from dlc.driver.compile import lower
from dlc.driver.open import open_model
from dlc.driver.pipelines import REASONS, pipeline
from dlc.driver.settings import Settings
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.passes import check_order, parse_passes
from dlc.ir.types import F32, TensorType
from dlc.text.ir_printer import print_module
from tests.lowering.everywhere import Program, check, text_after

MATRIX = TensorType(F32, (2, 3))


def count(text: str, name: str) -> int:
    return text.count(f'"array.{name}"')


def test_three_doublings_are_one_product_by_8() -> None:
    def program(emit: Builder, x: Value) -> Sequence[Value]:
        for _ in range(3):
            x = emit(array.Multiply(x, array.constant_like(emit, 2, x)))
        return (x,)

    text = text_after(program, [MATRIX], parse_passes("canonicalize,cse,dce"))
    assert count(text, "multiply") == 1
    assert "value = 8.0" in text


def test_times_one_plus_zero_is_no_operation() -> None:
    def program(emit: Builder, x: Value) -> Sequence[Value]:
        y = emit(array.Multiply(array.constant_like(emit, 1, x), x))
        return (emit(array.Add(y, array.constant_like(emit, 0, x))),)

    text = text_after(program, [MATRIX], parse_passes("canonicalize,dce"))
    assert '"array.' not in text


def test_equal_sums_are_computed_once() -> None:
    def program(emit: Builder, x: Value, y: Value, z: Value) -> Sequence[Value]:
        product = emit(array.Multiply(emit(array.Add(x, y)), z))
        return (emit(array.Add(product, emit(array.Add(x, y)))),)

    text = text_after(program, [MATRIX] * 3, parse_passes("canonicalize,cse,dce"))
    assert (count(text, "add"), count(text, "multiply")) == (2, 1)


def test_constant_factors_meet() -> None:
    def program(emit: Builder, x: Value) -> Sequence[Value]:
        two = array.constant_like(emit, 2, x)
        square = emit(array.Power(x, two))
        three = array.constant_like(emit, 3, x)
        return (emit(array.Multiply(three, emit(array.Multiply(two, square)))),)

    text = text_after(program, [MATRIX], pipeline("graph", "graph", 2))
    assert count(text, "multiply") == 2
    assert count(text, "power") == 0
    assert "value = 6.0" in text


Around = tuple[tuple[int, int], tuple[int, int]]
"""How many zeros there are before a part along each axis, and how many after it."""


def parts(*around: Around, value: float = 0, between: int = 0) -> Program:
    """Parts of an array with a number around them, added up one after the other."""

    def program(emit: Builder, *given: Value) -> Sequence[Value]:
        outside = array.fill(emit, value, TensorType(F32))
        padded = [
            emit(array.Pad(x, outside, low, high, (0, between)))
            for x, (low, high) in zip(given, around, strict=True)
        ]
        return (reduce(lambda one, other: emit(array.Add(one, other)), padded),)

    return program


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_parts_with_zeros_around_are_concatenated(order: tuple[int, ...]) -> None:
    around: list[Around] = [((0, 0), (0, 6)), ((0, 3), (0, 3)), ((0, 6), (0, 0))]
    program = parts(*[around[k] for k in order])
    check(program, *[MATRIX] * 3)
    text = text_after(program, [MATRIX] * 3, parse_passes("canonicalize,dce"))
    assert [count(text, name) for name in ("concatenate", "pad", "add")] == [1, 0, 0]


def test_zeros_around_all_parts_stay() -> None:
    program = parts(((1, 2), (0, 5)), ((1, 5), (0, 2)))
    check(program, *[MATRIX] * 2)
    text = text_after(program, [MATRIX] * 2, parse_passes("canonicalize,dce"))
    assert [count(text, name) for name in ("concatenate", "pad", "add")] == [1, 1, 0]


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(parts(((0, 0), (0, 4)), ((0, 4), (0, 0))), id="a-gap"),
        pytest.param(parts(((0, 0), (0, 2)), ((0, 2), (0, 0))), id="an-overlap"),
        pytest.param(parts(((0, 0), (2, 3)), ((2, 3), (0, 0))), id="a-diagonal"),
        pytest.param(parts(((0, 0), (0, 3)), ((0, 3), (0, 0)), value=1), id="ones-around"),
        pytest.param(parts(((0, 0), (0, 5)), ((0, 5), (0, 0)), between=1), id="zeros-between"),
    ],
)
def test_other_parts_are_added_up(program: Program) -> None:
    check(program, *[MATRIX] * 2)
    text = text_after(program, [MATRIX] * 2, parse_passes("canonicalize,dce"))
    assert [count(text, name) for name in ("concatenate", "pad", "add")] == [0, 2, 1]


def test_a_pipeline_that_breaks_a_reason_is_refused() -> None:
    with pytest.raises(AssertionError, match="results of kernels"):
        check_order(parse_passes("plan_memory,lower_to_kernels"), REASONS)


def test_every_level_has_a_pipeline() -> None:
    assert pipeline("graph", "graph", 0) == parse_passes("place,autodiff,place")
    assert set(pipeline("graph", "loop", 0)) < set(pipeline("graph", "loop", 2))


POLY = """dlc 1
fn poly(x: f32[2, 2]) = 3 * x ** 2 + 2 * x + 3
export fn dy(x: f32[2, 2]) -> f32[2, 2] = vjp(poly, wrt=x)(x, dy=ones([2, 2]))
fn total(x: f32[2, 2]) -> f32 = sum(sin(x))
export fn slope(x: f32[2, 2]) -> f32[2, 2] = grad(total, wrt=x)(x)
"""


def test_gradients_of_the_classic_programs_are_as_short_as_by_hand() -> None:
    opened = open_model("poly.dlm", text=POLY)
    lower(opened, Settings(), "graph")
    polynomial, sine = print_module(opened.module).split('sym_name = "slope"')
    assert (count(polynomial, "multiply"), count(polynomial, "add")) == (1, 1)
    assert "value = 6.0" in polynomial
    assert (count(sine, "cos"), count(sine, "multiply")) == (1, 0)
