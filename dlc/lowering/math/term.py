"""Writing arithmetic as formulas: a term is a value together with the builder that computes with it.

`x * x + 1` places a `scalar.multiply` and a `scalar.add`. A number in a formula becomes a constant of
the term's own type, so one formula serves scalars and registers, and one algorithm f32 and f64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from dlc.dialects import scalar
from dlc.dialects.scalar import element
from dlc.ir.builder import Builder
from dlc.ir.core import Op, Value
from dlc.ir.types import F32, F64, I32, I64, U32, U64, DType

Number: TypeAlias = "Term | float"


@dataclass(frozen=True, slots=True)
class Format:
    """How the bits of a float are divided, and numbers that follow from it."""

    dtype: DType
    signed: DType
    unsigned: DType
    fraction_bits: int
    bias: int

    @property
    def one(self) -> int:
        """The bits of 1.0."""
        return self.bias << self.fraction_bits

    @property
    def sign(self) -> int:
        """The bit of the sign."""
        return 1 << (self.dtype.bits - 1)

    @property
    def fraction(self) -> int:
        """The bits of the fraction."""
        return (1 << self.fraction_bits) - 1

    @property
    def magic(self) -> float:
        """Added to a number below `2 ** (fraction_bits - 1)`, it leaves no room for a fraction.

        The sum has the nearest integer in its low bits, in two's complement.
        """
        return 1.5 * 2.0**self.fraction_bits

    @property
    def smallest_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    def round(self, value: float) -> float:
        """The nearest number of the format."""
        return float(np.asarray(value, self.dtype.numpy))

    def bits(self, value: float) -> int:
        """The bits of a number."""
        kind = np.uint32 if self.dtype is F32 else np.uint64
        return int(np.asarray(value, self.dtype.numpy).view(kind))


SINGLE = Format(F32, I32, U32, 23, 127)
DOUBLE = Format(F64, I64, U64, 52, 1023)
FORMATS = {F32: SINGLE, F64: DOUBLE}


class Term:
    """A value in a formula. Terms of one formula have one type, but for conditions.

    `fused` says whether the processor multiplies and adds with one rounding.
    """

    __slots__ = ("emit", "fused", "value")

    def __init__(self, emit: Builder, value: Value, fused: bool) -> None:
        self.emit = emit
        self.value = value
        self.fused = fused

    @property
    def dtype(self) -> DType:
        return element(self.value.type)

    @property
    def format(self) -> Format:
        """Of a float."""
        return FORMATS[self.dtype]

    def _place(self, op: Op) -> Term:
        return Term(self.emit, self.emit(op), self.fused)

    def constant(self, value: float) -> Term:
        """A number of this term's type."""
        return self._place(scalar.Constant(_exact(value, self.dtype), self.value.type))

    def _term(self, other: Number) -> Term:
        return other if isinstance(other, Term) else self.constant(other)

    def _binary(self, cls: type[scalar.Binary], other: Number) -> Term:
        return self._place(cls(self.value, self._term(other).value))

    def _swapped(self, cls: type[scalar.Binary], other: float) -> Term:
        return self._place(cls(self.constant(other).value, self.value))

    # Arithmetic.

    def __add__(self, other: Number) -> Term:
        return self._binary(scalar.Add, other)

    def __sub__(self, other: Number) -> Term:
        return self._binary(scalar.Subtract, other)

    def __rsub__(self, other: float) -> Term:
        return self._swapped(scalar.Subtract, other)

    def __mul__(self, other: Number) -> Term:
        return self._binary(scalar.Multiply, other)

    def __truediv__(self, other: Number) -> Term:
        return self._binary(scalar.Divide, other)

    def __rtruediv__(self, other: float) -> Term:
        return self._swapped(scalar.Divide, other)

    def __neg__(self) -> Term:
        return self._place(scalar.Negate(self.value))

    def __abs__(self) -> Term:
        return self._place(scalar.Abs(self.value))

    def times_plus(self, factor: Number, addend: Number) -> Term:
        """`self * factor + addend`, rounded once or twice as suits the processor."""
        if not self.fused:
            return self * factor + addend
        return self._place(
            scalar.Fma(self.value, self._term(factor).value, self._term(addend).value)
        )

    def polynomial(self, coefficients: Sequence[float]) -> Term:
        """`c[0] + c[1] * self + c[2] * self ** 2 + ...`, by Horner's rule."""
        *rest, last = coefficients
        result = self.constant(last)
        for coefficient in reversed(rest):
            result = result.times_plus(self, coefficient)
        return result

    def sqrt(self) -> Term:
        return self._place(scalar.Sqrt(self.value))

    def floor(self) -> Term:
        return self._place(scalar.Floor(self.value))

    def trunc(self) -> Term:
        return self._place(scalar.Trunc(self.value))

    def round(self) -> Term:
        """To the nearest integer, ties to even."""
        return self._place(scalar.Round(self.value))

    # Bits.

    def bits(self) -> Term:
        """The bits of a float as an unsigned integer."""
        return self._place(scalar.Bitcast(self.value, self.format.unsigned))

    def float(self) -> Term:
        """The float that has these 32 or 64 bits."""
        return self._place(scalar.Bitcast(self.value, F32 if self.dtype.bits == 32 else F64))

    def bitcast(self, dtype: DType) -> Term:
        return self._place(scalar.Bitcast(self.value, dtype))

    def cast(self, dtype: DType) -> Term:
        """The value in another dtype."""
        return self._place(scalar.Cast(self.value, dtype))

    def __and__(self, other: Number) -> Term:
        return self._binary(scalar.And, other)

    def __or__(self, other: Number) -> Term:
        return self._binary(scalar.Or, other)

    def __xor__(self, other: Number) -> Term:
        return self._binary(scalar.Xor, other)

    def __invert__(self) -> Term:
        return self._place(scalar.Not(self.value))

    def __lshift__(self, count: Number) -> Term:
        return self._binary(scalar.RawShiftLeft, count)

    def __rshift__(self, count: Number) -> Term:
        return self._binary(scalar.RawShiftRight, count)

    def divide_raw(self, other: Number) -> Term:
        """The quotient of integers toward zero; the divisor is not 0, and it is not `MIN / -1`."""
        return self._binary(scalar.RawDivide, other)

    def sign_bit(self) -> Term:
        """The bits of a float with all but the sign cleared."""
        return self.bits() & self.format.sign

    def with_sign_of(self, other: Term) -> Term:
        """This float, which has no sign itself, with the sign of another."""
        return (self.bits() | other.sign_bit()).float()

    # Conditions.

    def _compare(self, other: Number, predicate: str) -> Term:
        return self._place(scalar.Compare(self.value, self._term(other).value, predicate))

    def __lt__(self, other: Number) -> Term:
        return self._compare(other, "lt")

    def __le__(self, other: Number) -> Term:
        return self._compare(other, "le")

    def __gt__(self, other: Number) -> Term:
        return self._compare(other, "gt")

    def __ge__(self, other: Number) -> Term:
        return self._compare(other, "ge")

    def equals(self, other: Number) -> Term:
        return self._compare(other, "eq")

    def differs(self, other: Number) -> Term:
        return self._compare(other, "ne")

    def is_nan(self) -> Term:
        return self.differs(self)

    def where(self, condition: Term, other: Number) -> Term:
        """This where the condition holds, else the other."""
        no = self._term(other)
        return self._place(scalar.Select(condition.value, self.value, no.value))

    def unless(self, condition: Term, other: Number) -> Term:
        """The other where the condition holds, else this."""
        yes = self._term(other)
        return self._place(scalar.Select(condition.value, yes.value, self.value))

    def at_least(self, bound: float) -> Term:
        """This or the bound, whichever is larger; NaN stays."""
        return self.unless(self < bound, bound)

    def at_most(self, bound: float) -> Term:
        """This or the bound, whichever is smaller; NaN stays."""
        return self.unless(self > bound, bound)


def _exact(value: float, dtype: DType) -> float | int | bool:
    """The number as the dtype holds it, so that the text of the program says what is computed with."""
    if not dtype.is_float:
        return value
    return float(np.asarray(value, dtype.numpy))
