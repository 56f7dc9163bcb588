"""Whether two implementations agree, measured by what rounding does to the program that both ran.

A difference of a few units in the last place of the largest element is rounding anywhere. A larger one is
judged by the program evaluated in f64: as it is, and with the result of every operation changed at random
by up to one unit in the last place of the dtype that the program has, which tells how far rounding may
carry. What is computed may be 4 times as far from the f64 result as the peer or random rounding, and the
peer must be no further than rounding explains: otherwise a mistake that our evaluator and our code share
would pass for an inaccurate peer. Where it is further, a second implementation in f64 may confirm our own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.fuzz.cases import Outcome

Array: TypeAlias = NDArray[Any]

ULPS = 16
"""Units in the last place, of the largest element, that need no further judgement."""
TIMES_PEER = 4
"""How many times the peer's own error, or what random rounding changes, our error may be."""
TIMES_SPREAD = 16
"""How many times what random rounding changes an error may be: others sum in other orders."""
SHAKES = 6
"""How often the program is evaluated with random rounding."""
LOST = 0.05
"""Where random rounding changes more than this part of the largest element, it decides the result."""

Exact: TypeAlias = Callable[[int], Sequence[Array]]
"""The results in f64: those of 0 exact, those of k with the k-th random rounding."""
Second: TypeAlias = Callable[[], Sequence[Array]]
"""The results in f64 by an implementation that shares nothing with ours; none where it has none."""


@dataclass(frozen=True, slots=True)
class Judged:
    """How two results compare."""

    verdict: str
    what: str = ""


def epsilon(dtype: np.dtype[Any]) -> float:
    """The relative distance of two floats of a dtype."""
    return float(np.finfo(dtype).eps) if dtype.kind == "f" else 0.0


def changed(
    array: Array, stream: np.random.Generator, eps: float, magnitudes: Array | None = None
) -> Array:
    """The array with each float changed at random by up to `eps` of itself, or of its magnitude here."""
    if array.dtype.kind != "f":
        return array
    noise = stream.uniform(-eps, eps, array.shape)
    return np.asarray(array + noise * (array if magnitudes is None else magnitudes), array.dtype)


def near(found: Array, peer: Array, eps: float) -> bool:
    """Whether they are equal but for a few units in the last place of the largest element."""
    if found.dtype.kind != "f":
        return bool(np.array_equal(found, peer))
    one, other = found.astype(np.float64), peer.astype(np.float64)
    return bool(np.all(_apart(one, other) <= ULPS * eps * _scale(other)))


def judge(
    found: Sequence[Array],
    peer: Sequence[Array],
    exact: Exact,
    eps: float,
    before: Sequence[Array] = (),
    second: Second = tuple,
) -> Outcome:
    """Whether results agree with those of a peer; `eps` is the precision that both computed with.

    `second` is asked where the peer is further from f64 than rounding explains: if its results in f64 are
    ours, to within what random rounding changes, the peer is inaccurate. `before` are the results that
    were changed into these by steps whose size does not depend on that of the gradient, as Adam makes
    them: rounding decides those of a gradient that is 0 but for rounding.
    """
    if len(found) != len(peer):
        return Outcome("wrong", f"{len(found)} results, the peer has {len(peer)}")
    unstable = ""
    for k, (one, other) in enumerate(zip(found, peer, strict=True)):
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            what = f"{one.dtype}{list(one.shape)}, the peer {other.dtype}{list(other.shape)}"
            return Outcome("wrong", f"result {k} is {what}")
        if near(one, other, eps):
            continue
        meant = [exact(shake)[k] for shake in range(SHAKES + 1)]
        confirmed = partial(_confirmed, second, k, meant[0].astype(np.float64))
        judged = _judged(one, other, meant, eps, confirmed, before[k] if before else None)
        if judged.verdict == "wrong":
            return Outcome("wrong", f"result {k} {judged.what}")
        unstable = unstable or (judged.what if judged.verdict == "unstable" else "")
    return Outcome("unstable", unstable) if unstable else Outcome("agreed")


def _confirmed(second: Second, number: int, exact: Array, bound: float) -> bool:
    """Whether a second implementation has the result of this number in f64, to within a bound."""
    results = second()
    if not results:
        return False
    result = np.asarray(results[number])
    if result.shape != exact.shape or result.dtype.kind != "f":
        return False
    return bool(np.all(_apart(result, exact) <= bound))


def _judged(
    found: Array,
    peer: Array,
    exact: Sequence[Array],
    eps: float,
    confirmed: Callable[[float], bool],
    before: Array | None = None,
) -> Judged:
    first = exact[0]
    if first.shape != found.shape:
        return Judged("wrong", f"has the shape {found.shape}, in f64 {first.shape}")
    if found.dtype.kind != "f":
        moved = np.zeros(found.shape, np.bool_)
        for shaken in exact[1:]:
            moved |= shaken != first
        if bool(np.all(moved | (found == peer))):
            return Judged("unstable", "integers that rounding decides")
        return Judged("wrong", _at(found, peer, first, ~moved & (found != peer)))
    one, other, true = (each.astype(np.float64) for each in (found, peer, first))
    beyond = np.abs(true) > np.finfo(found.dtype).max
    if bool(np.any(beyond)) and not np.any(np.isfinite(one[beyond])):
        return Judged("unstable", "numbers beyond the dtype")
    scale = _scale(true)
    spread = np.max([_apart(each.astype(np.float64), true) for each in exact[1:]], axis=0)
    as_far = _apart(one, other) <= TIMES_SPREAD * (spread + eps * scale)

    def decided(size: Array | float) -> bool:
        """Whether rounding decides some of the elements of a size, and explains the others."""
        steady = spread <= LOST * size
        return not bool(np.all(steady)) and bool(np.all(as_far[steady]))

    if decided(scale):
        return Judged("unstable", "numbers that rounding decides")
    own, ours = _apart(other, true), _apart(one, true)
    by_rounding = float(spread.max(initial=0))
    explained = TIMES_SPREAD * (by_rounding + eps * scale)
    usual = max(float(own.max(initial=0)), by_rounding)
    if bool(np.any(own > explained)):
        if not confirmed(by_rounding):
            what = "against f64 as well: " + _at(found, peer, first, own > explained)
            return Judged("wrong", what)
        usual = by_rounding
    allowed = TIMES_PEER * usual + ULPS * eps * scale
    if bool(np.any(ours > allowed)):
        if before is not None and decided(np.minimum(scale, _apart(true, before))):
            return Judged("unstable", "steps that rounding decides")
        return Judged("wrong", _at(found, peer, first, ours > allowed))
    return Judged("agreed")


def _apart(one: Array, other: Array) -> Array:
    """Absolute differences; none between equal infinities, or two that are not numbers."""
    with np.errstate(invalid="ignore"):
        apart = np.abs(one - other)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    return np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))


def _scale(array: Array) -> float:
    """The largest finite magnitude."""
    finite = np.abs(array[np.isfinite(array)])
    return max(float(finite.max(initial=0)), 1e-30)


def _at(found: Array, peer: Array, exact: Array, where: Array) -> str:
    place = tuple(int(k) for k in np.argwhere(where)[0])
    numbers = found[place], peer[place], exact[place]
    return "is {!s} at {}, the peer's {!s}, in f64 {!s}".format(
        numbers[0], list(place), *numbers[1:]
    )
