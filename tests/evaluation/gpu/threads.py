"""Kernels of a few lines for a GPU, for tests: what threads do, written as sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlc.dialects import loop, scalar, simt
from dlc.dialects.expr import Expr, index
from dlc.dialects.loop.memory import MemoryRange
from dlc.evaluation.gpu.warps import Launch
from dlc.ir.core import Block, Builder, Value
from dlc.ir.location import FileLocation
from dlc.ir.types import F32, INDEX, POINTER
from dlc.lowering.kernel_code.words import for_each, when

HERE = FileLocation("kernel.dlm", 1, 1)
FAULT = FileLocation("kernel.dlm", 7, 3)
"""Where the operation stands that is to be blamed."""

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Threads:
    """A point in a kernel, the numbers of tile and thread there, and the memories it is given."""

    emit: Builder
    count: int
    tile: Value
    thread: Value
    given: Sequence[Value]

    @property
    def blamed(self) -> Threads:
        """The same point; what is written there is at FAULT."""
        return self._with(self.emit.at(FAULT))

    def _with(self, emit: Builder) -> Threads:
        return Threads(emit, self.count, self.tile, self.thread, self.given)

    def index(self, number: int) -> Value:
        return index(self.emit, number).value

    def number(self, number: float) -> Value:
        return self.emit(scalar.Constant(number, F32))

    def plus(self, one: Value, other: int | Value) -> Value:
        term = other if isinstance(other, Value) else self.index(other)
        return self.emit(scalar.Add(one, term))

    def times(self, one: Value, factor: int) -> Value:
        return self.emit(scalar.Multiply(one, self.index(factor)))

    def mirrored(self) -> Value:
        """The number of the thread counted from the end: another thread of another warp."""
        return self.emit(scalar.Subtract(self.index(self.count - 1), self.thread))

    def over_all(self) -> Value:
        """The number of the thread in the launch."""
        return self.plus(self.times(self.tile, self.count), self.thread)

    def is_below(self, one: Value, limit: int) -> Value:
        return self.emit(scalar.Compare(one, self.index(limit), "lt"))

    def load(self, memory: Value, place: Value) -> Value:
        return self.emit(loop.Load(memory, place, F32))

    def store(self, value: Value, memory: Value, place: Value) -> None:
        self.emit.place(loop.Store(value, memory, place))

    def shared(self, elements: int) -> Value:
        return self.emit(simt.Shared(elements, F32))

    def copy(
        self, place: Value, room: Value, there: Value, within: Value | None = None, count: int = 4
    ) -> None:
        """Start to copy some of the second memory to a room."""
        inside = self.is_below(self.index(0), 1) if within is None else within
        self.emit.place(simt.Copy(self.given[1], place, room, there, inside, F32, count))

    def commit(self) -> None:
        self.emit.place(simt.Commit())

    def wait(self, pending: int = 0) -> None:
        self.emit.place(simt.Wait(pending))

    def barrier(self) -> None:
        self.emit.place(simt.Barrier())

    def exchange(self, value: Value, distance: int) -> Value:
        return self.emit(simt.ShuffleXor(value, distance))

    def when(self, condition: Value, body: Callable[[Threads], None]) -> None:
        with when(Expr(self.emit, condition)):
            body(self)

    def repeat(self, times: Value, body: Callable[[Threads], None]) -> None:
        with for_each(self.emit, 0, Expr(self.emit, times)):
            body(self)


Write = Callable[[Threads], None]


def launch(write: Write, threads: int, *memory: MemoryRange, tiles: int = 1) -> None:
    """Write a kernel and run its tiles, the last one first."""
    block = Block([INDEX, INDEX, *[POINTER] * len(memory)])
    tile, thread, *given = block.arguments
    emit = Builder(block, HERE)
    write(Threads(emit, threads, tile, thread, given))
    emit.place(loop.Return())
    started = Launch(simt.Func(block, "kernel", threads), memory, ())
    for number in reversed(range(tiles)):
        started.run(number)


def memory(values: Floats, *, writable: bool = True) -> MemoryRange:
    """A copy of these numbers, called x."""
    return MemoryRange("x", values.astype(np.float32).view(np.uint8), writable)


def numbers(stretch: MemoryRange) -> Floats:
    """What is in a memory now."""
    return stretch.data.view(np.float32)
