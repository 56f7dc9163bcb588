"""The order of a detector's boxes where rounding decides it: of rows whose scores are nearly equal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


def in_order_of(found: Sequence[Array], peer: Sequence[Array], tolerance: float) -> list[Array]:
    """The results with rows exchanged to be nearest to the peer's, as far as rounding may exchange them.

    A result of one axis whose floats fall is one of scores; it orders all results that have as many rows.
    It must be the peer's to within `tolerance` of its largest. Two rows are exchanged, in all results, only
    where twice the largest difference of the scores from the peer's is more than their scores are apart:
    each may then be in error by that. Without scores the results are as they were.
    """
    ordered = list(found)
    for one, other in zip(found, peer, strict=True):
        if not _are_scores(one, other, tolerance):
            continue
        same = [k for k, each in enumerate(peer) if each.ndim and len(each) == len(other)]
        ours, theirs = (_rows([results[k] for k in same]) for results in (ordered, peer))
        order, gap = np.arange(len(other)), 2 * float(np.abs(one - other).max())
        for tied in _ties(other, gap):
            nearest = _nearest(ours, theirs, tied)
            # Neighbours may be near, and the ends of several apart.
            if np.all(np.abs(other[nearest] - other[tied]) <= gap):
                order[tied] = nearest
        for k in same:
            ordered[k] = ordered[k][order]
        return ordered
    return ordered


def _are_scores(found: Array, peer: Array, tolerance: float) -> bool:
    """Whether both fall from the first to the last, and are the same to within the tolerance."""
    if found.ndim != 1 or found.shape != peer.shape or peer.dtype.kind != "f" or len(peer) < 2:
        return False
    falls = all(bool(np.all(each[1:] <= each[:-1])) for each in (found, peer))
    # Equal numbers order nothing.
    return (
        falls
        and bool(peer[0] > peer[-1])
        and bool(np.all(np.abs(found - peer) <= tolerance * np.abs(peer).max()))
    )


def _rows(results: Sequence[Array]) -> Array:
    """All numbers of each row, relative to the largest of its result."""
    parts: list[Array] = []
    for each in results:
        numbers = each.reshape(len(each), -1).astype(np.float64)
        parts.append(numbers / max(float(np.abs(numbers).max(initial=0)), 1e-30))
    return np.concatenate(parts, axis=1)


def _ties(scores: Array, gap: float) -> Iterator[Array]:
    """The numbers of neighbouring rows whose scores are at most `gap` apart, several at a time."""
    steps = scores[:-1] - scores[1:] > gap
    for tied in np.split(np.arange(len(scores)), np.flatnonzero(steps) + 1):
        if len(tied) > 1:
            yield tied


def _nearest(ours: Array, theirs: Array, tied: Array) -> Array:
    """For each tied row of the peer the nearest of ours that no row before has taken."""
    left = list(tied)
    return np.asarray(
        [left.pop(int(np.abs(ours[left] - theirs[k]).max(axis=1).argmin())) for k in tied]
    )
