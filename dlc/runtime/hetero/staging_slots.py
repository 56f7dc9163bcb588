"""Pinned places for the small arrays of a call that go between the memory of the host and a GPU's.

The device copies from them and to them by itself, so nobody waits for that. Larger arrays stay where their
callers have them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence

from dlc.runtime.abi import Root
from dlc.runtime.cuda.driver import Driver
from dlc.runtime.cuda.pinned import LARGE, GrowablePinnedBytes

_ALIGNED = 64
"""What an array begins at a multiple of, as others of the host do."""


class StagingSlots:
    """The places of one call at a time."""

    def __init__(self, driver: Driver, copied: Collection[int], inputs: int) -> None:
        """`copied` are the roots that copies name, `inputs` counts the tensors that are read."""
        self._copied = sorted(root - Root.INPUTS for root in copied if root >= Root.INPUTS)
        self._inputs = inputs
        self._block = GrowablePinnedBytes(driver)
        self._results: list[tuple[int, int, int]] = []
        """Where callers have the outputs, their places here, and their bytes."""

    def begin(self, roots: ctypes.Array[ctypes.c_int64], sizes: Sequence[int]) -> None:
        """Copy small inputs here, and let the roots of what lies here say so.

        `sizes` are the bytes of the inputs and outputs. An output that is written over an input is here
        where that is.
        """
        places: dict[tuple[int, int], int] = {}
        end = 0
        for number in self._copied:
            array = roots[Root.INPUTS + number], sizes[number]
            if 0 < sizes[number] < LARGE and array not in places:
                places[array] = end
                end += -(-sizes[number] // _ALIGNED) * _ALIGNED
        self._results = []
        if not places:
            return
        base = self._block.of(end)
        for number, size in enumerate(sizes):
            given = roots[Root.INPUTS + number]
            if (given, size) not in places:
                continue
            place = roots[Root.INPUTS + number] = base + places[given, size]
            if number < self._inputs:
                ctypes.memmove(place, given, size)
            else:
                self._results.append((given, place, size))

    def hand_over(self) -> None:
        """Copy the results to where the caller has them."""
        for given, place, size in self._results:
            ctypes.memmove(given, place, size)
