"""The memory that loop-level operations access when they are evaluated: separate, bounds-checked ranges.

The upper bits of a pointer name a range and the lower bits an offset in it, so that arithmetic on a pointer
never leads into another range. Memory that nothing has written holds bytes that are NaN as floats. An
access outside its range, or a write to read-only memory, is an error that names the operation.
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
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1
_BASE = 1 << (_OFFSET_BITS - 1)
"""The offset of a range's first byte: pointers may temporarily point before it."""


class BadAccess(Exception):
    """An operation accesses memory outside the ranges that it was given, or writes read-only memory."""


@dataclass(slots=True)
class MemoryRange:
    """Bytes that pointers may point into; `written` marks the bytes written, where that is recorded."""

    name: str
    """What messages call it."""
    data: Bytes
    writable: bool = True
    written: NDArray[np.bool_] | None = None

    def refuse_write(self, op: Op) -> None:
        """Raises BadAccess if the range is read-only."""
        if not self.writable:
            raise BadAccess(
                f"{op.name} at {op.location.place} writes {self.name}, which is only read"
            )


class AddressSpace:
    """The memory ranges that pointers can point into, and the translation of a pointer to its range."""

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: list[MemoryRange] = []

    def add(self, memory: MemoryRange) -> int:
        """A pointer to the first byte of a new range."""
        self._ranges.append(memory)
        return (len(self._ranges) << _OFFSET_BITS) + _BASE

    def at(self, op: Op, address: int, size: int) -> tuple[MemoryRange, int]:
        """The range that holds the `size` bytes from an address on, and the offset of the first of them.

        Raises BadAccess if they are not all inside the range.
        """
        memory = self._ranges[(address >> _OFFSET_BITS) - 1]
        offset = (address & _OFFSET_MASK) - _BASE
        if size and not 0 <= offset <= memory.data.size - size:
            raise self._out_of_bounds(op, memory, offset, size)
        return memory, offset

    def at_each(
        self, op: Op, addresses: NDArray[np.int64], size: int
    ) -> Iterator[tuple[MemoryRange, NDArray[np.int64], NDArray[np.int64]]]:
        """As `at` for several addresses: each range, the indices of its addresses, and their offsets."""
        numbers = (addresses >> _OFFSET_BITS) - 1
        one_range = bool((numbers == numbers[0]).all())
        for number in numbers[:1] if one_range else np.unique(numbers):
            memory = self._ranges[int(number)]
            indices = np.flatnonzero(numbers == number)
            offsets = (addresses[indices] & _OFFSET_MASK) - _BASE
            outside = (offsets < 0) | (offsets > memory.data.size - size)
            if size and outside.any():
                raise self._out_of_bounds(op, memory, int(offsets[outside][0]), size)
            yield memory, indices, offsets

    def _out_of_bounds(self, op: Op, memory: MemoryRange, offset: int, size: int) -> BadAccess:
        return BadAccess(
            f"{op.name} at {op.location.place} reaches bytes {offset} to {offset + size} of "
            f"{memory.name}, which has {memory.data.size}"
        )


class StepLimit(Exception):
    """The code runs more operations than its evaluation was allowed."""


class EvaluationMachine(Evaluation):
    """One run of loop-level code. Raises StepLimit when it has run `steps` operations."""

    __slots__ = ("_arrays", "_buffers", "_memory", "steps")

    def __init__(self, steps: float = float("inf")) -> None:
        super().__init__()
        self.steps = steps
        self._memory = AddressSpace()
        self._buffers: dict[Op, Array] = {}
        self._arrays: dict[Value, Array] = {}

    def run(
        self,
        block: Block,
        arguments: Sequence[Array],
        lift: Callable[[Value, Array], Array] | None = None,
    ) -> tuple[Array, ...]:
        """The operands of the block's terminator.

        All blocks share one table of values, which is enough because no block runs inside itself.
        """
        arrays = self._arrays
        arrays.update(zip(block.arguments, arguments, strict=True))
        for op in block:
            if op.terminator:
                return tuple([arrays[operand] for operand in op.operands])
            self.steps -= 1
            if self.steps < 0:
                raise StepLimit
            results = op.evaluate(self, *[arrays[operand] for operand in op.operands])
            if isinstance(results, tuple):
                arrays.update(zip(op.results, results, strict=True))
            else:
                arrays[op.results[0]] = results
        raise AssertionError("the block has no terminator")

    def add(self, memory: MemoryRange) -> Array:
        """A pointer to the first byte of a new range."""
        return np.asarray(self._memory.add(memory), np.int64)

    def buffer(self, op: Op, size: int) -> Array:
        """A pointer to the `size` bytes that belong to an operation, the same in every run of it."""
        if op not in self._buffers:
            self._buffers[op] = self.add(MemoryRange(op.name, np.full(size, POISON, np.uint8)))
        return self._buffers[op]

    def read(self, op: Op, pointer: Array, index: Array, dtype: DType, count: int) -> Array:
        """`count` consecutive elements from `pointer[index]` on."""
        address = as_int(pointer) + as_int(index) * dtype.bytes
        memory, offset = self._memory.at(op, address, count * dtype.bytes)
        return memory.data[offset : offset + count * dtype.bytes].view(dtype.numpy).copy()

    def write(self, op: Op, pointer: Array, index: Array, values: Array) -> None:
        """Write consecutive elements from `pointer[index]` on."""
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        address = as_int(pointer) + as_int(index) * values.itemsize
        memory, offset = self._memory.at(op, address, data.size)
        memory.refuse_write(op)
        memory.data[offset : offset + data.size] = data
        if memory.written is not None:
            memory.written[offset : offset + data.size] = True


def machine(at: Evaluation) -> EvaluationMachine:
    """The evaluation of loop-level code that an operation is part of."""
    assert isinstance(at, EvaluationMachine), "operations on memory are evaluated on a machine"
    return at


def as_int(scalar: Array) -> int:
    """An index or a pointer as a Python int."""
    return cast("int", scalar.item())
