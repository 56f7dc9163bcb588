"""Numbers of twice the precision: pairs of terms whose exact sum is the number.

(T. J. Dekker, "A floating-point technique for extending the available precision", Numerische
Mathematik 18, 1971; D. E. Knuth, "The Art of Computer Programming", volume 2, 4.2.2.)
"""

from __future__ import annotations

from dlc.lowering.math.term import Term


def two_sum(x: Term, y: Term) -> tuple[Term, Term]:
    """`x + y`, and exactly what its rounding leaves out."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def fast_two_sum(x: Term, y: Term) -> tuple[Term, Term]:
    """The same where x is not smaller than y in magnitude, or has no lower exponent."""
    total = x + y
    return total, y - (total - x)


def two_product(x: Term, y: Term) -> tuple[Term, Term]:
    """`x * y`, and exactly what its rounding leaves out, if that is not below the smallest number.

    y must be far from overflow.
    """
    product = x * y
    if x.fused:
        return product, x.times_plus(y, -product)
    # Parts so short that their products are exact. Cutting x needs no room above it, but gives one
    # part of 27 bits and one of 26; rounding y gives two of 26.
    x_high, x_low = _halves(x, 0)
    y_high, y_low = _halves(y, 1)
    rest = ((x_high * y_high - product) + x_high * y_low) + x_low * y_high
    return product, rest + x_low * y_low


def remainder(x: Term, quotient: Term, y: Term) -> Term:
    """`x - quotient * y` without rounding, where the quotient is `x / y` rounded."""
    if x.fused:
        return (-quotient).times_plus(y, x)
    product, rest = two_product(y, quotient)
    return (x - product) - rest


def _halves(x: Term, rounding: int) -> tuple[Term, Term]:
    """The upper bits of an f32 or f64 and the lower ones, about half each."""
    lower = (x.format.fraction_bits + 2) // 2
    bits = x.bits()
    if rounding:
        bits = bits + (1 << (lower - 1))
    high = ((bits >> lower) << lower).float()
    return high, x - high
