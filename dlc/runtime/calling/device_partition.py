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
"""The prefixes of device names in a certificate."""


_COPIED = [ArgKind.POINTER, ArgKind.POINTER, ArgKind.SIZE]
"""What a copy is passed: from where, to where, and how many bytes."""


class BadPartition(BadPlan):
    """A call would use memory of another device than its own; the message says where."""


class RootRange(NamedTuple):
    """Bytes of a root, from `first` up to `end`."""

    root: int
    first: int
    end: int


class Accesses(NamedTuple):
    """The ranges that a call reads and those that it may write, without weights and constants."""

    reads: tuple[RootRange, ...]
    writes: tuple[RootRange, ...]


class Partition(NamedTuple):
    """The offset in the arena at which memory of the GPU begins, and the accesses of each call."""

    start: int
    lengths: tuple[int, ...]
    """Bytes of each root."""
    calls: Mapping[int, Accesses]
    """By the index of its step."""


def is_copy(step: Sequence[int]) -> bool:
    """Whether a CALL step copies from one memory to another."""
    return step[StepWord.A] == COPY


def is_on_gpu(step: Sequence[int]) -> bool:
    """Whether a CALL step is a kernel of the GPU."""
    return step[StepWord.A] >= ON_GPU


def partition_program(
    table: ProgramTable,
    sizes: Sequence[int],
    blocks: Sequence[Span],
    devices: Sequence[str],
    lengths: Sequence[int],
) -> Partition:
    """The partition of a program, whose plan has these blocks on these devices.

    `lengths` are the bytes of each root.

    Raises BadPartition where a call would be passed an address of another device.
    """
    start = _start(blocks, devices, lengths[Root.ARENA])
    owners = _Owners(blocks)
    empty = frozenset(block.offset for block in blocks if not block.bytes)
    steps: list[list[int]] = table.steps.tolist()
    waves: list[int] = table.waves.tolist()
    arguments: list[list[int]] = table.arguments.tolist()
    calls: dict[int, Accesses] = {}
    call_steps: list[int] = table.calls.tolist()
    for pc in call_steps:
        step = steps[pc]
        first, count = step[StepWord.B], step[StepWord.C]
        passed = arguments[first : first + count]
        if is_copy(step) and [argument[ArgWord.KIND] for argument in passed] != _COPIED:
            raise _not_a_copy(pc)
        _check(pc, step, [a for a in passed if not _is_empty(a, sizes, empty)], sizes, start)
        ranges = [_range_of(a, sizes, lengths, owners, waves[pc]) for a in passed]
        only_read = 1 if is_copy(step) else step[StepWord.G]
        calls[pc] = Accesses(
            tuple(dict.fromkeys([range_ for range_ in ranges if range_ is not None])),
            tuple(dict.fromkeys([range_ for range_ in ranges[only_read:] if range_ is not None])),
        )
    return Partition(start, tuple(lengths), calls)


def _start(blocks: Sequence[Span], devices: Sequence[str], arena: int) -> int:
    """The offset at which memory of the GPU begins, behind all blocks of the host."""
    placed = [(block, device) for block, device in zip(blocks, devices, strict=True) if block.bytes]
    ends = [block.end for block, device in placed if not device.startswith(GPU)]
    starts = [block.offset for block, device in placed if device.startswith(GPU)]
    start = min(starts, default=arena)
    if max(ends, default=0) > start:
        raise BadPartition(
            f"memory of the host lies behind byte {start}, where that of the GPU begins"
        )
    return start


class _Owners:
    """The block that is live at an offset of the arena, by wave."""

    def __init__(self, blocks: Sequence[Span]) -> None:
        rows = [(block.offset, block.end, block.first, block.last) for block in blocks]
        self._columns = np.array(rows, np.int64).reshape(-1, 4).T
        self._cache: dict[tuple[int, int], tuple[int, int] | None] = {}

    def at(self, offset: int, wave: int) -> tuple[int, int] | None:
        """The bounds of the block at an offset; None where none is live."""
        key = offset, wave
        if key not in self._cache:
            offsets, ends, first, last = self._columns
            live = (offsets <= offset) & (offset < ends) & (first <= wave) & (wave <= last)
            rows = np.flatnonzero(live)
            self._cache[key] = (int(offsets[rows[0]]), int(ends[rows[0]])) if len(rows) else None
        return self._cache[key]


def _range_of(
    argument: Sequence[int],
    sizes: Sequence[int],
    lengths: Sequence[int],
    owners: _Owners,
    wave: int,
) -> RootRange | None:
    """The whole block that an argument points into, since loops may move the pointer inside it."""
    kind, root, offset = argument[: ArgWord.COUNTER]
    if kind not in (ArgKind.POINTER, ArgKind.LOADED):
        return None
    if root == Root.ARENA:
        bounds = owners.at(sizes[offset], wave)
        return None if bounds is None else RootRange(root, *bounds)
    return RootRange(root, 0, lengths[root]) if root >= Root.INPUTS else None


def _check(
    pc: int,
    step: Sequence[int],
    passed: Sequence[Sequence[int]],
    sizes: Sequence[int],
    start: int,
) -> None:
    """Every pointer of a call is memory of its device; a copy has one pointer of each."""
    pointers = [argument for argument in passed if argument[ArgWord.KIND] == ArgKind.POINTER]
    on_gpu = [_is_on_gpu(argument, sizes, start) for argument in pointers]
    if is_copy(step):
        if None in on_gpu:
            raise _not_a_copy(pc)
        if len(on_gpu) > len(set(on_gpu)):
            raise BadPartition(f"step {pc} copies within one memory")
    elif is_on_gpu(step):
        if False in on_gpu:
            raise BadPartition(f"step {pc} gives memory of the host to the GPU")
    elif True in on_gpu:
        raise BadPartition(f"step {pc} gives memory of the GPU to the processor")


def _not_a_copy(pc: int) -> BadPartition:
    return BadPartition(f"step {pc} copies something else than bytes from one address to another")


def _is_empty(argument: Sequence[int], sizes: Sequence[int], empty: frozenset[int]) -> bool:
    """Whether a pointer is to where an empty block begins, which both memories may do at one offset."""
    kind, root, offset = argument[: ArgWord.COUNTER]
    return kind == ArgKind.POINTER and root == Root.ARENA and sizes[offset] in empty


def _is_on_gpu(argument: Sequence[int], sizes: Sequence[int], start: int) -> bool | None:
    """Whether a pointer is memory of the GPU; None for weights and constants, which both devices have."""
    root = argument[ArgWord.ROOT]
    if root == Root.ARENA:
        return sizes[argument[ArgWord.OFFSET]] >= start
    return False if root >= Root.INPUTS else None
