"""Calls that are ready: at sizes, and with arrays on the device, that a frame has seen before.

Such a call is one upload, one launch of a graph and one download, whose arguments are known. What is left
for Python is to copy small arrays of the host to pinned memory and back.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from dlc.errors import CallError
from dlc.runtime.calling.frames import SizedProgram
from dlc.runtime.calling.results import Storage
from dlc.runtime.cuda.driver import Driver
from dlc.runtime.cuda.staging import Staging
from dlc.runtime.gpu.graphs import Graph
from dlc.runtime.system.buffers import bytes_at, copy_bytes

MOST = 16
"""The most calls that are kept ready at one tuple of sizes."""
MOST_MOVES = 3
"""How often a call gives addresses to a graph that another call has had, before it gets one of its own."""
MOST_PLANS = 64
"""The most plans of a frame."""


class HostArray(NamedTuple):
    """An array of the caller in host memory: its number among inputs and outputs, and its bytes.

    `place` is its offset in the block that is copied, or its address on the device if it is large.
    """

    number: int
    place: int
    size: int


class Copies(NamedTuple):
    """What a call copies between host and device."""

    inputs: Sequence[HostArray]
    """Those that are gathered in the block."""
    large: Sequence[HostArray]
    """The inputs that are copied separately."""
    outputs: Sequence[HostArray]
    """All in the block."""
    block: int
    """The address of the block on the device."""
    uploaded: int
    """Bytes of the block that are uploaded."""
    faults: int
    """The offset of the faults in the block: from there on it is downloaded."""
    downloaded: int
    """Bytes from there."""


class ReadyCall:
    """A call whose graph, roots and copies are known."""

    __slots__ = (
        *("_copies", "_driver", "_graph", "_moves", "_no_faults", "_roots", "_staging", "_stream"),
        *("faults_at", "size"),
    )

    def __init__(
        self,
        driver: Driver,
        stream: int,
        staging: Staging,
        graph: Graph,
        roots: Sequence[int],
        copies: Copies,
        no_faults: bytes,
    ) -> None:
        """`no_faults` is what the faults are if no kernel has failed."""
        self._driver, self._stream, self._staging = driver, stream, staging
        self._graph, self._roots, self._moves = graph, roots, 0
        self._copies, self._no_faults = copies, no_faults
        self.size = copies.faults + copies.downloaded
        """Bytes of pinned memory that it needs."""
        self.faults_at = copies.block + copies.faults
        """The address of the faults on the device."""

    def start(self, pinned: int, hosts: Sequence[int]) -> None:
        """Put it into the stream, with the block at `pinned`, and arrays of the host at `hosts`.

        Raises CallError if the driver refuses something.
        """
        driver, stream = self._driver, self._stream
        copies = self._copies
        for number, offset, size in copies.inputs:
            copy_bytes(pinned + offset, hosts[number], size)
        for number, device, size in copies.large:
            self._staging.upload(device, hosts[number], size)
        if copies.uploaded:
            driver.upload(copies.block, pinned, copies.uploaded, stream)
        if not self._graph.is_at(self._roots):
            self._move()
        self._graph.launch(self._roots, stream)
        faults = copies.faults
        driver.download(pinned + faults, copies.block + faults, copies.downloaded, stream)

    def _move(self) -> None:
        """Note that another call has had the graph: who holds a result gives two addresses in turns."""
        self._moves += 1
        if self._moves == MOST_MOVES:
            with suppress(CallError):  # without memory for another one they go on sharing
                self._graph = self._graph.copy_at(self._roots)

    def faults(self, pinned: int) -> bytes | None:
        """What kernels have reported, once the call is done; None if none has failed."""
        found = bytes_at(pinned + self._copies.faults, len(self._no_faults))
        return None if found == self._no_faults else found

    def hand_over(self, pinned: int, hosts: Sequence[int]) -> None:
        """Copy the results to the arrays of the host."""
        for number, offset, size in self._copies.outputs:
            copy_bytes(hosts[number], pinned + offset, size)

    def result(self, pinned: int, number: int) -> bytes:
        """The bytes of a result on the host, by its number among inputs and outputs."""
        for found, offset, size in self._copies.outputs:
            if found == number:
                return bytes_at(pinned + offset, size)
        raise KeyError(number)


class Plan(NamedTuple):
    """What is known of calls whose arguments have the same shapes and the same addresses on the device."""

    sized: SizedProgram
    outputs: Sequence[Storage]
    """The memory of each output."""
    ready: dict[tuple[int, ...], ReadyCall]
    """By the addresses of outputs on the device."""
