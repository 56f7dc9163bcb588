"""Derivatives of one operation, by its own rule and by differences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects import array
from dlc.dialects.func import Return
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Op, Value
from dlc.ir.types import TensorType
from tests.op_examples.example import HERE, Example, Numbers

STEP = 1e-5
"""Of a difference: its square, and 1e-16 divided by it, are both far below the tolerance."""


def is_float(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype.is_float


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
    expand(block)
    terminator = block.terminator
    results = list(filter(is_float, terminator.operands))
    wrt = list(filter(is_float, block.arguments))
    terminator.erase()
    cotangents = [block.add_argument(result.type) for result in results]
    received = pull_back(block, results, cotangents)
    emit = Builder(block, HERE)
    zero = [array.constant_like(emit, 0, value) for value in wrt]
    emit.place(Return(tuple(map(received.get, wrt, zero))))


def expand(block: Block) -> None:
    """Put their decomposition in the place of operations that have no gradient of their own."""
    op = block.first
    while op is not None:
        following = op.next
        if type(op).gradient is Op.gradient and type(op).decompose is not Op.decompose:
            previous = op.previous
            results = op.decompose(Builder.before_op(op))
            assert results is not None
            for old, new in zip(op.results, results, strict=True):
                old.replace_by(new)
            following = block.first if previous is None else previous.next
            if following is op:
                following = op.next
            op.erase()
        op = following


def pull_back(
    block: Block, results: Sequence[Value], cotangents: Sequence[Value]
) -> dict[Value, Value]:
    """What each value receives, by the operations' own rules, computed at the end of the block."""
    received: dict[Value, Value] = {}
    emit = Builder(block, HERE)

    def add(value: Value, cotangent: Value) -> None:
        assert cotangent.type is value.type, f"{value.type} receives {cotangent.type}"
        earlier = received.get(value)
        received[value] = cotangent if earlier is None else emit(array.Add(earlier, cotangent))

    for result, cotangent in zip(results, cotangents, strict=True):
        add(result, cotangent)
    for op in reversed(list(block)):
        if not any(result in received for result in op.results) or op.not_differentiable:
            continue
        if any(map(is_float, op.operands)):
            zero = [array.constant_like(emit, 0, result) for result in op.results]
            dy = [received.get(result, none) for result, none in zip(op.results, zero, strict=True)]
            for value, dx in zip(op.operands, op.gradient(emit, *dy), strict=True):
                if dx is not None and is_float(value):
                    add(value, dx)
    return received


def by_rule_and_by_differences(example: Example, order: int) -> list[tuple[Numbers, Numbers]]:
    """The derivative of some order of the operation, both ways, for each float that goes in."""
    before, after = derivative(example, order - 1), derivative(example, order)
    arrays = [*[given.array for given in example.inputs], *_random(example, before)]
    dy = _random(example, after, len(before.arguments))
    by_rule = example.run(after, arrays, dy)
    floats = [k for k, argument in enumerate(before.arguments) if is_float(argument)]
    pairs: list[tuple[Numbers, Numbers]] = []
    for k, found in zip(floats, by_rule, strict=True):
        slope = np.zeros(found.shape)
        for place in np.ndindex(found.shape):
            slope[place] = _difference(example, before, arrays, dy, k, place)
        pairs.append((found, slope))
    return pairs


def _random(example: Example, block: Block, start: int | None = None) -> list[Numbers]:
    """Cotangents for the arguments of a block from a place on, by default those after the inputs."""
    first = len(example.inputs) if start is None else start
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
