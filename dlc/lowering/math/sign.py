"""The sign of a number."""

from __future__ import annotations

from dlc.lowering.math.term import Term


def sign(x: Term) -> Term:
    """-1, 0 or 1, exactly; NaN for NaN."""
    positive = x.constant(1).where(x > 0, 0)
    if x.dtype.kind == "uint":
        return positive
    either = positive.unless(x < 0, -1)
    return either.unless(x.is_nan(), x) if x.dtype.is_float else either
