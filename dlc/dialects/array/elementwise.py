"""Element-wise operations: each applies one function of `dlc.dialects.scalar` to every element.

An operation here says what it means for derivatives and algebra; its numbers, its lowering and its
dtypes come from the scalar function it names. Kinks: |x| has derivative 0 at 0, and where the operands
of maximum or minimum are equal the first one receives the derivative.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from dlc.dialects import numeric, scalar
from dlc.ir.attributes import Dense
from dlc.ir.builder import Builder
from dlc.ir.core import Op, Value
from dlc.ir.define import attribute, op, operand
from dlc.ir.evaluation import Array, Evaluation
from dlc.ir.types import BOOL, DType, TensorType

__all__ = [
    "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atan2", "Atanh", "Bitcast",
    "Cast", "Ceil", "Compare", "Constant", "Cos", "Cosh", "Divide", "Elementwise", "Erf", "Exp",
    "Expm1", "Fill", "Floor", "FloorDivide", "Log", "Log1p", "Maximum", "Minimum", "Multiply",
    "Negate", "Not", "Or", "Power", "Remainder", "Round", "Rsqrt", "Select", "ShiftLeft",
    "ShiftRight", "Sigmoid", "Sign", "Sin", "Sinh", "Sqrt", "Subtract", "Tan", "Tanh", "Trunc",
    "TruncatedRemainder", "Xor", "constant_like", "fill", "tensor_type",
]  # fmt: skip


def tensor_type(value: Value) -> TensorType:
    """The tensor type of a graph-level value."""
    type = value.type
    assert isinstance(type, TensorType), type
    return type


@op("array.constant")
class Constant(Op):
    """A tensor of known elements."""

    value: Dense = attribute()

    def infer(self) -> TensorType:
        return self.value.type

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return self.value.array


@op("array.fill")
class Fill(Op):
    """A tensor of the given type with one number in every place; the type may be symbolic."""

    value: bool | int | float = attribute()
    type: TensorType = attribute()

    def infer(self) -> TensorType:
        return self.type

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        dtype = self.type.dtype
        element = np.asarray(self.value, np.float64 if dtype.is_float else dtype.numpy)
        return np.full(at.shape(self.type.shape), numeric.encode(element, dtype), dtype.numpy)


def fill(emit: Builder, value: float, type: TensorType) -> Value:
    """A tensor of `type` with `value` everywhere, placed by `emit`."""
    return emit(Fill(type_value(value, type.dtype), type))


def type_value(value: float, dtype: DType) -> bool | int | float:
    """A number as the attribute of a tensor of that dtype."""
    if dtype is BOOL:
        return bool(value)
    return float(value) if dtype.is_float else int(value)


def constant_like(emit: Builder, value: float, like: Value) -> Value:
    """A tensor of the type of `like` with `value` everywhere."""
    return fill(emit, value, tensor_type(like))


class Elementwise(Op):
    """The function `scalar` applied to every element; all operands and the result have one type."""

    scalar: ClassVar[type[Op]]

    def infer(self) -> TensorType:
        first = self.operands[0].type
        if not isinstance(first, TensorType):
            raise self.fail(f"{self.name} takes tensors, found {first}")
        for other in self.operands[1:]:
            if other.type is not first:
                raise self.fail(
                    f"{self.name} takes tensors of one type, found {first.text} and {show(other)}",
                    help="convert or broadcast one of them",
                )
        kinds = getattr(self.scalar, "kinds", scalar.ANY)
        if first.dtype.kind not in kinds:
            raise self.fail(f"{self.name} has no meaning for {first.dtype.name}", code="D0302")
        return first

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        function = getattr(self.scalar, "function")  # noqa: B009
        return numeric.in_single(function, tensor_type(self.operands[0]).dtype, *inputs)


def show(value: Value) -> str:
    """The type of a value as the user writes it."""
    return value.type.text if isinstance(value.type, TensorType) else str(value.type)


class Unary(Elementwise):
    """A function of one tensor."""

    source: Value = operand()


class Binary(Elementwise):
    """A function of two tensors of one type."""

    lhs: Value = operand()
    rhs: Value = operand()


@op("array.negate")
class Negate(Unary):
    """`-x`."""

    scalar = scalar.Negate

    def fold(self) -> Value | None:
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

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        return (emit(Multiply(cotangents[0], emit(Sign(self.source)))),)


class Flat(Unary):
    """A function whose derivative is 0 wherever it has one."""

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
    """The complement: logical for bool, of each bit for integers."""

    scalar = scalar.Not
    not_differentiable = "its operand is a bool or an integer"


class Smooth(Unary):
    """A function with a derivative that is a formula of x and of the result y."""

    def derivative(self, emit: Builder, x: Value, y: Value) -> Value:
        """dy/dx at each element."""
        raise NotImplementedError

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        slope = self.derivative(emit, self.source, self.result)
        return (emit(Multiply(cotangents[0], slope)),)


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


@op("array.sqrt")
class Sqrt(Smooth):
    """The square root; NaN for negative x."""

    scalar = scalar.Sqrt

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


@op("array.add")
class Add(Binary):
    """`x + y`; integers wrap."""

    scalar = scalar.Add
    commutative = True

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        return cotangents[0], cotangents[0]


@op("array.subtract")
class Subtract(Binary):
    """`x - y`; integers wrap."""

    scalar = scalar.Subtract

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        return cotangents[0], emit(Negate(cotangents[0]))


@op("array.multiply")
class Multiply(Binary):
    """`x * y`; integers wrap."""

    scalar = scalar.Multiply
    commutative = True

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        (dy,) = cotangents
        return emit(Multiply(dy, self.rhs)), emit(Multiply(dy, self.lhs))


@op("array.divide")
class Divide(Binary):
    """`x / y`: IEEE division for floats; toward zero for integers, where `x / 0` is 0."""

    scalar = scalar.Divide

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


@op("array.power")
class Power(Binary):
    """`x ** y`; the derivative by y is taken as 0 where x is 0 or less."""

    scalar = scalar.Power

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

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        y, x = self.lhs, self.rhs
        scale = emit(Divide(cotangents[0], emit(Add(square(emit, x), square(emit, y)))))
        return emit(Multiply(scale, x)), emit(Negate(emit(Multiply(scale, y))))


class Choice(Binary):
    """Maximum or minimum: the derivative goes to the operand chosen, to the first if they are equal."""

    predicate: ClassVar[str]

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
    """Logical for bool, of each bit for integers."""

    scalar = scalar.And
    commutative = True


@op("array.or")
class Or(Bitwise):
    """Logical for bool, of each bit for integers."""

    scalar = scalar.Or
    commutative = True


@op("array.xor")
class Xor(Bitwise):
    """Exclusive or: logical for bool, of each bit for integers."""

    scalar = scalar.Xor
    commutative = True


@op("array.shift_left")
class ShiftLeft(Bitwise):
    """`x << y`; 0 where y is outside the width."""

    scalar = scalar.ShiftLeft


@op("array.shift_right")
class ShiftRight(Bitwise):
    """`x >> y`, filled with the sign for signed integers."""

    scalar = scalar.ShiftRight


@op("array.compare")
class Compare(Op):
    """`lhs PREDICATE rhs` at each element, with eq, ne, lt, le, gt or ge; NaN compares false but for ne."""

    lhs: Value = operand()
    rhs: Value = operand()
    predicate: str = attribute()

    not_differentiable = "its result is a bool"

    def infer(self) -> TensorType:
        if self.predicate not in numeric.COMPARISONS:
            raise self.fail(f"{self.predicate!r} is no predicate; use eq, ne, lt, le, gt or ge")
        type = self.lhs.type
        if type is not self.rhs.type or not isinstance(type, TensorType):
            raise self.fail(f"cannot compare {show(self.lhs)} with {show(self.rhs)}")
        return type.with_dtype(BOOL)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        dtype = tensor_type(self.lhs).dtype
        wide = [numeric.decode(array, dtype) for array in inputs]
        return numeric.compare(self.predicate, *wide)


@op("array.select")
class Select(Op):
    """`yes` where the condition holds, else `no`."""

    condition: Value = operand()
    yes: Value = operand()
    no: Value = operand()

    def infer(self) -> TensorType:
        condition, type = self.condition.type, self.yes.type
        if not isinstance(type, TensorType) or type is not self.no.type:
            raise self.fail(f"the two choices are {show(self.yes)} and {show(self.no)}")
        if condition is not type.with_dtype(BOOL):
            raise self.fail(f"the condition is {show(self.condition)} for choices of {type.text}")
        return type

    def fold(self) -> Value | None:
        return self.yes if self.yes is self.no else None

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return np.where(*inputs)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        (dy,) = cotangents
        zero = constant_like(emit, 0, dy)
        yes = emit(Select(self.condition, dy, zero))
        return None, yes, emit(Select(self.condition, zero, dy))


@op("array.cast")
class Cast(Op):
    """The elements in another dtype; floats to integers saturate and take NaN to 0."""

    source: Value = operand()
    dtype: DType = attribute()

    def infer(self) -> TensorType:
        return tensor_type(self.source).with_dtype(self.dtype)

    def fold(self) -> Value | None:
        return self.source if tensor_type(self.source).dtype is self.dtype else None

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        with np.errstate(all="ignore"):
            return numeric.convert(inputs[0], tensor_type(self.source).dtype, self.dtype)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        source = tensor_type(self.source).dtype
        if not (source.is_float and self.dtype.is_float):
            return (None,)
        return (emit(Cast(cotangents[0], source)),)


@op("array.bitcast")
class Bitcast(Op):
    """The same bits as another dtype of the same width."""

    source: Value = operand()
    dtype: DType = attribute()

    not_differentiable = "it reinterprets bits"

    def infer(self) -> TensorType:
        type = tensor_type(self.source)
        if type.dtype.bits != self.dtype.bits:
            raise self.fail(
                f"{type.text} has {type.dtype.bits} bits, {self.dtype.name} another width"
            )
        return type.with_dtype(self.dtype)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return inputs[0].view(self.dtype.numpy)
