"""The memory that a kernel works on as it is evaluated: of the launch, of a block, of a warp.

Every access is looked up in the shadow (`dlc.evaluation.gpu.shadow_memory`), so that a race is found
however the warps happen to be run. A copy that goes on meanwhile has left poison where it goes; what it
brings is there when the thread that started it has waited for it, and who looks there sooner is too
early.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlc.dialects import loop, scalar, simt
from dlc.dialects.loop.memory import POISON, AddressSpace, BadAccess, Bytes, MemoryRange, StepLimit
from dlc.dialects.simt import WARP
from dlc.evaluation.gpu.shadow_memory import Moment, Numbers, Race, Shadow
from dlc.ir.core import Array, Evaluation, Op
from dlc.ir.types import DType, Type, VectorType

Mask = NDArray[np.bool_]
NOWHERE = -1
"""A pointer that points into no stretch."""


@dataclass(frozen=True, slots=True)
class Active:
    """Which threads of a warp run an operation."""

    mask: Mask
    rows: Numbers
    all: bool


def active(mask: Mask) -> Active:
    """The threads that the mask names."""
    rows = np.flatnonzero(mask)
    return Active(mask, rows, rows.size == WARP)


class Divergence(Exception):
    """Not all threads come to where all must be."""


class PendingCopyAccess(Exception):
    """Memory is used to which a copy is still on its way."""


@dataclass(frozen=True, slots=True)
class Flight:
    """A copy on its way: what it brings, where to, and the threads of the warp that started it."""

    stretch: MemoryRange
    places: Numbers
    rows: Numbers
    data: Bytes


class LaunchMemory:
    """The memory that all blocks of a launch see, its shadow, and how many operations may be run."""

    def __init__(self, function: simt.Func, memory: AddressSpace, steps: float) -> None:
        self.function = function
        self.memory = memory
        self.steps = steps
        self.failures: list[tuple[int, ...]] | None = None
        """Where a kernel notes that it fails, if that is to raise nothing: code, tile and two numbers."""
        self._shadows: dict[int, tuple[Array, Shadow]] = {}
        self._places: dict[int, tuple[MemoryRange, Shadow, int]] = {}
        self._constants: dict[Op, Array] = {}

    def count_step(self) -> None:
        """An operation is run. Raises StepLimit."""
        self.steps -= 1
        if self.steps < 0:
            raise StepLimit

    def shadow(self, stretch: MemoryRange) -> tuple[Shadow, int]:
        """The shadow of the memory that a stretch is in, and where in it the stretch begins."""
        found = self._places.get(id(stretch))
        if found is None:
            whole: Array = stretch.data
            while isinstance(whole.base, np.ndarray):
                whole = whole.base
            # Arrays and stretches are kept, so that no other one gets the address.
            _, shadow = self._shadows.setdefault(id(whole), (whole, Shadow(whole.nbytes)))
            start = stretch.data.ctypes.data - whole.ctypes.data
            found = self._places[id(stretch)] = stretch, shadow, start
        return found[1:]

    def constant(self, op: scalar.Constant, at: Evaluation) -> Array:
        """A constant in every thread of a warp."""
        if op not in self._constants:
            shape = poison(op.type).shape
            self._constants[op] = np.broadcast_to(op.evaluate(at), shape)
        return self._constants[op]


class BlockMemory:
    """What the threads that work on one tile share. Its `phase` counts the barriers passed."""

    def __init__(self, launch: LaunchMemory, tile: int) -> None:
        self.launch = launch
        self.tile = tile
        self.threads = launch.function.threads
        self.phase = 0
        self._shared: dict[Op, int] = {}

    def shared(self, op: simt.Shared) -> int:
        """A pointer to the room that an operation gives the whole block."""
        if op not in self._shared:
            data = np.full(op.elements * op.dtype.bytes, POISON, np.uint8)
            self._shared[op] = self.launch.memory.add(MemoryRange("shared memory", data))
        return self._shared[op]


class WarpMemory(Evaluation):
    """What 32 threads of a block that run the same operation at the same time see and hold."""

    __slots__ = ("_buffers", "_groups", "_started", "block", "threads")

    def __init__(self, block: BlockMemory, number: int) -> None:
        super().__init__()
        self.block = block
        self.threads = np.arange(number * WARP, (number + 1) * WARP, dtype=np.int64)
        self._buffers: dict[Op, Array] = {}
        self._started: list[Flight] = []
        self._groups: list[list[Flight]] = []

    def refuse_absence(self, op: Op, here: Active) -> None:
        """Raises Divergence where a thread of the warp is missing."""
        if not here.all:
            missing = self.threads[~here.mask][0]
            raise Divergence(
                f"thread {missing} of tile {self.block.tile} does not come to the {op.name} at "
                f"{op.location.place}, where all must be"
            )

    def buffer(self, op: loop.Buffer) -> Array:
        """For each thread a pointer to room of its own."""
        if op not in self._buffers:
            size, memory = op.elements * op.dtype.bytes, self.block.launch.memory
            rooms = [MemoryRange(op.name, np.full(size, POISON, np.uint8)) for _ in range(WARP)]
            self._buffers[op] = np.array([memory.add(room) for room in rooms], np.int64)
        return self._buffers[op]

    def read(
        self,
        op: Op,
        addresses: Numbers,
        dtype: DType,
        count: int,
        here: Active,
        *,
        aligned: bool = False,
    ) -> Array:
        """`count` neighbouring elements at each address, a row for each thread.

        Where they are `aligned`, each address is a multiple of the bytes that a thread reads.
        """
        size = count * dtype.bytes
        result = np.full((WARP, size), POISON, np.uint8)
        for stretch, rows, places in self._places(op, addresses, size, here, aligned):
            result[rows] = stretch.data[places]
            self._note(op, stretch, places, rows, wrote=False)
        return result.view(dtype.numpy)

    def write(
        self, op: Op, addresses: Numbers, values: Array, here: Active, *, aligned: bool = False
    ) -> None:
        """Write the elements of each row to neighbouring places from the thread's address on."""
        data = np.ascontiguousarray(values).reshape(WARP, -1).view(np.uint8)
        for stretch, rows, places in self._places(op, addresses, data.shape[1], here, aligned):
            self._put(op, stretch, places, rows, data[rows])

    def _put(
        self, op: Op, stretch: MemoryRange, places: Numbers, rows: Numbers, data: Bytes
    ) -> None:
        stretch.refuse_write(op)
        self._note(op, stretch, places, rows, wrote=True)
        stretch.data[places] = data
        if stretch.written is not None:
            stretch.written[places] = True

    def _places(
        self, op: Op, addresses: Numbers, size: int, here: Active, aligned: bool
    ) -> Iterator[tuple[MemoryRange, Numbers, Numbers]]:
        """The bytes at the addresses, by the stretch that they are in: threads, and places in it."""
        launch = self.block.launch
        for stretch, rows, starts in launch.memory.at_each(op, addresses[here.rows], size):
            if aligned and ((starts + launch.shadow(stretch)[1]) % size).any():
                raise BadAccess(
                    f"{op.name} at {op.location.place} reaches a byte of {stretch.name} whose "
                    f"number is no multiple of {size}"
                )
            yield stretch, here.rows[rows], starts[:, None] + np.arange(size)

    def refuse_unaligned(self, op: Op, addresses: Numbers, size: int) -> None:
        """Raises BadAccess where an address is no multiple of so many bytes."""
        for _ in self._places(op, addresses, size, active(np.ones(WARP, np.bool_)), True):
            pass

    # Copies that go on meanwhile.

    def start_copy(self, op: Op, data: Bytes, addresses: Numbers, here: Active) -> None:
        """What each row of `data` has is on its way to the thread's address; poison is there."""
        for stretch, rows, places in self._places(op, addresses, data.shape[1], here, True):
            self._put(op, stretch, places, rows, np.full(places.shape, POISON, np.uint8))
            shadow, start = self.block.launch.shadow(stretch)
            shadow.flying[places + start] = True
            self._started.append(Flight(stretch, places, rows, data[rows]))

    def commit_copies(self) -> None:
        """What was started since the last time is a group."""
        self._groups.append(self._started)
        self._started = []

    def land_copies(self, op: Op, pending: int) -> None:
        """The groups but for the last ones are where they go."""
        done = max(0, len(self._groups) - pending)
        for flight in [flight for group in self._groups[:done] for flight in group]:
            shadow, start = self.block.launch.shadow(flight.stretch)
            shadow.flying[flight.places + start] = False
            self._put(op, flight.stretch, flight.places, flight.rows, flight.data)
        del self._groups[:done]

    # Races.

    def _note(
        self, op: Op, stretch: MemoryRange, places: Numbers, rows: Numbers, *, wrote: bool
    ) -> None:
        """Tell the shadow. Raises Race, and PendingCopyAccess where a copy is still on its way there."""
        block = self.block
        shadow, start = block.launch.shadow(stretch)
        flying = shadow.flying[places + start]
        if flying.any():
            row, byte = np.argwhere(flying)[0]
            raise PendingCopyAccess(
                f"{op.name} at {op.location.place} in thread {self.threads[rows[row]]} of tile "
                f"{block.tile} {'writes' if wrote else 'reads'} byte {places[row, byte]} of "
                f"{stretch.name}, to which a copy is on its way that nobody has waited for"
            )
        who = block.tile * block.threads + self.threads[rows]
        now = Moment(who, block.tile, block.threads, block.phase)
        clash = (shadow.write if wrote else shadow.read)(places + start, now)
        if clash is not None:
            tile, thread = divmod(clash.other, block.threads)
            raise Race(
                f"{op.name} at {op.location.place} in thread {self.threads[rows[clash.row]]} of tile "
                f"{block.tile} {'writes' if wrote else 'reads'} byte {clash.byte - start} of "
                f"{stretch.name}, which thread {thread} of tile {tile} "
                f"{'writes' if clash.other_wrote else 'reads'} with no barrier between"
            )


def poison(type: Type) -> Array:
    """Nothing yet, for each thread of a warp."""
    match type:
        case DType() as dtype:
            shape: tuple[int, ...] = (WARP,)
        case VectorType(dtype, lanes):
            shape = (WARP, lanes)
        case _:
            return np.full(WARP, NOWHERE, np.int64)
    return np.full((*shape, dtype.bytes), POISON, np.uint8).view(dtype.numpy).reshape(shape)
