"""Elementary functions, element-wise: each derivative is a formula of the argument x and the result y."""

from __future__ import annotations

import math

from dlc.dialects import scalar
from dlc.dialects.array.arithmetic import (
    Add,
    Divide,
    Multiply,
    Negate,
    Subtract,
    plus,
    reciprocal,
    square,
    times,
)
from dlc.dialects.array.elementwise import (
    Binary,
    Compare,
    Select,
    Unary,
    constant_like,
    is_number,
)
from dlc.ir.core import Builder, Value
from dlc.ir.define import op

__all__ = [
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atan2", "Atanh", "Cos", "Cosh", "Erf", "Exp",
    "Expm1", "Log", "Log1p", "Power", "Rsqrt", "Sigmoid", "Sin", "Sinh", "Sqrt", "Tan", "Tanh",
]  # fmt: skip


class Smooth(Unary):
    """A function with a derivative that is a formula of x and of the result y."""

    approximate = True

    def derivative(self, emit: Builder, x: Value, y: Value) -> Value:
        """dy/dx at each element."""
        raise NotImplementedError

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        slope = self.derivative(emit, self.source, self.result)
        return (emit(Multiply(cotangents[0], slope)),)


@op("array.sqrt")
class Sqrt(Smooth):
    """The square root; NaN for negative x."""

    scalar = scalar.Sqrt
    approximate = False

    def derivative(self, emit: Builder, x: Value, y: Value) -> Value:
        return emit(Divide(constant_like(emit, 0.5, y), y))


@op("array.rsqrt")
class Rsqrt(Smooth):
    """`1 / sqrt(x)`."""

    scalar = scalar.Rsqrt

    def derivative(self, emit: Builder, x: Value, y: Value) -> Value:
        return times(emit, emit(Divide(y, x)), -0.5)


@op("array.exp")
class Exp(Smooth):
    """`e ** x`."""

    scalar = scalar.Exp

    def derivative(self, emit: Builder, x: Value, y: Value) -> Value:
        return y


@op("array.expm1")
class Expm1(Smooth):
    """`e ** x - 1`, exact near 0."""

    scalar = scalar.Expm1

    def derivative(self, emit: Builder, x: Value, y: Value) -> Value:
        return plus(emit, y, 1)


@op("array.log")
class Log(Smooth):
    """The natural logarithm; -inf at 0, NaN below."""

    scalar = scalar.Log

    def derivative(self, emit: Builder, x: Value, y: Value) -> Value:
        return reciprocal(emit, x)


@op("array.log1p")
class Log1p(Smooth):
    """`log(1 + x)`, exact near 0."""

    scalar = scalar.Log1p

    def derivative(self, emit: Builder, x: Value, y: Value) -> Value:
        return reciprocal(emit, plus(emit, x, 1))


@op("array.sin")
class Sin(Smooth):
    """The sine of x in radians."""

    scalar = scalar.Sin

    def derivative(self, emit: Builder, x: Value, y: Value) -> Value:
        return emit(Cos(x))


@op("array.cos")
class Cos(Smooth):
    """The cosine of x in radians."""

    scalar = scalar.Cos

    def derivative(self, emit: Builder, x: Value, y: Value) -> Value:
        return emit(Negate(emit(Sin(x))))


@op("array.tan")
class Tan(Smooth):
    """The tangent of x in radians."""

    scalar = scalar.Tan

    def derivative(self, emit: Builder, x: Value, y: Value) -> Value:
        return plus(emit, square(emit, y), 1)


@op("array.asin")
class Asin(Smooth):
    """The angle in [-pi/2, pi/2] whose sine is x."""

    scalar = scalar.Asin

    def derivative(self, emit: Builder, x: Value, y: Value) -> Value:
        return emit(Rsqrt(_one_minus_square(emit, x)))


@op("array.acos")
class Acos(Smooth):
    """The angle in [0, pi] whose cosine is x."""

    scalar = scalar.Acos

    def derivative(self, emit: Builder, x: Value, y: Value) -> Value:
        return emit(Negate(emit(Rsqrt(_one_minus_square(emit, x)))))


