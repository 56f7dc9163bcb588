"""Terms of formulas for functions such as `exp`: expressions that know the bits of floats and `fma`.

A number in a formula becomes a constant of the term's own type, so one algorithm serves f32 and f64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from dlc.dialects import scalar
from dlc.dialects.expr import Expr, Number
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Dim
from dlc.ir.types import F32, F64, I32, I64, U32, U64, DType


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


class Term(Expr):
    """A value in a formula whose rounding is proved.

    `fused` says whether the processor multiplies and adds with one rounding.
    """

    __slots__ = ("fused",)

    def __init__(self, emit: Builder, value: Value, fused: bool) -> None:
        super().__init__(emit, value)
        self.fused = fused

    def _like(self, value: Value) -> Self:
        return type(self)(self.emit, value, self.fused)

    def constant(self, number: float | Dim) -> Self:
        """A number of this term's type, as it is held: the text says what is computed with."""
        if self.dtype.is_float and not isinstance(number, Dim):
            number = float(np.asarray(number, self.dtype.numpy))
        return super().constant(number)

    @property
    def format(self) -> Format:
        """Of a float."""
        return FORMATS[self.dtype]

    def times_plus(self, factor: Number, addend: Number) -> Term:
        """`self * factor + addend`, rounded once or twice as suits the processor."""
        if not self.fused:
            return self * factor + addend
        return self.apply(scalar.Fma(self.value, self.operand(factor), self.operand(addend)))

    def polynomial(self, coefficients: Sequence[float]) -> Term:
        """`c[0] + c[1] * self + c[2] * self ** 2 + ...`, by Horner's rule."""
        *rest, last = coefficients
        result = self.constant(last)
        for coefficient in reversed(rest):
            result = result.times_plus(self, coefficient)
        return result

    def polynomial_by_second_order(self, coefficients: Sequence[float]) -> Term:
        """The same by Horner's rule of second order, for all but the first two coefficients.

        The even and the odd powers are summed apart (W. S. Dorn, "Generalizations of Horner's rule for
        polynomial evaluation", IBM Journal of Research and Development 6, 1962).
        Each step of Horner's rule waits for the one before, some four cycles, and two chains run beside
        each other. The first coefficients, most of the value, are added last: their sum is rounded once.
        """
        first, second, *higher = coefficients
        square = self * self
        even, odd = square.polynomial(higher[::2]), square.polynomial(higher[1::2])
        return odd.times_plus(self, even).times_plus(self, second).times_plus(self, first)

    def floor(self) -> Term:
        return self.apply(scalar.Floor(self.value))

    def trunc(self) -> Term:
        return self.apply(scalar.Trunc(self.value))

    def round(self) -> Term:
        """To the nearest integer, ties to even."""
        return self.apply(scalar.Round(self.value))

    # Bits.

    def bits(self) -> Term:
        """The bits of a float as an unsigned integer."""
        return self.apply(scalar.Bitcast(self.value, self.format.unsigned))

    def float(self) -> Term:
        """The float that has these 32 or 64 bits."""
        return self.apply(scalar.Bitcast(self.value, F32 if self.dtype.bits == 32 else F64))

    def bitcast(self, dtype: DType) -> Term:
        return self.apply(scalar.Bitcast(self.value, dtype))

    def sign_bit(self) -> Term:
        """The bits of a float with all but the sign cleared."""
        return self.bits() & self.format.sign

    def with_sign_of(self, other: Term) -> Term:
        """This float, which has no sign itself, with the sign of another."""
        return (self.bits() | other.sign_bit()).float()

    # Conditions.

    def is_nan(self) -> Term:
        return self.differs(self)

    def where(self, condition: Term, other: Number) -> Term:
        """This where the condition holds, else the other."""
        return self.apply(scalar.Select(condition.value, self.value, self.operand(other)))

    def unless(self, condition: Term, other: Number) -> Term:
        """The other where the condition holds, else this."""
        return self.apply(scalar.Select(condition.value, self.operand(other), self.value))

    def at_least(self, bound: float) -> Term:
        """This or the bound, whichever is larger; NaN stays."""
        return self.unless(self < bound, bound)

    def at_most(self, bound: float) -> Term:
        """This or the bound, whichever is smaller; NaN stays."""
        return self.unless(self > bound, bound)
