"""Derivatives of one operation, by its own rule and by differences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects import array
from dlc.dialects.flow.reverse import Backward, is_float, pull_back
from dlc.dialects.func import Return
from dlc.ir.core import Block, Builder
from dlc.ir.value_map import ValueMap
from tests.op_examples.example import HERE, Example, Numbers

STEP = 1e-5
"""Of a difference: its square, and 1e-16 divided by it, are both far below the tolerance."""


def derivative(example: Example, order: int) -> Block:
    """A block that takes the inputs, and cotangents for each order, and returns derivatives.

    Order 0 is the operation itself; order 2 differentiates order 1 by its inputs and its cotangents.
    """
    block, _ = example.block()
    for _ in range(order):
        differentiate(block)
    return block


def differentiate(block: Block) -> None:
    """Make a block take a cotangent for each float result too, and return what its arguments receive."""
    terminator = block.terminator
    wrt = list(filter(is_float, block.arguments))
    cotangents = [
        block.add_argument(result.type) if is_float(result) else None
        for result in terminator.operands
    ]
    emit = Backward(block, HERE, ValueMap(), terminator)
    received = pull_back(block, wrt, cotangents, emit)
    results = [
        array.constant_like(emit, 0, value) if dx is None else dx
        for value, dx in zip(wrt, received, strict=True)
    ]
    terminator.erase()
    Builder(block, HERE).place(Return(tuple(results)))


def by_rule(example: Example, order: int) -> tuple[Numbers, ...]:
    """The derivative of some order by the rule of the operation, for each float that goes in."""
    return example.run(derivative(example, order), inputs_of(example, order))


def inputs_of(example: Example, order: int) -> list[Numbers]:
    """What the derivative of some order takes: the inputs, and cotangents for each order."""
    arrays = [given.array for given in example.inputs]
    for done in range(1, order + 1):
        arrays += _random(example, derivative(example, done), len(arrays))
    return arrays


def by_differences(example: Example, order: int) -> list[Numbers]:
    """The derivative of some order by central differences of the order before."""
    before = derivative(example, order - 1)
    given = inputs_of(example, order)
    count = len(before.arguments)
    arrays, dy = given[:count], given[count:]
    slopes: list[Numbers] = []
    for k in [k for k, argument in enumerate(before.arguments) if is_float(argument)]:
        slope = np.zeros(arrays[k].shape)
        for place in np.ndindex(slope.shape):
            slope[place] = _difference(example, before, arrays, dy, k, place)
        slopes.append(slope)
    return slopes


def _random(example: Example, block: Block, first: int) -> list[Numbers]:
    """Cotangents for the arguments of a block from a place on."""
    shapes = [example.shape_of(argument) for argument in block.arguments[first:]]
    random = np.random.default_rng(first)
    return [random.uniform(-1, 1, shape) for shape in shapes]


def _difference(
    example: Example,
    block: Block,
    arrays: Sequence[Numbers],
    dy: Sequence[Numbers],
    k: int,
    place: tuple[int, ...],
) -> float:
    """The central difference of `sum(dy * results)` in one element of one argument."""
    ends: list[list[Numbers]] = []
    for sign in (1, -1):
        moved = list(arrays)
        moved[k] = arrays[k].copy()
        moved[k][place] += sign * STEP
        pairs = zip(example.run(block, moved), block.terminator.operands, strict=True)
        ends.append([result for result, value in pairs if is_float(value)])
    total = 0.0
    for weight, high, low in zip(dy, *ends, strict=True):
        # Not high - low: what is infinite on both sides does not change.
        total += float(
            np.sum(weight * np.subtract(high, low, where=high != low, out=np.zeros_like(high)))
        )
    return total / (2 * STEP)
