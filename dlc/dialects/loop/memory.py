"""What the operations of the loop level work on when they are evaluated: memory, in stretches apart.

A pointer is a number whose upper bits say which stretch it points into and whose lower bits say where, so
that arithmetic on it leads nowhere else. Memory that nothing has written holds bytes that are NaN as
floats. An access outside its stretch, or a write to memory that is only read, is an error that names the
operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dlc.ir.core import Array, Block, Evaluation, Op, Value
from dlc.ir.types import DType

Bytes: TypeAlias = NDArray[np.uint8]

POISON = 0xFF
"""A byte that makes every float NaN and every integer unlikely."""

_OFFSET_BITS = 44
_OFFSET = (1 << _OFFSET_BITS) - 1
_MIDDLE = 1 << (_OFFSET_BITS - 1)
"""Where a stretch begins among the offsets: pointers may go below it meanwhile."""


class BadAccess(Exception):
    """Code reaches memory that is not its own."""


@dataclass(slots=True)
class MemoryRange:
    """Bytes that pointers may point into, what to call them, and, if asked for, which were written."""

    name: str
    data: Bytes
    writable: bool = True
    written: NDArray[np.bool_] | None = None

    def refuse_write(self, op: Op) -> None:
        """Raises BadAccess if nothing may be written here."""
        if not self.writable:
            raise BadAccess(
                f"{op.name} at {op.location.place} writes {self.name}, which is only read"
            )


class AddressSpace:
    """The stretches that there are, and how a number points into one of them."""

    __slots__ = ("_stretches",)

    def __init__(self) -> None:
        self._stretches: list[MemoryRange] = []

    def add(self, stretch: MemoryRange) -> int:
        """A pointer to the first byte of a stretch."""
        self._stretches.append(stretch)
        return (len(self._stretches) << _OFFSET_BITS) + _MIDDLE

    def at(self, op: Op, address: int, size: int) -> tuple[MemoryRange, int]:
        """The stretch that so many bytes from an address on are in, and where in it they begin."""
        stretch = self._stretches[(address >> _OFFSET_BITS) - 1]
        start = (address & _OFFSET) - _MIDDLE
        if size and not 0 <= start <= stretch.data.size - size:
            raise self._outside(op, stretch, start, size)
        return stretch, start

    def at_each(
        self, op: Op, addresses: NDArray[np.int64], size: int
    ) -> Iterator[tuple[MemoryRange, NDArray[np.int64], NDArray[np.int64]]]:
        """The same for several addresses: each stretch, which of them are in it, and where in it."""
        numbers = (addresses >> _OFFSET_BITS) - 1
        alike = bool((numbers == numbers[0]).all())
        for number in numbers[:1] if alike else np.unique(numbers):
            stretch = self._stretches[int(number)]
            rows = np.flatnonzero(numbers == number)
            starts = (addresses[rows] & _OFFSET) - _MIDDLE
            wrong = (starts < 0) | (starts > stretch.data.size - size)
            if size and wrong.any():
                raise self._outside(op, stretch, int(starts[wrong][0]), size)
            yield stretch, rows, starts

    def _outside(self, op: Op, stretch: MemoryRange, start: int, size: int) -> BadAccess:
        return BadAccess(
            f"{op.name} at {op.location.place} reaches bytes {start} to {start + size} of "
            f"{stretch.name}, which has {stretch.data.size}"
        )


class StepLimit(Exception):
    """The code takes longer than it was to be run for."""


class EvaluationMachine(Evaluation):
    """One run of loop-level code; after so many `steps`, operations that were run, it raises StepLimit."""

    __slots__ = ("_buffers", "_known", "_memory", "steps")

    def __init__(self, steps: float = float("inf")) -> None:
        super().__init__()
        self.steps = steps
        self._memory = AddressSpace()
        self._buffers: dict[Op, Array] = {}
        self._known: dict[Value, Array] = {}

    def run(
        self,
        block: Block,
        arguments: Sequence[Array],
        lift: Callable[[Value, Array], Array] | None = None,
    ) -> tuple[Array, ...]:
        """What the block hands on. All blocks see one table of values: none is run within itself."""
        known = self._known
        known.update(zip(block.arguments, arguments, strict=True))
        for op in block:
            if op.terminator:
                return tuple([known[operand] for operand in op.operands])
            self.steps -= 1
            if self.steps < 0:
                raise StepLimit
            results = op.evaluate(self, *[known[operand] for operand in op.operands])
            if isinstance(results, tuple):
                known.update(zip(op.results, results, strict=True))
            else:
                known[op.results[0]] = results
        raise AssertionError("the block has no terminator")

    def add(self, stretch: MemoryRange) -> Array:
        """A pointer to the first byte of a stretch."""
        return np.asarray(self._memory.add(stretch), np.int64)

    def buffer(self, op: Op, size: int) -> Array:
        """A pointer to the room that an operation has for itself."""
        if op not in self._buffers:
            self._buffers[op] = self.add(MemoryRange(op.name, np.full(size, POISON, np.uint8)))
        return self._buffers[op]

    def read(self, op: Op, pointer: Array, index: Array, dtype: DType, count: int) -> Array:
        """Consecutive elements from `pointer[index]` on."""
        address = as_int(pointer) + as_int(index) * dtype.bytes
        stretch, start = self._memory.at(op, address, count * dtype.bytes)
        return stretch.data[start : start + count * dtype.bytes].view(dtype.numpy).copy()

    def write(self, op: Op, pointer: Array, index: Array, values: Array) -> None:
        """Write consecutive elements from `pointer[index]` on."""
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        size = values.itemsize
        stretch, start = self._memory.at(op, as_int(pointer) + as_int(index) * size, data.size)
        stretch.refuse_write(op)
        stretch.data[start : start + data.size] = data
        if stretch.written is not None:
            stretch.written[start : start + data.size] = True


def machine(at: Evaluation) -> EvaluationMachine:
    """The run that an operation of the loop level is in."""
    assert isinstance(at, EvaluationMachine), "operations on memory are evaluated on a machine"
    return at


def as_int(scalar: Array) -> int:
    """An index or a pointer as Python's number."""
    return cast("int", scalar.item())
