"""Arithmetic, rounding, maxima and bit operations of each element.

Kinks: |x| has derivative 0 at 0, and where the operands of maximum or minimum are equal the first one
receives the derivative.
"""

from __future__ import annotations

from typing import ClassVar

from dlc.dialects import scalar
from dlc.dialects.array.elementwise import (
    Binary,
    Compare,
    Select,
    Unary,
    constant_like,
    is_number,
    tensor_type,
)
from dlc.ir.core import Builder, Value
from dlc.ir.define import op
from dlc.ir.types import BOOL

__all__ = [
    "Abs", "Add", "And", "Ceil", "Divide", "Floor", "FloorDivide", "Maximum", "Minimum",
    "Multiply", "Negate", "Not", "Or", "Remainder", "Round", "ShiftLeft", "ShiftRight", "Sign",
    "Subtract", "Trunc", "TruncatedRemainder", "Xor",
]  # fmt: skip


def plus(emit: Builder, x: Value, number: float) -> Value:
    """`x + number`."""
    return emit(Add(x, constant_like(emit, number, x)))


def times(emit: Builder, x: Value, number: float) -> Value:
    """`x * number`."""
    return emit(Multiply(x, constant_like(emit, number, x)))


def square(emit: Builder, x: Value) -> Value:
    """`x * x`."""
    return emit(Multiply(x, x))


def reciprocal(emit: Builder, x: Value) -> Value:
    """`1 / x`."""
    return emit(Divide(constant_like(emit, 1, x), x))


def _without(op: Binary, number: float) -> Value | None:
    """The other operand, if one is `number`, the identity of the operation."""
    if is_number(op.rhs, number):
        return op.lhs
    return op.rhs if is_number(op.lhs, number) else None


def _dominant(op: Binary, number: float) -> Value | None:
    """The operand that is `number`, which absorbs the other operand."""
    return next((value for value in op.operands if is_number(value, number)), None)


def ones(op: Binary) -> int:
    """The integer (or bool) of the operands' dtype with all bits set."""
    dtype = tensor_type(op.lhs).dtype
    return 1 if dtype is BOOL else -1 if dtype.kind != "uint" else (1 << dtype.bits) - 1


@op("array.negate")
class Negate(Unary):
    """`-x`."""

    scalar = scalar.Negate

    def simplified(self) -> Value | None:
        match self.source.op:
            case Negate(source=origin):
                return origin
            case _:
                return None

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        return (emit(Negate(cotangents[0])),)


@op("array.abs")
class Abs(Unary):
    """`|x|`; the derivative at 0 is 0."""

    scalar = scalar.Abs

    def simplified(self) -> Value | None:
        return self.source if type(self.source.op) is type(self) else None

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        return (emit(Multiply(cotangents[0], emit(Sign(self.source)))),)


class Flat(Unary):
    """A piecewise constant function, whose derivative is 0, and which is idempotent."""

    def simplified(self) -> Value | None:
        return self.source if type(self.source.op) is type(self) else None

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        return (None,)


@op("array.sign")
class Sign(Flat):
    """-1, 0 or 1 as x is negative, zero or positive; NaN for NaN."""

    scalar = scalar.Sign


@op("array.floor")
class Floor(Flat):
    """The largest integer not above x."""

    scalar = scalar.Floor


@op("array.ceil")
class Ceil(Flat):
    """The smallest integer not below x."""

    scalar = scalar.Ceil


@op("array.round")
class Round(Flat):
    """The nearest integer; halves go to the even one."""

    scalar = scalar.Round


@op("array.trunc")
class Trunc(Flat):
    """x without its fraction."""

    scalar = scalar.Trunc


@op("array.not")
class Not(Unary):
    """The complement: logical for bool, bitwise for integers."""

    scalar = scalar.Not
    not_differentiable = "its operand is a bool or an integer"

    def simplified(self) -> Value | None:
        match self.source.op:
            case Not(source=origin):
                return origin
            case _:
                return None


@op("array.add")
class Add(Binary):
    """`x + y`; integers wrap."""

    scalar = scalar.Add
    commutative = True

    def simplified(self) -> Value | None:
        return _without(self, 0)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        return cotangents[0], cotangents[0]