@op("array.atan")
class Atan(Smooth):
    """The angle in [-pi/2, pi/2] whose tangent is x."""

    scalar = scalar.Atan

    def derivative(self, emit: Builder, x: Value, y: Value) -> Value:
        return reciprocal(emit, plus(emit, square(emit, x), 1))


@op("array.sinh")
class Sinh(Smooth):
    """`(e**x - e**-x) / 2`."""

    scalar = scalar.Sinh

    def derivative(self, emit: Builder, x: Value, y: Value) -> Value:
        return emit(Cosh(x))


@op("array.cosh")
class Cosh(Smooth):
    """`(e**x + e**-x) / 2`."""

    scalar = scalar.Cosh

    def derivative(self, emit: Builder, x: Value, y: Value) -> Value:
        return emit(Sinh(x))


@op("array.tanh")
class Tanh(Smooth):
    """The hyperbolic tangent."""

    scalar = scalar.Tanh

    def derivative(self, emit: Builder, x: Value, y: Value) -> Value:
        return _one_minus_square(emit, y)


@op("array.asinh")
class Asinh(Smooth):
    """The inverse of sinh."""

    scalar = scalar.Asinh

    def derivative(self, emit: Builder, x: Value, y: Value) -> Value:
        return emit(Rsqrt(plus(emit, square(emit, x), 1)))


@op("array.acosh")
class Acosh(Smooth):
    """The inverse of cosh for x >= 1."""

    scalar = scalar.Acosh

    def derivative(self, emit: Builder, x: Value, y: Value) -> Value:
        return emit(Rsqrt(plus(emit, square(emit, x), -1)))


@op("array.atanh")
class Atanh(Smooth):
    """The inverse of tanh for |x| < 1."""

    scalar = scalar.Atanh

    def derivative(self, emit: Builder, x: Value, y: Value) -> Value:
        return reciprocal(emit, _one_minus_square(emit, x))


@op("array.erf")
class Erf(Smooth):
    """The error function: `2 / sqrt(pi)` times the integral of `exp(-t*t)` from 0 to x."""

    scalar = scalar.Erf

    def derivative(self, emit: Builder, x: Value, y: Value) -> Value:
        bell = emit(Exp(emit(Negate(square(emit, x)))))
        return times(emit, bell, 2 / math.sqrt(math.pi))


@op("array.sigmoid")
class Sigmoid(Smooth):
    """`1 / (1 + e**-x)`."""

    scalar = scalar.Sigmoid

    def derivative(self, emit: Builder, x: Value, y: Value) -> Value:
        return emit(Multiply(y, emit(Subtract(constant_like(emit, 1, y), y))))


def _one_minus_square(emit: Builder, x: Value) -> Value:
    return emit(Subtract(constant_like(emit, 1, x), square(emit, x)))


@op("array.power")
class Power(Binary):
    """`x ** y`; the derivative by y is taken as 0 where x is 0 or less."""

    scalar = scalar.Power
    approximate = True

    def simplified(self) -> Value | None:
        return self.lhs if is_number(self.rhs, 1) else None

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        (dy,) = cotangents
        x, y = self.lhs, self.rhs
        # y * x**(y-1), but 0 where y is 0: there x**(y-1) may be infinite.
        zero = constant_like(emit, 0, x)
        down = emit(Multiply(y, emit(Power(x, plus(emit, y, -1)))))
        dx = emit(Select(emit(Compare(y, zero, "eq")), zero, down))
        positive = emit(Compare(x, zero, "gt"))
        safe = emit(Select(positive, x, constant_like(emit, 1, x)))
        slope = emit(Multiply(self.result, emit(Log(safe))))
        return (
            emit(Multiply(dy, dx)),
            emit(Multiply(dy, emit(Select(positive, slope, zero)))),
        )


@op("array.atan2")
class Atan2(Binary):
    """The angle of the point (rhs, lhs), in (-pi, pi]."""

    scalar = scalar.Atan2
    approximate = True

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        y, x = self.lhs, self.rhs
        scale = emit(Divide(cotangents[0], emit(Add(square(emit, x), square(emit, y)))))
        return emit(Multiply(scale, x)), emit(Negate(emit(Multiply(scale, y))))
