"""Whether the results of dlc are those of JAX: integers exactly, floats as far as either can be trusted.

A float agrees if it is within a few roundings of JAX's own, element by element; where sums cancel it
need not be. Then a computation in f64 decides: the largest error of dlc against it may be four times that
of JAX.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

# It has no types.
ml_dtypes: Any = importlib.import_module("ml_dtypes")
Array: TypeAlias = Any
"""An array of NumPy, of bf16 too."""

ROUNDINGS = {"float64": 64, "float32": 64, "float16": 4, "bfloat16": 4}
"""How many roundings apart two right results may be; halves are computed in f32, and rounded."""
TIMES = 4.0
"""How many times as far from f64 as JAX."""


def difference(got: Sequence[Array], wanted: Sequence[Array]) -> str | None:
    """What is wrong with results whose shapes, dtypes or integers differ, or None."""
    if len(got) != len(wanted):
        return f"{len(got)} results, {len(wanted)} wanted"
    for number, (one, other) in enumerate(zip(got, wanted, strict=True)):
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            return f"result {number} is {one.dtype}{list(one.shape)}, not {other.dtype}{list(other.shape)}"
        if not _is_float(other):
            apart = int((one != other).sum())
            if apart:
                return f"result {number}: {apart} of {other.size} elements differ"
        elif not (np.isnan(one) == np.isnan(other)).all():
            return f"result {number}: NaN in other places"
    return None


def within_roundings(got: Sequence[Array], wanted: Sequence[Array]) -> bool:
    """Whether every float is within a few roundings; infinities must be equal."""
    return all(
        _near(one, other) for one, other in zip(got, wanted, strict=True) if _is_float(other)
    )


def _near(one: Array, other: Array) -> bool:
    limits: Any = ml_dtypes.finfo(other.dtype)
    a, b = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return False
    most = ROUNDINGS[other.dtype.name] * float(limits.eps) * np.abs(b[finite])
    # XLA flushes what is smaller than the least normal number to 0.
    return bool((np.abs(a[finite] - b[finite]) <= most + float(limits.tiny)).all())


def within_roundings_of_largest(got: Sequence[Array], wanted: Sequence[Array]) -> bool:
    """The same relative to the largest element, as sums are: for what JAX does not compute in f64."""
    for one, other in zip(got, wanted, strict=True):
        if _is_float(other):
            a, b = one.astype(np.float64), other.astype(np.float64)
            limits: Any = ml_dtypes.finfo(other.dtype)
            most = ROUNDINGS[other.dtype.name] * float(limits.eps) * np.abs(b).max(initial=0)
            if not (np.abs(a - b) <= most).all():
                return False
    return True


def equal_but_for_order(got: Sequence[Array], wanted: Sequence[Array], keys: int) -> bool:
    """Whether vectors that were sorted together have equal keys, and the same rows in another order."""
    return all(
        np.array_equal(one, other) for one, other in zip(got[:keys], wanted[:keys], strict=True)
    ) and sorted(zip(*[each.tolist() for each in got], strict=True)) == sorted(
        zip(*[each.tolist() for each in wanted], strict=True)
    )


def picks_equal_elements(source: Array, got: Sequence[Array], wanted: Sequence[Array]) -> bool:
    """Whether the largest elements of a tensor, along its last axis, and other places that have them."""
    (values, places), (others, _) = got, wanted
    found = np.take_along_axis(source, places.astype(np.int64), -1)
    ordered = np.sort(places, -1)
    return (
        np.array_equal(values, others)
        and np.array_equal(found, values)
        and bool((ordered[..., 1:] != ordered[..., :-1]).all())
    )


def as_near_to_f64(
    got: Sequence[Array], wanted: Sequence[Array], precise: Callable[[], Sequence[Array]]
) -> bool:
    """Whether no result is much farther than JAX's from that in f64."""
    return all(
        _as_near(one, other, exact)
        for one, other, exact in zip(got, wanted, precise(), strict=True)
        if _is_float(other)
    )


def _as_near(one: Array, other: Array, exact: Array) -> bool:
    if exact.shape != other.shape:
        return False
    a, b, c = [x.astype(np.float64) for x in (one, other, exact)]
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return False
    largest = np.abs(c[finite]).max(initial=0)
    limits: Any = ml_dtypes.finfo(other.dtype)
    rounding = float(limits.eps) * largest
    theirs = np.abs(b[finite] - c[finite]).max(initial=0)
    return bool(np.abs(a[finite] - c[finite]).max(initial=0) <= TIMES * theirs + rounding)


def _is_float(array: Array) -> bool:
    return array.dtype.name in ROUNDINGS
