"""The memory of a kernel that is evaluated: global memory of a launch, shared memory, buffers of threads.

Every access is recorded in the shadow memory (`dlc.evaluation.gpu.shadow_memory`), so that races are found
in whatever order the warps happen to run. The target of an asynchronous copy holds poison until the thread
that started the copy has waited for it; any access before that is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlc.dialects import loop, scalar, simt
from dlc.dialects.loop.memory import POISON, AddressSpace, BadAccess, Bytes, MemoryRange, StepLimit
from dlc.dialects.simt import WARP
from dlc.evaluation.gpu.shadow_memory import Accessors, Numbers, Race, Shadow
from dlc.ir.core import Array, Evaluation, Op
from dlc.ir.types import DType, Type, VectorType

Mask = NDArray[np.bool_]
NOWHERE = -1
"""A pointer into no memory range."""


@dataclass(frozen=True, slots=True)
class Active:
    """The active threads of a warp: those that execute the current operation."""

    mask: Mask
    lanes: Numbers
    """Their indices in the warp."""
    all: bool


def active(mask: Mask) -> Active:
    """The active threads of a mask."""
    lanes = np.flatnonzero(mask)
    return Active(mask, lanes, lanes.size == WARP)


class Divergence(Exception):
    """Some threads do not execute an operation that all threads of the warp or block must execute."""


class PendingCopyAccess(Exception):
    """An access to the target of an asynchronous copy that nobody has waited for."""


@dataclass(frozen=True, slots=True)
class AsyncCopy:
    """A copy that has started: `data` goes to `offsets` of a memory range, a row for each thread."""

    memory: MemoryRange
    offsets: Numbers
    lanes: Numbers
    """The threads of the warp that started it."""
    data: Bytes


class LaunchMemory:
    """Global memory, which all blocks of a launch access, its shadow, and the operations left to run."""

    def __init__(self, function: simt.Func, memory: AddressSpace, steps: float) -> None:
        self.function = function
        self.memory = memory
        self.steps = steps
        self.failures: list[tuple[int, ...]] | None = None
        """Failures that the kernel reports, as code, tile and two numbers; None to raise them instead."""
        self._shadows: dict[int, tuple[Array, Shadow]] = {}
        self._shadow_of_range: dict[int, tuple[MemoryRange, Shadow, int]] = {}
        self._constants: dict[Op, Array] = {}

    def count_step(self) -> None:
        """Count an operation. Raises StepLimit when none is left."""
        self.steps -= 1
        if self.steps < 0:
            raise StepLimit

    def shadow(self, memory: MemoryRange) -> tuple[Shadow, int]:
        """The shadow of the allocation that a range is part of, and the offset of the range in it."""
        known = self._shadow_of_range.get(id(memory))
        if known is None:
            allocation: Array = memory.data
            while isinstance(allocation.base, np.ndarray):
                allocation = allocation.base
            # Ranges and allocations are kept alive, so that their ids stay theirs.
            _, shadow = self._shadows.setdefault(
                id(allocation), (allocation, Shadow(allocation.nbytes))
            )
            offset = memory.data.ctypes.data - allocation.ctypes.data
            known = self._shadow_of_range[id(memory)] = memory, shadow, offset
        _, shadow, offset = known
        return shadow, offset

    def constant(self, op: scalar.Constant, at: Evaluation) -> Array:
        """A constant in every thread of a warp."""
        if op not in self._constants:
            shape = poison(op.type).shape
            self._constants[op] = np.broadcast_to(op.evaluate(at), shape)
        return self._constants[op]


class BlockMemory:
    """The shared memory of the block that computes one tile. `phase` counts the barriers passed."""

    def __init__(self, launch: LaunchMemory, tile: int) -> None:
        self.launch = launch
        self.tile = tile
        self.threads = launch.function.threads
        self.phase = 0
        self._shared: dict[Op, int] = {}

    def shared(self, op: simt.Shared) -> int:
        """A pointer to the shared memory that an operation allocates."""
        if op not in self._shared:
            data = np.full(op.elements * op.dtype.bytes, POISON, np.uint8)
            self._shared[op] = self.launch.memory.add(MemoryRange("shared memory", data))
        return self._shared[op]


class WarpMemory(Evaluation):
    """The memory that the 32 threads of a warp access, and the copies that they have started."""

    __slots__ = ("_buffers", "_groups", "_uncommitted", "block", "threads")

    def __init__(self, block: BlockMemory, number: int) -> None:
        super().__init__()
        self.block = block
        self.threads = np.arange(number * WARP, (number + 1) * WARP, dtype=np.int64)
        self._buffers: dict[Op, Array] = {}
        self._uncommitted: list[AsyncCopy] = []
        self._groups: list[list[AsyncCopy]] = []

    def refuse_divergence(self, op: Op, lanes: Active) -> None:
        """Raises Divergence unless all threads of the warp are active."""
        if not lanes.all:
            missing = self.threads[~lanes.mask][0]
            raise Divergence(
                f"thread {missing} of tile {self.block.tile} does not execute the {op.name} at "
                f"{op.location.place}, which all threads of the warp must execute"
            )

    def buffer(self, op: loop.Buffer) -> Array:
        """For each thread a pointer to a buffer of its own."""
        if op not in self._buffers:
            size, memory = op.elements * op.dtype.bytes, self.block.launch.memory
            ranges = [MemoryRange(op.name, np.full(size, POISON, np.uint8)) for _ in range(WARP)]
            self._buffers[op] = np.array([memory.add(each) for each in ranges], np.int64)
        return self._buffers[op]

    def read(
        self,
        op: Op,
        addresses: Numbers,
        dtype: DType,
        count: int,
        lanes: Active,
        *,
        aligned: bool = False,
    ) -> Array:
        """`count` neighbouring elements at each active thread's address, `[threads, count]`.

        With `aligned`, each address must be a multiple of the bytes that a thread reads.
        """
        size = count * dtype.bytes
        result = np.full((WARP, size), POISON, np.uint8)
        for memory, threads, offsets in self._by_range(op, addresses, size, lanes, aligned):
            result[threads] = memory.data[offsets]
            self._record(op, memory, offsets, threads, wrote=False)
        return result.view(dtype.numpy)

    def write(
        self, op: Op, addresses: Numbers, values: Array, lanes: Active, *, aligned: bool = False
    ) -> None:
        """Write the elements of each active thread's row of `values` from its address on."""
        data = np.ascontiguousarray(values).reshape(WARP, -1).view(np.uint8)
        size = data.shape[1]
        for memory, threads, offsets in self._by_range(op, addresses, size, lanes, aligned):
            self._store(op, memory, offsets, threads, data[threads])

    def _store(
        self, op: Op, memory: MemoryRange, offsets: Numbers, threads: Numbers, data: Bytes
    ) -> None:
        memory.refuse_write(op)
        self._record(op, memory, offsets, threads, wrote=True)
        memory.data[offsets] = data
        if memory.written is not None:
            memory.written[offsets] = True

    def _by_range(
        self, op: Op, addresses: Numbers, size: int, lanes: Active, aligned: bool
    ) -> Iterator[tuple[MemoryRange, Numbers, Numbers]]:
        """The bytes that active threads access, by memory range: threads, and `[threads, size]` offsets."""
        launch = self.block.launch
        for memory, indices, starts in launch.memory.at_each(op, addresses[lanes.lanes], size):
            if aligned and ((starts + launch.shadow(memory)[1]) % size).any():
                raise BadAccess(
                    f"{op.name} at {op.location.place} reaches a byte of {memory.name} whose "
                    f"number is not a multiple of {size}"
                )
            yield memory, lanes.lanes[indices], starts[:, None] + np.arange(size)

    def refuse_unaligned(self, op: Op, addresses: Numbers, size: int) -> None:
        """Raises BadAccess where an address is not a multiple of `size` bytes."""
        for _ in self._by_range(op, addresses, size, active(np.ones(WARP, np.bool_)), True):
            pass

    # Asynchronous copies.

    def start_copy(self, op: Op, data: Bytes, addresses: Numbers, lanes: Active) -> None:
        """Start to copy each active thread's row of `data` to its address; until then poison is there."""
        size = data.shape[1]
        for memory, threads, offsets in self._by_range(op, addresses, size, lanes, True):
            self._store(op, memory, offsets, threads, np.full(offsets.shape, POISON, np.uint8))
            shadow, base = self.block.launch.shadow(memory)
            shadow.copy_pending[offsets + base] = True
            self._uncommitted.append(AsyncCopy(memory, offsets, threads, data[threads]))

    def commit_copies(self) -> None:
        """Make a group of the copies that were started since the last call."""
        self._groups.append(self._uncommitted)
        self._uncommitted = []

    def finish_copies(self, op: Op, pending: int) -> None:
        """Finish the copies of all groups but the last `pending` ones."""
        done = max(0, len(self._groups) - pending)
        for copy in [copy for group in self._groups[:done] for copy in group]:
            shadow, base = self.block.launch.shadow(copy.memory)
            shadow.copy_pending[copy.offsets + base] = False
            self._store(op, copy.memory, copy.offsets, copy.lanes, copy.data)
        del self._groups[:done]

    # Races.

    def _record(
        self, op: Op, memory: MemoryRange, offsets: Numbers, threads: Numbers, *, wrote: bool
    ) -> None:
        """Record an access in the shadow. Raises Race, and PendingCopyAccess before a copy is finished."""
        block = self.block
        shadow, base = block.launch.shadow(memory)
        verb = "writes" if wrote else "reads"
        pending = shadow.copy_pending[offsets + base]
        if pending.any():
            row, column = np.argwhere(pending)[0]
            raise PendingCopyAccess(
                f"{op.name} at {op.location.place} in thread {self.threads[threads[row]]} of tile "
                f"{block.tile} {verb} byte {offsets[row, column]} of "
                f"{memory.name}, to which a copy is on its way that nobody has waited for"
            )
        in_launch = block.tile * block.threads + self.threads[threads]
        accessors = Accessors(in_launch, block.tile, block.threads, block.phase)
        conflict = (shadow.write if wrote else shadow.read)(offsets + base, accessors)
        if conflict is not None:
            tile, thread = divmod(conflict.other, block.threads)
            raise Race(
                f"{op.name} at {op.location.place} in thread {self.threads[threads[conflict.row]]} of "
                f"tile {block.tile} {verb} byte {conflict.byte - base} of "
                f"{memory.name}, which thread {thread} of tile {tile} "
                f"{'writes' if conflict.other_wrote else 'reads'} with no barrier between"
            )


def poison(type: Type) -> Array:
    """An undefined value of a type in each thread of a warp: NaN for floats."""
    match type:
        case DType() as dtype:
            shape: tuple[int, ...] = (WARP,)
        case VectorType(dtype, lanes):
            shape = (WARP, lanes)
        case _:
            return np.full(WARP, NOWHERE, np.int64)
    return np.full((*shape, dtype.bytes), POISON, np.uint8).view(dtype.numpy).reshape(shape)
