"""Staging slots: pinned memory for the small inputs and outputs of a call that go to or come from a GPU.

The device copies pinned memory by itself, so no thread waits for these copies. Larger arrays stay in the
caller's memory, and are staged in chunks (`dlc.runtime.cuda.staging`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence

from dlc.runtime.abi import Root
from dlc.runtime.cuda.driver import Driver
from dlc.runtime.cuda.pinned import LARGE, GrowablePinnedBytes

_ALIGNMENT = 64
"""Bytes; a slot is aligned as other arrays of the host are."""


class StagingSlots:
    """The slots of one call at a time, in one block of pinned memory."""

    def __init__(self, driver: Driver, copied: Collection[int], inputs: int) -> None:
        """`copied` are the roots that copies name; of the tensors the first `inputs` are inputs."""
        self._copied = sorted(root - Root.INPUTS for root in copied if root >= Root.INPUTS)
        self._inputs = inputs
        self._block = GrowablePinnedBytes(driver)
        self._results: list[tuple[int, int, int]] = []
        """For each output in a slot: the caller's address, that of the slot, and the bytes."""

    def begin(self, roots: ctypes.Array[ctypes.c_int64], sizes: Sequence[int]) -> None:
        """Copy small inputs to their slots, and let the roots point there.

        `sizes` are the bytes of the inputs and outputs. An output that overwrites an input shares its slot.
        """
        slots: dict[tuple[int, int], int] = {}
        end = 0
        for index in self._copied:
            array = roots[Root.INPUTS + index], sizes[index]
            if 0 < sizes[index] < LARGE and array not in slots:
                slots[array] = end
                end += -(-sizes[index] // _ALIGNMENT) * _ALIGNMENT
        self._results = []
        if not slots:
            return
        base = self._block.of(end)
        for index, size in enumerate(sizes):
            array_address = roots[Root.INPUTS + index]
            if (array_address, size) not in slots:
                continue
            slot = roots[Root.INPUTS + index] = base + slots[array_address, size]
            if index < self._inputs:
                ctypes.memmove(slot, array_address, size)
            else:
                self._results.append((array_address, slot, size))

    def hand_over(self) -> None:
        """Copy the results from their slots to the caller's arrays."""
        for array_address, slot, size in self._results:
            ctypes.memmove(array_address, slot, size)
