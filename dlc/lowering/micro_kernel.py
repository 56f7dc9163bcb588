"""The innermost loop of every generated product: a few rows times one panel, sums in registers.

The right operand comes in *panels*: `panel[k][NR]`, NR columns side by side for every k. For each k the
panel's row is loaded once and multiplied by one element of each row of the left operand. The shape is
chosen so that sums, one panel row and one broadcast element fill the registers: with 16 of them 6 rows of
2 registers, with 32 (AVX-512) 8 rows of 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects import loop, scalar, vec
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.passes import Options
from dlc.ir.types import DType, VectorType
from dlc.lowering.loop_writer import for_each, index

UNROLL = 2
"""Steps of k per round: enough to hide the counting, and short code."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Rows and registers per row of the tile of sums, and the register."""

    rows: int
    registers: int
    register: VectorType
    fma: bool

    @property
    def columns(self) -> int:
        """Columns of a panel."""
        return self.registers * self.register.lanes


def shape_for(dtype: DType, options: Options) -> Shape:
    """The tile of sums for a dtype on the target."""
    lanes = options.vector_bytes // dtype.bytes
    rows, registers = (8, 3) if options.vector_bytes == 64 else (6, 2)
    return Shape(rows, registers, VectorType(dtype, lanes), options.fma)


Sums = list[Value]
"""Registers of sums, row by row."""


def zeros(emit: Builder, shape: Shape) -> Sums:
    """Sums of nothing."""
    dtype = shape.register.dtype
    zero = emit(scalar.Constant(0.0 if dtype.is_float else 0, shape.register))
    return [zero] * (shape.rows * shape.registers)


def multiply(
    emit: Builder,
    shape: Shape,
    rows: Sequence[Value],
    panel: Value,
    depth: Value,
    sums: Sums,
) -> Sums:
    """Add `depth` products to every sum: `rows` point at elements k = 0, 1, ..., the panel at its row 0."""
    steps = index(emit, UNROLL)
    even = emit(scalar.Multiply(emit(scalar.RawDivide(depth, steps)), steps))

    def several(inside: Builder, k: Value, carried: list[Value]) -> Sequence[Value]:
        for step in range(UNROLL):
            at = k if step == 0 else inside(scalar.Add(k, index(inside, step)))
            carried = _step(inside, shape, rows, panel, at, carried)
        return carried

    def one(inside: Builder, k: Value, carried: list[Value]) -> Sequence[Value]:
        return _step(inside, shape, rows, panel, k, carried)

    sums = list(for_each(emit, index(emit, 0), even, UNROLL, sums, several))
    return list(for_each(emit, even, depth, 1, sums, one))


def _step(
    emit: Builder, shape: Shape, rows: Sequence[Value], panel: Value, k: Value, sums: Sums
) -> Sums:
    start = emit(scalar.Multiply(k, index(emit, shape.columns)))
    lanes = shape.register.lanes
    across = [
        emit(vec.Load(panel, emit(scalar.Add(start, index(emit, r * lanes))), shape.register))
        for r in range(shape.registers)
    ]
    result: Sums = []
    for number, row in enumerate(rows):
        element = emit(vec.Broadcast(emit(loop.Load(row, k, shape.register.dtype)), lanes))
        for r, column in enumerate(across):
            result.append(_add(emit, shape, element, column, sums[number * shape.registers + r]))
    return result


def _add(emit: Builder, shape: Shape, one: Value, other: Value, sums: Value) -> Value:
    if shape.fma and shape.register.dtype.is_float:
        return emit(scalar.Fma(one, other, sums))
    return emit(scalar.Add(emit(scalar.Multiply(one, other)), sums))


def store(emit: Builder, shape: Shape, sums: Sums, room: Value) -> None:
    """Write the tile of sums to memory, row by row."""
    for number, value in enumerate(sums):
        emit.place(vec.Store(value, room, index(emit, number * shape.register.lanes)))
