"""Registers of several elements. Arithmetic on them is `dlc.dialects.scalar`, lane by lane."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlc.dialects.loop.memory import machine
from dlc.dialects.scalar import COMBINERS, element
from dlc.ir.core import Array, Evaluation, Op, Value
from dlc.ir.define import attribute, op, operand
from dlc.ir.types import F32, I32, Type, VectorType


@op("vec.broadcast")
class Broadcast(Op):
    """A scalar in every lane."""

    source: Value = operand()
    lanes: int = attribute()

    def infer(self) -> Type:
        return VectorType(element(self.source.type), self.lanes)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return np.repeat(inputs[0], self.lanes)


@op("vec.ramp")
class Ramp(Op):
    """`start, start + 1, ...`: one index, or other integer, in each lane."""

    start: Value = operand()
    lanes: int = attribute()

    def infer(self) -> Type:
        return VectorType(element(self.start.type), self.lanes)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        (start,) = inputs
        return np.arange(self.lanes, dtype=start.dtype) + start


@op("vec.load")
class Load(Op):
    """Consecutive elements from `pointer[index]` on.

    The address is a multiple of `alignment` bytes; where there is none, of the bytes of an element.
    """

    pointer: Value = operand()
    index: Value = operand()
    type: VectorType = attribute()
    alignment: int | None = attribute(default=None)

    pure = False

    def infer(self) -> Type:
        return self.type

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        pointer, index = inputs
        return machine(at).read(self, pointer, index, self.type.dtype, self.type.lanes)


@op("vec.store")
class Store(Op):
    """Write consecutive elements from `pointer[index]` on; `alignment` is as in `vec.load`."""

    value: Value = operand()
    pointer: Value = operand()
    index: Value = operand()
    alignment: int | None = attribute(default=None)

    pure = False

    def infer(self) -> tuple[Type, ...]:
        return ()

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        value, pointer, index = inputs
        machine(at).write(self, pointer, index, value)
        return ()


@op("vec.gather")
class Gather(Op):
    """The elements at `pointer[indices[lane]]`."""

    pointer: Value = operand()
    indices: Value = operand()
    type: VectorType = attribute()

    pure = False

    def infer(self) -> Type:
        return self.type

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        pointer, indices = inputs
        dtype = self.type.dtype
        return np.concatenate([machine(at).read(self, pointer, i, dtype, 1) for i in indices])


@op("vec.scatter")
class Scatter(Op):
    """Write each lane to `pointer[indices[lane]]`; the indices differ."""

    value: Value = operand()
    pointer: Value = operand()
    indices: Value = operand()

    pure = False

    def infer(self) -> tuple[Type, ...]:
        return ()

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        values, pointer, indices = inputs
        for value, index in zip(values, indices, strict=True):
            machine(at).write(self, pointer, index, value)
        return ()


@op("vec.reduce")
class Reduce(Op):
    """All lanes combined in a fixed tree (halves first) by a scalar operation such as `add`."""

    source: Value = operand()
    combine: str = attribute()

    def infer(self) -> Type:
        return element(self.source.type)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        (lanes,) = inputs
        combine = COMBINERS[self.combine].function
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = combine(lanes[:half], lanes[half:])
        return np.asarray(lanes[0])


@op("vec.shuffle")
class Shuffle(Op):
    """Lanes of two registers of one type in a new order: lane k of the other is `lanes + k`."""

    one: Value = operand()
    other: Value = operand()
    order: tuple[int, ...] = attribute()

    def infer(self) -> Type:
        return VectorType(element(self.one.type), len(self.order))

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return np.concatenate(inputs)[list(self.order)]


@op("vec.dot_pairs")
class DotPairs(Op):
    """`sum` plus, lane by lane, the dot product of two pairs of 16 bits, each of which fills a lane of i32.

    Pairs are of i16 where sums are i32, which wrap: x86-64 has it as `pmaddwd` and an addition, or as one
    instruction of VNNI, `vpdpwssd`. They are of bf16 where sums are f32: the second product is added before
    the first, and operands and sums below 2^-126 count as 0, as `vdpbf16ps` does.
    """

    lhs: Value = operand()
    rhs: Value = operand()
    sum: Value = operand()

    def infer(self) -> Type:
        pairs, sums = self.lhs.type, self.sum.type
        if (
            not isinstance(pairs, VectorType)
            or pairs.dtype is not I32
            or self.rhs.type is not pairs
            or sums not in (pairs, VectorType(F32, pairs.lanes))
        ):
            types = f"{pairs}, {self.rhs.type} and {sums}"
            raise self.fail(f"vec.dot_pairs takes registers of i32 and their sums, found {types}")
        return sums

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        lhs, rhs, sum = inputs
        if element(self.sum.type) is F32:
            return _dot_bf16_pairs(lhs, rhs, sum)
        pairs = [np.ascontiguousarray(each).view(np.int16).astype(np.int64) for each in (lhs, rhs)]
        products = (pairs[0] * pairs[1]).reshape(-1, 2).sum(1)
        return (sum.astype(np.int64) + products).astype(np.int32)


def _dot_bf16_pairs(lhs: Array, rhs: Array, sums: Array) -> Array:
    """The sums plus the dot products of pairs of bf16, one product after the other."""
    ones, others = _unpaired(lhs), _unpaired(rhs)
    totals = sums.astype(np.float32)
    for number in (1, 0):
        products = ones[:, number] * others[:, number]
        totals = _flushed((_flushed(totals).astype(np.float64) + products).astype(np.float32))
    return totals


def _unpaired(pairs: Array) -> NDArray[np.float64]:
    """The numbers of pairs of bf16."""
    halves = np.ascontiguousarray(pairs).view(np.uint16).astype(np.uint32) << 16
    return _flushed(halves.view(np.float32)).astype(np.float64).reshape(-1, 2)


def _flushed(floats: NDArray[np.float32]) -> NDArray[np.float32]:
    """The numbers, 0 in place of those below 2^-126."""
    return np.where(np.abs(floats) < np.finfo(np.float32).tiny, np.float32(0), floats)
