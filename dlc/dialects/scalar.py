"""Arithmetic on one element (or, at loop level, on one register of elements).

The bodies of kernels are made of these. f16 and bf16 have no arithmetic here: a body converts to f32,
computes and converts back, so the rounding is visible. Each row below is one operation: its name, the
kinds of element it takes, and its meaning in NumPy.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dlc.dialects import numeric
from dlc.dialects.fused import fma
from dlc.dialects.numeric import Function, quiet
from dlc.ir.core import Array, Evaluation, Op, Value
from dlc.ir.define import attribute, op, operand
from dlc.ir.types import BF16, BOOL, F16, DType, Type, VectorType

FLOAT = frozenset({"float"})
INTEGER = frozenset({"int", "uint", "index"})
NUMBER = FLOAT | INTEGER
BITS = INTEGER | {"bool"}
ANY = NUMBER | {"bool"}


def element(type: Type) -> DType:
    """The element type of a scalar or a register."""
    match type:
        case DType():
            return type
        case VectorType(dtype):
            return dtype
        case _:
            raise AssertionError(f"{type} is neither a scalar nor a register")


def like(type: Type, dtype: DType) -> Type:
    """A scalar or register as wide as `type` with another element type."""
    return VectorType(dtype, type.lanes) if isinstance(type, VectorType) else dtype


class Elementary(Op):
    """A function of one or two values of one type that gives a value of that type."""

    kinds: ClassVar[frozenset[str]] = ANY
    function: ClassVar[Function]

    def infer(self) -> Type:
        first = self.operands[0].type
        dtype = element(first)
        if dtype.kind not in self.kinds or dtype in (F16, BF16):
            raise self.fail(f"{self.name} does not take {first}")
        for other in self.operands[1:]:
            if other.type is not first:
                raise self.fail(
                    f"{self.name} takes two values of one type, found {first} and {other.type}"
                )
        return first

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return type(self).function(*inputs)


class Unary(Elementary):
    """A function of one value."""

    source: Value = operand()


class Binary(Elementary):
    """A function of two values of one type."""

    lhs: Value = operand()
    rhs: Value = operand()


def unary(name: str, kinds: frozenset[str], function: Function) -> type[Unary]:
    """Declare `scalar.NAME`, a function of one value."""
    made = type(
        name.title().replace("_", ""),
        (Unary,),
        {
            "kinds": kinds,
            "function": staticmethod(quiet(function)),
            "__module__": __name__,
            "__slots__": (),
        },
    )
    return op(f"scalar.{name}")(made)


def binary(
    name: str, kinds: frozenset[str], function: Function, *, commutative: bool = False
) -> type[Binary]:
    """Declare `scalar.NAME`, a function of two values."""
    made = type(
        name.title().replace("_", ""),
        (Binary,),
        {
            "kinds": kinds,
            "function": staticmethod(quiet(function)),
            "commutative": commutative,
            "__module__": __name__,
            "__slots__": (),
        },
    )
    return op(f"scalar.{name}")(made)


Negate = unary("negate", NUMBER, np.negative)
Abs = unary("abs", NUMBER, np.abs)
Sign = unary("sign", NUMBER, numeric.sign)
Not = unary("not", BITS, np.invert)
Floor = unary("floor", FLOAT, np.floor)
Ceil = unary("ceil", FLOAT, np.ceil)
Round = unary("round", FLOAT, np.rint)
Trunc = unary("trunc", FLOAT, np.trunc)
Sqrt = unary("sqrt", FLOAT, np.sqrt)
Rsqrt = unary("rsqrt", FLOAT, numeric.rsqrt)
Exp = unary("exp", FLOAT, np.exp)
Expm1 = unary("expm1", FLOAT, np.expm1)
Log = unary("log", FLOAT, np.log)
Log1p = unary("log1p", FLOAT, np.log1p)
Sin = unary("sin", FLOAT, np.sin)
Cos = unary("cos", FLOAT, np.cos)
Tan = unary("tan", FLOAT, np.tan)
Asin = unary("asin", FLOAT, np.arcsin)
Acos = unary("acos", FLOAT, np.arccos)
Atan = unary("atan", FLOAT, np.arctan)
Sinh = unary("sinh", FLOAT, np.sinh)
Cosh = unary("cosh", FLOAT, np.cosh)
Tanh = unary("tanh", FLOAT, np.tanh)
Asinh = unary("asinh", FLOAT, np.arcsinh)
Acosh = unary("acosh", FLOAT, np.arccosh)
Atanh = unary("atanh", FLOAT, np.arctanh)
Erf = unary("erf", FLOAT, numeric.erf)
Sigmoid = unary("sigmoid", FLOAT, numeric.sigmoid)

Add = binary("add", NUMBER, np.add, commutative=True)
Subtract = binary("subtract", NUMBER, np.subtract)
Multiply = binary("multiply", NUMBER, np.multiply, commutative=True)
Divide = binary("divide", NUMBER, numeric.divide)
FloorDivide = binary("floor_divide", NUMBER, numeric.floor_divide)
Remainder = binary("remainder", NUMBER, numeric.remainder)
TruncatedRemainder = binary("truncated_remainder", NUMBER, numeric.truncated_remainder)
Power = binary("power", NUMBER, numeric.power)
Atan2 = binary("atan2", FLOAT, np.arctan2)
Maximum = binary("maximum", ANY, np.maximum, commutative=True)
Minimum = binary("minimum", ANY, np.minimum, commutative=True)
And = binary("and", BITS, np.bitwise_and, commutative=True)
Or = binary("or", BITS, np.bitwise_or, commutative=True)
Xor = binary("xor", BITS, np.bitwise_xor, commutative=True)
ShiftLeft = binary("shift_left", INTEGER, numeric.shift_left)
ShiftRight = binary("shift_right", INTEGER, numeric.shift_right)

COMBINERS: dict[str, type[Binary]] = {
    "add": Add,
    "multiply": Multiply,
    "maximum": Maximum,
    "minimum": Minimum,
    "and": And,
    "or": Or,
}
"""What a fold or a register may be combined by."""

# One instruction each, only for operands that the processor defines: the evaluator refuses others.
RawDivide = binary("raw_divide", INTEGER, numeric.raw_divide)
RawShiftLeft = binary("raw_shift_left", INTEGER, numeric.raw_shift_left)
RawShiftRight = binary("raw_shift_right", INTEGER, numeric.raw_shift_right)


@op("scalar.constant")
class Constant(Op):
    """A number of the given type; every lane of a register gets it."""

    value: bool | int | float = attribute()
    type: Type = attribute()

    def infer(self) -> Type:
        return self.type

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        dtype = element(self.type)
        shape = (self.type.lanes,) if isinstance(self.type, VectorType) else ()
        if dtype is BF16:
            return numeric.encode(np.full(shape, self.value), dtype)
        return np.full(shape, self.value, dtype.numpy)


@op("scalar.fma")
class Fma(Op):
    """`x * y + z` with one rounding."""

    x: Value = operand()
    y: Value = operand()
    z: Value = operand()

    def infer(self) -> Type:
        if element(self.x.type).kind != "float" or len({v.type for v in self.operands}) != 1:
            raise self.fail(
                f"scalar.fma takes three floats of one type, found {[v.type for v in self.operands]}"
            )
        return self.x.type

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return fma(*inputs)


@op("scalar.compare")
class Compare(Op):
    """`lhs PREDICATE rhs` as a bool; the predicates are eq, ne, lt, le, gt, ge."""

    lhs: Value = operand()
    rhs: Value = operand()
    predicate: str = attribute()

    def infer(self) -> Type:
        if self.predicate not in numeric.COMPARISONS:
            raise self.fail(f"{self.predicate!r} is not a predicate; use eq, ne, lt, le, gt or ge")
        if self.lhs.type is not self.rhs.type:
            raise self.fail(f"scalar.compare of {self.lhs.type} with {self.rhs.type}")
        return like(self.lhs.type, BOOL)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return numeric.compare(self.predicate, *inputs)


@op("scalar.select")
class Select(Op):
    """`yes` where the condition holds, else `no`."""

    condition: Value = operand()
    yes: Value = operand()
    no: Value = operand()

    def infer(self) -> Type:
        if element(self.condition.type) is not BOOL or self.yes.type is not self.no.type:
            raise self.fail(f"scalar.select of {[v.type for v in self.operands]}")
        return self.yes.type

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return np.where(*inputs)


@op("scalar.cast")
class Cast(Op):
    """The value in another dtype, with the rounding of `docs/semantics.md`."""

    source: Value = operand()
    dtype: DType = attribute()

    def infer(self) -> Type:
        return like(self.source.type, self.dtype)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        with np.errstate(all="ignore"):
            return numeric.convert(inputs[0], element(self.source.type), self.dtype)


@op("scalar.bitcast")
class Bitcast(Op):
    """The same bits as another dtype of the same width."""

    source: Value = operand()
    dtype: DType = attribute()

    def infer(self) -> Type:
        if element(self.source.type).bits != self.dtype.bits:
            raise self.fail(f"scalar.bitcast of {self.source.type} to {self.dtype}")
        return like(self.source.type, self.dtype)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return inputs[0].view(self.dtype.numpy)
