"""Registers of several elements. Arithmetic on them is `dlc.dialects.scalar`, lane by lane."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.scalar import element
from dlc.ir.core import Op, Value
from dlc.ir.define import attribute, op, operand, operands
from dlc.ir.types import INDEX, Type, VectorType


@op("vec.broadcast")
class Broadcast(Op):
    """A scalar in every lane."""

    source: Value = operand()
    lanes: int = attribute()

    def infer(self) -> Type:
        return VectorType(element(self.source.type), self.lanes)


@op("vec.ramp")
class Ramp(Op):
    """`start, start + 1, ...`: one index in each lane."""

    start: Value = operand()
    lanes: int = attribute()

    def infer(self) -> Type:
        return VectorType(INDEX, self.lanes)


@op("vec.load")
class Load(Op):
    """Consecutive elements from `pointer[index]` on; no alignment is assumed."""

    pointer: Value = operand()
    index: Value = operand()
    type: VectorType = attribute()

    pure = False

    def infer(self) -> Type:
        return self.type


@op("vec.store")
class Store(Op):
    """Write consecutive elements from `pointer[index]` on; no alignment is assumed."""

    value: Value = operand()
    pointer: Value = operand()
    index: Value = operand()

    pure = False

    def infer(self) -> tuple[Type, ...]:
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


@op("vec.scatter")
class Scatter(Op):
    """Write each lane to `pointer[indices[lane]]`; the indices differ."""

    value: Value = operand()
    pointer: Value = operand()
    indices: Value = operand()

    pure = False

    def infer(self) -> tuple[Type, ...]:
        return ()


@op("vec.reduce")
class Reduce(Op):
    """All lanes combined in a fixed tree (halves first) by a scalar operation such as `add`."""

    source: Value = operand()
    combine: str = attribute()

    def infer(self) -> Type:
        return element(self.source.type)


@op("vec.extract")
class Extract(Op):
    """One lane."""

    source: Value = operand()
    lane: int = attribute()

    def infer(self) -> Type:
        return element(self.source.type)


@op("vec.pack")
class Pack(Op):
    """A register from one scalar for each lane."""

    parts: Sequence[Value] = operands()

    def infer(self) -> Type:
        return VectorType(element(self.parts[0].type), len(self.parts))
