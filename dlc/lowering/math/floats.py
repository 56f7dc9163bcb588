"""Conversions to and from the narrow floats.

f16 and bf16 are reached through f32, where f64 is first rounded to f32 *to odd*: to the neighbour with an
odd last bit if it is not exact, which the second rounding then treats as the number itself.
"""

from __future__ import annotations

from dlc.ir.types import BF16, F16, F32, F64, U16, U32, DType
from dlc.lowering.math.term import SINGLE, Term


def convert(x: Term, dtype: DType, *, half: bool, brain: bool) -> Term:
    """The value in another dtype.

    The processor converts between f16 and f32 with `half`, and rounds f32 to bf16 with `brain`.
    """
    source = x.dtype
    if source is dtype:
        return x
    if source in (F16, BF16):
        single = _from_narrow(x, half)
        return single if dtype is F32 else convert(single, dtype, half=half, brain=brain)
    if dtype in (F16, BF16):
        single = _single(x)
        if half if dtype is F16 else brain:
            return single.cast(dtype)
        return _to_half(single) if dtype is F16 else _to_brain(single)
    return x.cast(dtype)


def _single(x: Term) -> Term:
    """In f32, so that another rounding to fewer digits gives what it gives for x itself."""
    if x.dtype is F32:
        return x
    return _round_to_odd(x) if x.dtype is F64 else x.cast(F32)


def _round_to_odd(x: Term) -> Term:
    single = x.cast(F32)
    back = single.cast(F64)
    bits = single.bits()
    toward_zero = (bits - 1).where(abs(back) > abs(x), bits)
    return (toward_zero | 1).where(back.differs(x), bits).float()


def _from_narrow(x: Term, half: bool) -> Term:
    if x.dtype is BF16:
        return (x.bitcast(U16).cast(U32) << 16).float()
    return x.cast(F32) if half else _from_half(x.bitcast(U16).cast(U32))


def _to_brain(x: Term) -> Term:
    """The upper half of the bits, rounded to nearest even."""
    bits = x.bits()
    upper = bits >> 16
    rounded = (bits + 0x7FFF + (upper & 1)) >> 16
    return (upper | 0x40).where(x.is_nan(), rounded).cast(U16).bitcast(BF16)


# f16 has 10 bits of fraction to the 23 of f32, and a bias of 15 to its 127.

REBIAS = (127 - 15) << 23
SMALLEST = 2.0**-14
HALF_BITS = SINGLE.bits(0.5)
OVERFLOW = 65520.0
"""From here on f32 rounds to an infinity in f16."""


def _from_half(bits: Term) -> Term:
    """The f32 number from the bits of the f16 one, by integer arithmetic."""
    size = (bits & 0x7FFF) << 13
    exponent = bits & 0x7C00
    normal = size + REBIAS
    # A denormal number's fraction counts as if its exponent were one more, without the leading 1.
    denormal = ((normal + (1 << 23)).float() - SMALLEST).bits()
    size = normal.unless(exponent.equals(0), denormal).unless(
        exponent.equals(0x7C00), normal + REBIAS
    )
    return (size | (bits & 0x8000) << 16).float()


def _to_half(x: Term) -> Term:
    """The f16 number, rounded to nearest even, by integer arithmetic."""
    bits = x.bits()
    size = bits & 0x7FFFFFFF
    number = size.float()
    normal = (size - REBIAS + 0xFFF + (size >> 13 & 1)) >> 13
    # Its sum with 1/2 counts multiples of 2**-24, the smallest number of f16, in its last bits.
    denormal = (number + 0.5).bits() - HALF_BITS
    result = normal.unless(number < SMALLEST, denormal).unless(number >= OVERFLOW, 0x7C00)
    result = result.unless(x.is_nan(), 0x7E00)
    return (result | (bits >> 16 & 0x8000)).cast(U16).bitcast(F16)
