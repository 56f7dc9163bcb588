"""Operations that only tests have: one for each kind of part an operation can have.

They are not in the registry but while `registered` is entered, so that tests of all operations do not
meet them.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

from dlc.ir.attributes import Dense, Symbol
from dlc.ir.core import OPS, Block, Op, Value
from dlc.ir.define import attribute, op, operand, operands, region
from dlc.ir.dims import Dim, Shape, Size
from dlc.ir.types import DType, FunctionType, TensorType, Type


@op("toy.add")
class Add(Op):
    """The sum of two values of one type."""

    lhs: Value = operand()
    rhs: Value = operand()

    commutative = True

    def infer(self) -> Type:
        if self.lhs.type is not self.rhs.type:
            raise self.fail(
                f"cannot add {self.lhs.type} and {self.rhs.type}", help="make them the same"
            )
        return self.lhs.type


@op("toy.copies")
class Copies(Op):
    """The value so many times."""

    value: Value = operand()
    count: int = attribute(default=2)

    def infer(self) -> tuple[Type, ...]:
        if not 0 <= self.count <= 8:
            raise self.fail(f"cannot make {self.count} copies; ask for 0 to 8")
        return (self.value.type,) * self.count


@op("toy.make")
class Make(Op):
    """A value of any type."""

    type: Type = attribute()

    def infer(self) -> Type:
        return self.type


@op("toy.groups")
class Groups(Op):
    """One value, then two groups."""

    first: Value = operand()
    left: tuple[Value, ...] = operands()
    right: tuple[Value, ...] = operands()
    mode: str = attribute(default="both")
    note: str | None = attribute(default=None)

    def infer(self) -> Type:
        return self.first.type


@op("toy.facts")
class Facts(Op):
    """Attributes of every kind."""

    flag: bool | None = attribute(default=None)
    number: int | None = attribute(default=None)
    ratio: float | None = attribute(default=None)
    text: str | None = attribute(default=None)
    choice: Literal["left", "right"] | None = attribute(default=None)
    size: Size | None = attribute(default=None)
    dim: Dim | None = attribute(default=None)
    shape: Shape | None = attribute(default=None)
    axes: tuple[int, ...] | None = attribute(default=None)
    names: tuple[str, ...] | None = attribute(default=None)
    pair: tuple[int, str] | None = attribute(default=None)
    types: tuple[Type, ...] | None = attribute(default=None)
    symbol: Symbol | None = attribute(default=None)
    dtype: DType | None = attribute(default=None)
    function: FunctionType | None = attribute(default=None)
    value: Dense | None = attribute(default=None)

    pure = False

    def infer(self) -> tuple[Type, ...]:
        return ()


@op("toy.end")
class End(Op):
    """End a region with these values."""

    values: tuple[Value, ...] = operands()

    terminator = True
    pure = False

    def infer(self) -> tuple[Type, ...]:
        return ()


@op("toy.nest")
class Nest(Op):
    """What its region ends with; the region sees the values around it."""

    inputs: tuple[Value, ...] = operands()
    body: Block = region()

    def infer(self) -> tuple[Type, ...]:
        return tuple([value.type for value in self.body.terminator.operands])


@op("toy.fork")
class Fork(Op):
    """Two regions that end with values of the same types."""

    first: Block = region()
    second: Block = region()

    def infer(self) -> tuple[Type, ...]:
        one, other = (
            tuple([value.type for value in block.terminator.operands])
            for block in (self.first, self.second)
        )
        if one != other:
            raise self.fail(f"one region gives {list(one)}, the other {list(other)}")
        return one


@op("toy.box")
class Box(Op):
    """As `Nest`, but the region sees no values around it."""

    inputs: tuple[Value, ...] = operands()
    body: Block = region()

    isolated = True

    def infer(self) -> tuple[Type, ...]:
        return tuple([value.type for value in self.body.terminator.operands])


@op("toy.fragile")
class Fragile(Op):
    """Its `infer` relies on more than the class declares."""

    inputs: tuple[Value, ...] = operands()

    def infer(self) -> TensorType:
        (only,) = self.inputs
        assert isinstance(only.type, TensorType)
        return only.type


_TOYS = {name: OPS.pop(name) for name in list(OPS) if name.startswith("toy.")}


@contextmanager
def registered() -> Generator[None]:
    """Make the operations known for a while."""
    OPS.update(_TOYS)
    try:
        yield
    finally:
        for name in _TOYS:
            del OPS[name]
