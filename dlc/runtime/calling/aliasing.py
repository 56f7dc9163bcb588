"""Alias checks of a call: an array that it writes may share memory with none of its other arrays."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CallError
from dlc.runtime.artifact.manifest import Entry
from dlc.runtime.calling.arguments import check_changeable
from dlc.runtime.system.buffers import address

Array = NDArray[np.generic]
Span: TypeAlias = tuple[int, int]
"""The interval of a contiguous array in memory: start and end address."""

WRITABLE = 0x1 | 0x100 | 0x400
"""NumPy's flags C_CONTIGUOUS, ALIGNED and WRITEABLE."""


class _DisjointSpans(NamedTuple):
    """The intervals of the inputs that a call overwrites, of which no two overlap."""

    spans: list[Span]
    order: list[int]
    """The indices of the non-empty intervals by address, with their starts and ends."""
    starts: list[int]
    ends: list[int]

    def overlapping(self, start: int, end: int) -> int | None:
        """The index of an interval that overlaps the interval from `start` to `end`, or None."""
        if start == end:
            return None
        after = bisect_left(self.starts, end)
        return self.order[after - 1] if after and self.ends[after - 1] > start else None


class OverwrittenInputs:
    """The inputs that a call of an entry point overwrites with its outputs."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        names = [item.name for item in entry.inputs]
        self.places = sorted({names.index(o.updates) for o in entry.outputs if o.updates})
        """Their indices among the inputs."""
        self._kept = [place for place in range(len(names)) if place not in self.places]
        self._inouts = {place for place in self.places if names[place] in entry.inouts}
        self._disjoint = _DisjointSpans([], [], [], [])
        """Of the last call: training passes the same arrays for its weights in every step."""

    def own(self, inputs: Sequence[Array]) -> Sequence[Array]:
        """The inputs, with copies of those that are overwritten but must not be written.

        Raises CallError as `copied` and `check` do.
        """
        if not self.places:
            return inputs
        found = list(inputs)
        for place in self.places:
            if found[place].flags.num & WRITABLE != WRITABLE:
                found[place] = self.copied(place, found[place])
        self.check([span(array) for array in found])
        return found

    def copied(self, place: int, array: Array) -> Array:
        """A copy of the array of an overwritten input that must not be written.

        Raises CallError (D0820) if the parameter is `inout`: the caller asks for the change of the array.
        """
        if place in self._inouts:
            check_changeable(array, self._entry.inputs[place], self._entry.name)
        return array.copy()

    def check(self, spans: Sequence[Span]) -> None:
        """Raises CallError (D0806) if an overwritten input shares memory; `spans` are of all inputs."""
        overwritten = [spans[place] for place in self.places]
        if self._disjoint.spans != overwritten:
            self._disjoint = self._checked(overwritten)
        for place in self._kept:
            other = self._disjoint.overlapping(*spans[place])
            if other is not None:
                raise self._refuse(self.places[other], place)

    def _checked(self, spans: list[Span]) -> _DisjointSpans:
        """The intervals of the overwritten inputs. Raises CallError (D0806) if two of them overlap."""
        order = sorted(number for number, (start, end) in enumerate(spans) if start < end)
        order.sort(key=spans.__getitem__)
        for one, other in pairwise(order):
            if spans[other][0] < spans[one][1]:
                raise self._refuse(self.places[one], self.places[other])
        starts, ends = [spans[k][0] for k in order], [spans[k][1] for k in order]
        return _DisjointSpans(spans, order, starts, ends)

    def _refuse(self, one: int, other: int) -> CallError:
        names = " and ".join(self._entry.inputs[place].name for place in sorted((one, other)))
        return CallError(
            f"{self._entry.name}: {names} share memory, and one is changed", code="D0806"
        )


def span(array: Array) -> Span:
    """The interval of a contiguous array in memory."""
    start = address(array)
    return start, start + array.nbytes


def shares_memory(array: Array, others: Sequence[Array]) -> bool:
    """Whether a contiguous array shares a byte with one of the others, which are contiguous, too."""
    begin = address(array)
    end = begin + array.nbytes
    for other in others:
        start = address(other)
        if start < end and begin < start + other.nbytes:
            return True
    return False
