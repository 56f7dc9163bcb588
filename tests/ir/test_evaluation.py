"""Evaluating blocks with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.dialects import array, func
from dlc.ir.core import Array, Block, Builder, Evaluation, Op, Value
from dlc.ir.dims import symbol
from dlc.ir.location import UnknownLocation
from dlc.ir.types import F32, TensorType
from tests.ir import toy

HERE = UnknownLocation("a test")
TYPE = TensorType(F32, (symbol("B"),))
ONES = np.ones(3, np.float32)


def sum_of_arguments() -> Block:
    block = Block((TYPE, TYPE), ("x", "y"))
    emit = Builder(block, HERE)
    total = emit(array.Add(*block.arguments), "total")
    emit.place(func.Return((total, block.arguments[0])))
    return block


def test_a_block_gives_the_operands_of_its_terminator() -> None:
    total, x = Evaluation().run(sum_of_arguments(), [ONES, 2 * ONES])
    assert total.tolist() == [3, 3, 3]
    assert x is ONES


def test_every_value_is_shown_to_the_observer_in_order() -> None:
    seen: list[tuple[str | None, list[float]]] = []

    def observe(value: Value, found: Array) -> None:
        seen.append((value.name, found.tolist()))

    Evaluation(observe=observe).run(sum_of_arguments(), [ONES, 2 * ONES])
    assert seen == [("x", [1, 1, 1]), ("y", [2, 2, 2]), ("total", [3, 3, 3])]


def test_sizes_are_numbers_in_a_run() -> None:
    at = Evaluation({"B": 3})
    assert at.size(symbol("B") + 1) == 4
    assert at.shape((2, symbol("B"))) == (2, 3)


def test_there_is_an_array_for_each_argument() -> None:
    with pytest.raises(ValueError, match="shorter"):
        Evaluation().run(sum_of_arguments(), [ONES])


def test_a_block_without_a_terminator_is_a_mistake_of_ours() -> None:
    with pytest.raises(AssertionError, match="no terminator ends the operations"):
        Evaluation().run(Block(), [])


def test_what_stands_for_an_operation_is_made_once_in_a_run() -> None:
    op = sum_of_arguments().terminator
    made: list[Op] = []

    def make(of: Op) -> Block:
        made.append(of)
        return sum_of_arguments()

    at = Evaluation()
    first = at.once(op, make)
    assert at.once(op, make) is first
    assert Evaluation().once(op, make) is not first
    assert made == [op, op]


class Inline(toy.Nest):
    """Evaluates its region."""

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        return at.run(self.body, inputs)


class InlineBox(toy.Box):
    """As `Inline`, isolated."""

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        return at.run(self.body, inputs)


def around(kind: type[toy.Nest | toy.Box]) -> Block:
    """A block that adds its first argument to its second inside a region that takes the second."""
    block = Block((TYPE, TYPE))
    x, y = block.arguments
    inner = Block((TYPE,))
    emit = Builder(inner, HERE)
    emit.place(toy.End((emit(array.Add(x, inner.arguments[0])),)))
    nest: Op = kind((y,), inner)
    Builder(block, HERE).place(nest)
    Builder(block, HERE).place(func.Return(nest.results))
    return block


def test_a_region_sees_the_values_around_it() -> None:
    [total] = Evaluation().run(around(Inline), [ONES, 4 * ONES])
    assert total.tolist() == [5, 5, 5]


def test_an_isolated_region_does_not() -> None:
    with pytest.raises(KeyError):
        Evaluation().run(around(InlineBox), [ONES, 4 * ONES])
