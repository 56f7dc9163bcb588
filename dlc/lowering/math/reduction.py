"""Angles modulo pi, for any size of angle.

`x / pi` is needed modulo 2, with enough bits after the point even where it is almost an integer: for
f64 numbers that is some 60 zeros or nines first. As x is a multiple of its last bit, the bits of 1 / pi
whose products with it are even integers can be left out, and only a window of the others matters
(M. Payne and R. Hanek, "Radian reduction for trigonometric functions", SIGNUM Newsletter 18, 1983).
The window is chosen by the size of x. It comes in pieces; their products with x are taken exactly and
their integers removed before they are summed up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dlc.ir.types import F32, F64
from dlc.lowering.math.coefficients import INVERSE_PI, INVERSE_PI_BITS
from dlc.lowering.math.pairs import fast_two_sum, two_product, two_sum
from dlc.lowering.math.term import DOUBLE, Term

MAGIC = DOUBLE.magic


@dataclass(frozen=True, slots=True)
class Angle:
    """`x = (n + shift + part) * pi` with an integer n, and `part` at most half.

    `part` is `high + low`, in f64. The last bit of `parity` is that of n.
    """

    high: Term
    low: Term | None
    parity: Term

    @property
    def sign_flip(self) -> Term:
        """The sign bit where n is odd, else 0."""
        return self.parity << 63


def reduce_angle(x: Term, shifts: Sequence[float]) -> list[Angle]:
    """The angle reduced about multiples of pi (shift 0) or odd multiples of pi / 2 (shift 0.5)."""
    return _reduce_single(x, shifts) if x.dtype is F32 else _reduce_double(x, shifts)


def _bits_of_inverse_pi(first: int, count: int, scale: int = 0) -> float:
    """The bits of 1 / pi from the one worth `2**first` on, times `2**scale`."""
    last = first - count + 1
    bits = (INVERSE_PI >> (INVERSE_PI_BITS + last)) & ((1 << count) - 1)
    return math.ldexp(bits, last + scale)


@dataclass(frozen=True, slots=True)
class Window:
    """Pieces of 1 / pi for numbers from `2**start` on."""

    start: int
    pieces: tuple[float, ...]


def _choose(size: Term, windows: Sequence[Window]) -> list[Term]:
    """The pieces of the window that the size lies in."""
    first, *others = windows
    pieces = [size.constant(piece) for piece in first.pieces]
    for window in others:
        beyond = size >= 2.0**window.start
        pieces = [old.unless(beyond, new) for old, new in zip(pieces, window.pieces, strict=True)]
    return pieces


# f32, computed in f64. Two pieces have 29 bits, so that products with 24 bits are exact; of the last
# one's product no bit is worth more than 2**-7, and its rounding is below what counts.


def _single_window(start: int, first: int) -> Window:
    return Window(
        start,
        (
            _bits_of_inverse_pi(first, 29),
            _bits_of_inverse_pi(first - 29, 29),
            _bits_of_inverse_pi(first - 58, 53),
        ),
    )


SINGLE_WINDOWS = (
    _single_window(-1000, -2),
    *(_single_window(start, 23 - start) for start in (51, 77, 103)),
)


def _reduce_single(x: Term, shifts: Sequence[float]) -> list[Angle]:
    x = x.cast(F64)
    first, second, third = _choose(abs(x), SINGLE_WINDOWS)
    (one, parity), (two, more) = _remove_integer(x * first), _remove_integer(x * second)
    three = x * third
    angles: list[Angle] = []
    for shift in shifts:
        # Where the parts almost cancel, the first two differences are exact: `two` has bits worth
        # more than 2**-26 only if `one` has no bits worth less.
        nearest = (one + two - shift) + MAGIC
        part = ((one - _center(nearest, shift)) + two) + three
        angles.append(Angle(part, None, parity ^ more ^ nearest.bits()))
    return angles


def _remove_integer(product: Term) -> tuple[Term, Term]:
    """What the product is beyond the nearest integer, and bits whose last one is the integer's."""
    shifted = product + MAGIC
    return product - (shifted - MAGIC), shifted.bits()


# f64. Pieces have 53 bits and their products 106, in two terms. Numbers from 2**512 on are scaled
# down, and their pieces up, so that the last pieces are not denormal numbers.

SCALE = 256
SCALED_FROM = 512
STEP = 93


def _double_window(start: int, first: int) -> Window:
    scale = SCALE if start >= SCALED_FROM else 0
    return Window(start, tuple(_bits_of_inverse_pi(first - 53 * k, 53, scale) for k in range(5)))


DOUBLE_WINDOWS = (
    _double_window(-2000, -2),
    *(_double_window(start, 52 - start) for start in range(SCALED_FROM - 4 * STEP, 1024, STEP)),
)


def _reduce_double(x: Term, shifts: Sequence[float]) -> list[Angle]:
    size = abs(x)
    pieces = _choose(size, DOUBLE_WINDOWS)
    x = (x * 2.0**-SCALE).where(size >= 2.0**SCALED_FROM, x)
    products = [two_product(piece, x) for piece in pieces]
    terms = [term for product in products for term in product][:-1]
    terms[:5] = [term - (term * 0.5).round() * 2 for term in terms[:5]]
    parts = _sum_in_three(terms)
    return [_nearest(parts, shift) for shift in shifts]


def _sum_in_three(terms: Sequence[Term]) -> tuple[Term, Term, Term]:
    """The sum of terms as three numbers, with an error in the last bits of the third."""
    first, second = two_sum(terms[0], terms[1])
    third = first.constant(0)
    for term in terms[2:]:
        first, rest = two_sum(first, term)
        second, rest = two_sum(second, rest)
        third = third + rest
    return first, second, third


def _nearest(parts: tuple[Term, Term, Term], shift: float) -> Angle:
    first, second, third = parts
    nearest = (first - shift) + MAGIC
    first, rest = two_sum(first, -_center(nearest, shift))
    second, lost = two_sum(second, rest)
    high, low = two_sum(first, second)
    high, low = fast_two_sum(high, low + (lost + third))
    return Angle(high, low, nearest.bits())


def _center(nearest: Term, shift: float) -> Term:
    """What the angle is reduced about, in multiples of pi, where `nearest` has the integer."""
    integer = nearest - MAGIC
    return integer + shift if shift else integer
