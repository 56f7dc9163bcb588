"""Registers of several elements. Arithmetic on them is `dlc.dialects.scalar`, lane by lane."""

from __future__ import annotations

import numpy as np

from dlc.dialects.loop.memory import as_int, machine
from dlc.dialects.scalar import COMBINERS, element
from dlc.ir.core import Array, Evaluation, Op, Value
from dlc.ir.define import attribute, op, operand
from dlc.ir.types import I32, INDEX, Type, VectorType


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
    """`start, start + 1, ...`: one index in each lane."""

    start: Value = operand()
    lanes: int = attribute()

    def infer(self) -> Type:
        return VectorType(INDEX, self.lanes)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        start = as_int(inputs[0])
        return np.arange(start, start + self.lanes, dtype=np.int64)


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
    """`sum` plus, lane by lane, the dot product of two pairs of i16, each of which fills a lane of i32.

    Sums wrap. x86-64 has it as `pmaddwd` and an addition, or as one instruction of VNNI, `vpdpwssd`.
    """

    lhs: Value = operand()
    rhs: Value = operand()
    sum: Value = operand()

    def infer(self) -> Type:
        types = {value.type for value in self.operands}
        if len(types) != 1 or element(self.lhs.type) is not I32:
            raise self.fail(f"vec.dot_pairs takes registers of i32, found {types}")
        return self.sum.type

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        lhs, rhs, sum = inputs
        pairs = [np.ascontiguousarray(each).view(np.int16).astype(np.int64) for each in (lhs, rhs)]
        products = (pairs[0] * pairs[1]).reshape(-1, 2).sum(1)
        return (sum.astype(np.int64) + products).astype(np.int32)
