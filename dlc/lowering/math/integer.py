"""Integer operations that the processor leaves undefined for some operands."""

from __future__ import annotations

from dlc.lowering.math.term import Term


def divide(x: Term, y: Term) -> Term:
    """`x / y` toward zero; `x / 0 = 0`, `MIN / -1 = MIN`."""
    zero = y.equals(0)
    if x.dtype.kind == "uint":
        return (x // y.unless(zero, 1)).unless(zero, 0)
    minus_one = y.equals(-1)
    quotient = x // y.unless(zero | minus_one, 1)
    return quotient.unless(minus_one, -x).unless(zero, 0)


def floor_divide(x: Term, y: Term) -> Term:
    """`floor(x / y)`; `x // 0 = 0`, `MIN // -1 = MIN`."""
    quotient = divide(x, y)
    if x.dtype.kind == "uint":
        return quotient
    rest = x - quotient * y
    below = rest.differs(0) & y.differs(0) & ((rest ^ y) < 0)
    return (quotient - 1).where(below, quotient)


def remainder(x: Term, y: Term) -> Term:
    """`x - floor(x / y) * y`; `x % 0 = x`."""
    return x - floor_divide(x, y) * y


def truncated_remainder(x: Term, y: Term) -> Term:
    """`x - trunc(x / y) * y`; `x rem 0 = x`."""
    return x - divide(x, y) * y


def power(x: Term, y: Term) -> Term:
    """`x ** y` modulo the width; a negative exponent gives `1 / x**-y` toward zero.

    The base is squared once for each bit of the exponent, and multiplied in where the bit is set.
    """
    unsigned = x.dtype.kind == "uint"
    bits = x.dtype.bits - (0 if unsigned else 1)
    result, square = x.constant(1), x
    for k in range(bits):
        if k > 0:
            square = square * square
        result = (result * square).where((y >> k & 1).differs(0), result)
    if unsigned:
        return result
    odd = (y & 1).differs(0)
    inverse = x.where(x.equals(1) | (x.equals(-1) & odd), 0).unless(x.equals(-1) & ~odd, 1)
    return result.unless(y < 0, inverse)


def shift_left(x: Term, y: Term) -> Term:
    """`x << y`; 0 where y is negative or at least the width."""
    inside = _inside(y)
    return (x << y.where(inside, 0)).where(inside, 0)


def shift_right(x: Term, y: Term) -> Term:
    """`x >> y`; nothing but sign bits where y is negative or at least the width."""
    inside = _inside(y)
    if x.dtype.kind != "uint":
        return x >> y.where(inside, x.dtype.bits - 1)
    return (x >> y.where(inside, 0)).where(inside, 0)


def _inside(y: Term) -> Term:
    """Whether it is a number of bits by which the processor can shift."""
    below = y < y.dtype.bits
    return below if y.dtype.kind == "uint" else below & (y >= 0)