@op("array.subtract")
class Subtract(Binary):
    """`x - y`; integers wrap."""

    scalar = scalar.Subtract

    def simplified(self) -> Value | None:
        return self.lhs if is_number(self.rhs, 0) else None

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        return cotangents[0], emit(Negate(cotangents[0]))


@op("array.multiply")
class Multiply(Binary):
    """`x * y`; integers wrap."""

    scalar = scalar.Multiply
    commutative = True

    def simplified(self) -> Value | None:
        if (found := _without(self, 1)) is not None or tensor_type(self.lhs).dtype.is_float:
            # 0 times a float may be NaN.
            return found
        return _dominant(self, 0)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        (dy,) = cotangents
        return emit(Multiply(dy, self.rhs)), emit(Multiply(dy, self.lhs))


@op("array.divide")
class Divide(Binary):
    """`x / y`: IEEE division for floats; toward zero for integers, where `x / 0` is 0."""

    scalar = scalar.Divide

    def simplified(self) -> Value | None:
        return self.lhs if is_number(self.rhs, 1) else None

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        dx = emit(Divide(cotangents[0], self.rhs))
        return dx, emit(Negate(emit(Multiply(dx, self.result))))


@op("array.floor_divide")
class FloorDivide(Binary):
    """`floor(x / y)`; for integers `x // 0` is 0."""

    scalar = scalar.FloorDivide

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        return None, None


@op("array.remainder")
class Remainder(Binary):
    """`x - floor(x / y) * y`: the sign is y's; for integers `x % 0` is x."""

    scalar = scalar.Remainder

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        (dy,) = cotangents
        whole = emit(FloorDivide(self.lhs, self.rhs))
        return dy, emit(Negate(emit(Multiply(dy, whole))))


@op("array.truncated_remainder")
class TruncatedRemainder(Binary):
    """`x - trunc(x / y) * y`: the sign is x's; for integers the remainder by 0 is x."""

    scalar = scalar.TruncatedRemainder

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        (dy,) = cotangents
        whole = emit(Trunc(emit(Divide(self.lhs, self.rhs))))
        return dy, emit(Negate(emit(Multiply(dy, whole))))


class Choice(Binary):
    """Maximum or minimum: the derivative goes to the operand chosen, to the first if they are equal."""

    predicate: ClassVar[str]

    def simplified(self) -> Value | None:
        return self.lhs if self.lhs is self.rhs else None

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        (dy,) = cotangents
        first = emit(Compare(self.lhs, self.rhs, self.predicate))
        zero = constant_like(emit, 0, dy)
        return emit(Select(first, dy, zero)), emit(Select(first, zero, dy))


@op("array.maximum")
class Maximum(Choice):
    """The larger of x and y; NaN if either is NaN."""

    scalar = scalar.Maximum
    predicate = "ge"


@op("array.minimum")
class Minimum(Choice):
    """The smaller of x and y; NaN if either is NaN."""

    scalar = scalar.Minimum
    predicate = "le"


class Bitwise(Binary):
    """A function of bools or of the bits of integers."""

    not_differentiable = "its operands are bools or integers"


@op("array.and")
class And(Bitwise):
    """Logical and for bool, bitwise and for integers."""

    scalar = scalar.And
    commutative = True

    def simplified(self) -> Value | None:
        if self.lhs is self.rhs:
            return self.lhs
        return _without(self, ones(self)) or _dominant(self, 0)


@op("array.or")
class Or(Bitwise):
    """Logical or for bool, bitwise or for integers."""

    scalar = scalar.Or
    commutative = True

    def simplified(self) -> Value | None:
        if self.lhs is self.rhs:
            return self.lhs
        return _without(self, 0) or _dominant(self, ones(self))


@op("array.xor")
class Xor(Bitwise):
    """Exclusive or: logical for bool, bitwise for integers."""

    scalar = scalar.Xor
    commutative = True

    def simplified(self) -> Value | None:
        return _without(self, 0)


@op("array.shift_left")
class ShiftLeft(Bitwise):
    """`x << y`; 0 where y is outside the width."""

    scalar = scalar.ShiftLeft

    def simplified(self) -> Value | None:
        return self.lhs if is_number(self.rhs, 0) else None


@op("array.shift_right")
class ShiftRight(Bitwise):
    """`x >> y`, filled with the sign for signed integers."""

    scalar = scalar.ShiftRight

    def simplified(self) -> Value | None:
        return self.lhs if is_number(self.rhs, 0) else None
