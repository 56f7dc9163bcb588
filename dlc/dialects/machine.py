"""What the operations of the loop level work on when they are evaluated: memory, in stretches apart.

A pointer is a number whose upper bits say which stretch it points into and whose lower bits say where, so
that arithmetic on it leads nowhere else. Memory that nothing has written holds bytes that are NaN as
floats. An access outside its stretch, or a write to memory that is only read, is an error that names the
operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dlc.ir.core import Block, Op, Value
from dlc.ir.evaluation import Array, Evaluation
from dlc.ir.types import DType

Bytes: TypeAlias = NDArray[np.uint8]

POISON = 0xFF
"""A byte that makes every float NaN and every integer unlikely."""

_OFFSET_BITS = 44
_MIDDLE = 1 << (_OFFSET_BITS - 1)
"""Where a stretch begins among the offsets: pointers may go below it meanwhile."""


class BadAccess(Exception):
    """Code reaches memory that is not its own."""


@dataclass(slots=True)
class Stretch:
    """Bytes that pointers may point into, what to call them, and, if asked for, which were written."""

    name: str
    data: Bytes
    writable: bool = True
    written: NDArray[np.bool_] | None = None


class Enough(Exception):
    """The code takes longer than it was to be run for."""


class Machine(Evaluation):
    """One run of loop-level code; after so many `steps`, operations that were run, it raises Enough."""

    __slots__ = ("_buffers", "_known", "_stretches", "steps")

    def __init__(self, steps: float = float("inf")) -> None:
        super().__init__()
        self.steps = steps
        self._stretches: list[Stretch] = []
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
                raise Enough
            results = op.evaluate(self, *[known[operand] for operand in op.operands])
            if isinstance(results, tuple):
                known.update(zip(op.results, results, strict=True))
            else:
                known[op.results[0]] = results
        raise AssertionError("the block has no terminator")

    def add(self, stretch: Stretch) -> Array:
        """A pointer to the first byte of a stretch."""
        self._stretches.append(stretch)
        return np.asarray((len(self._stretches) << _OFFSET_BITS) + _MIDDLE, np.int64)

    def buffer(self, op: Op, size: int) -> Array:
        """A pointer to the room that an operation has for itself."""
        if op not in self._buffers:
            self._buffers[op] = self.add(Stretch(op.name, np.full(size, POISON, np.uint8)))
        return self._buffers[op]

    def read(self, op: Op, pointer: Array, index: Array, dtype: DType, count: int) -> Array:
        """Consecutive elements from `pointer[index]` on."""
        stretch, start = self._place(op, pointer, index, dtype, count)
        return stretch.data[start : start + count * dtype.bytes].view(dtype.numpy).copy()

    def write(self, op: Op, pointer: Array, index: Array, values: Array) -> None:
        """Write consecutive elements from `pointer[index]` on."""
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        size = values.itemsize
        stretch, start = self._at(op, number(pointer) + number(index) * size, data.size)
        if not stretch.writable:
            raise BadAccess(
                f"{op.name} at {op.location.place} writes {stretch.name}, which is only read"
            )
        stretch.data[start : start + data.size] = data
        if stretch.written is not None:
            stretch.written[start : start + data.size] = True

    def _place(
        self, op: Op, pointer: Array, index: Array, dtype: DType, count: int
    ) -> tuple[Stretch, int]:
        return self._at(op, number(pointer) + number(index) * dtype.bytes, count * dtype.bytes)

    def _at(self, op: Op, address: int, size: int) -> tuple[Stretch, int]:
        stretch = self._stretches[(address >> _OFFSET_BITS) - 1]
        start = (address & ((1 << _OFFSET_BITS) - 1)) - _MIDDLE
        if size and not 0 <= start <= stretch.data.size - size:
            raise BadAccess(
                f"{op.name} at {op.location.place} reaches bytes {start} to {start + size} of "
                f"{stretch.name}, which has {stretch.data.size}"
            )
        return stretch, start


def machine(at: Evaluation) -> Machine:
    """The run that an operation of the loop level is in."""
    assert isinstance(at, Machine), "operations on memory are evaluated on a machine"
    return at


def number(scalar: Array) -> int:
    """An index or a pointer as Python's number."""
    return cast("int", scalar.item())
