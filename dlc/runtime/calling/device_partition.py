"""The partition of a heterogeneous program between the host and a GPU, at one tuple of sizes.

Offsets of the arena below `Partition.start` are memory of the host, the others memory of the GPU. A call
may only touch the memory of the device that runs its kernel: every address that it is passed is checked
here, before anything runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dlc.runtime.abi import COPY, ON_GPU, ArgKind, ArgWord, Root, StepWord
from dlc.runtime.artifact.plan import Span
from dlc.runtime.artifact.plan_check import BadPlan
from dlc.runtime.artifact.program_check import ProgramTable

HOST, GPU = "cpu", "cuda"
"""What the names of devices in a certificate begin with."""


class BadPartition(BadPlan):
    """A program would use memory of one device on another; the message says where."""


class RootRange(NamedTuple):
    """The bytes from `first` up to `end` of a root."""

    root: int
    first: int
    end: int


class Accesses(NamedTuple):
    """What a call reads, and what it may write. What nobody writes is left out."""

    reads: tuple[RootRange, ...]
    writes: tuple[RootRange, ...]


class Partition(NamedTuple):
    """The parts of a program: where that of the GPU begins in the arena, and what each call touches."""

    start: int
    lengths: tuple[int, ...]
    """Bytes of each root."""
    calls: Mapping[int, Accesses]
    """By the number of its step."""


def is_copy(step: Sequence[int]) -> bool:
    """Whether a CALL step copies from one memory to another."""
    return step[StepWord.A] == COPY


def is_on_gpu(step: Sequence[int]) -> bool:
    """Whether a CALL step is a kernel of the GPU."""
    return step[StepWord.A] >= ON_GPU


def partition_program(
    table: ProgramTable,
    sizes: Sequence[int],
    rooms: Sequence[Span],
    devices: Sequence[str],
    lengths: Sequence[int],
) -> Partition:
    """The parts of a program whose plan has these rooms on these devices; `lengths` are bytes of roots.

    Raises BadPartition where a call would be given an address of another device.
    """
    start = _start(rooms, devices, lengths[Root.ARENA])
    owners = _Owners(rooms)
    steps: list[list[int]] = table.steps.tolist()
    waves: list[int] = table.waves.tolist()
    arguments: list[list[int]] = table.arguments.tolist()
    calls: dict[int, Accesses] = {}
    places: list[int] = table.calls.tolist()
    for place in places:
        step = steps[place]
        first, count = step[StepWord.B], step[StepWord.C]
        given = arguments[first : first + count]
        _check(place, step, given, sizes, start)
        ranges = [_range_of(a, sizes, lengths, owners, waves[place]) for a in given]
        only_read = 1 if is_copy(step) else step[StepWord.G]
        calls[place] = Accesses(
            tuple(dict.fromkeys([found for found in ranges if found is not None])),
            tuple(dict.fromkeys([found for found in ranges[only_read:] if found is not None])),
        )
    return Partition(start, tuple(lengths), calls)


def _start(rooms: Sequence[Span], devices: Sequence[str], arena: int) -> int:
    """Where the part of the GPU begins: behind all that is the host's."""
    sized = [(room, device) for room, device in zip(rooms, devices, strict=True) if room.bytes]
    ends = [room.offset + room.bytes for room, device in sized if not device.startswith(GPU)]
    starts = [room.offset for room, device in sized if device.startswith(GPU)]
    start = min(starts, default=arena)
    if max(ends, default=0) > start:
        raise BadPartition(
            f"memory of the host lies behind byte {start}, where that of the GPU begins"
        )
    return start


class _Owners:
    """Which room an address belongs to, at a wave."""

    def __init__(self, rooms: Sequence[Span]) -> None:
        rows = [(room.offset, room.offset + room.bytes, room.first, room.last) for room in rooms]
        self._columns = np.array(rows, np.int64).reshape(-1, 4).T
        self._known: dict[tuple[int, int], tuple[int, int] | None] = {}

    def at(self, address: int, wave: int) -> tuple[int, int] | None:
        """Where it begins and ends; None for an address of nothing."""
        key = address, wave
        if key not in self._known:
            offsets, ends, first, last = self._columns
            there = (offsets <= address) & (address < ends) & (first <= wave) & (wave <= last)
            found = np.flatnonzero(there)
            self._known[key] = (int(offsets[found[0]]), int(ends[found[0]])) if len(found) else None
        return self._known[key]


def _range_of(
    argument: Sequence[int],
    sizes: Sequence[int],
    lengths: Sequence[int],
    owners: _Owners,
    wave: int,
) -> RootRange | None:
    """The stretch that an argument points into, as a whole: it may move in loops."""
    kind, root, offset = argument[: ArgWord.COUNTER]
    if kind not in (ArgKind.POINTER, ArgKind.LOADED):
        return None
    if root == Root.ARENA:
        found = owners.at(sizes[offset], wave)
        return None if found is None else RootRange(root, *found)
    return RootRange(root, 0, lengths[root]) if root >= Root.INPUTS else None


def _check(
    place: int,
    step: Sequence[int],
    given: Sequence[Sequence[int]],
    sizes: Sequence[int],
    start: int,
) -> None:
    """Every address is one of the device that the call is on; a copy has one of each."""
    kinds = [argument[ArgWord.KIND] for argument in given]
    points = [
        _is_on_gpu(argument, sizes, start)
        for argument, kind in zip(given, kinds, strict=True)
        if kind == ArgKind.POINTER
    ]
    if is_copy(step):
        if kinds != [ArgKind.POINTER, ArgKind.POINTER, ArgKind.SIZE] or None in points:
            raise BadPartition(f"step {place} copies something else than bytes from place to place")
        if points[0] == points[1]:
            raise BadPartition(f"step {place} copies within one memory")
    elif is_on_gpu(step):
        if False in points:
            raise BadPartition(f"step {place} gives memory of the host to the GPU")
    elif True in points:
        raise BadPartition(f"step {place} gives memory of the GPU to the processor")


def _is_on_gpu(argument: Sequence[int], sizes: Sequence[int], start: int) -> bool | None:
    """Whether a pointer is into memory of the GPU; None for what is in that of both."""
    root = argument[ArgWord.ROOT]
    if root == Root.ARENA:
        return sizes[argument[ArgWord.OFFSET]] >= start
    return False if root >= Root.INPUTS else None
