"""`kernel.concatenate` as loops: each row of the result is written piece by piece, in whole registers."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, loop, scalar, vec
from dlc.dialects.kernel_pieces import Concatenate
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.dims import Size
from dlc.ir.passes import Context
from dlc.ir.types import DType, VectorType
from dlc.lowering.loop_words import for_each, index, minimum, times, whole_registers
from dlc.lowering.loop_writer import Lowered, Writer
from dlc.lowering.work import ceil_divide, nanoseconds, tile_rows

BYTE_PICOSECONDS = 80
"""Reading and writing one byte, roughly, from caches that other cores do not share."""


def lower_concatenate(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for one concatenation."""
    assert isinstance(op, Concatenate)
    writer = Writer(op)
    (result,) = op.result_types()
    rows, width = result.shape
    dtype = result.dtype
    lanes = max(1, min(context.options.vector_bytes // dtype.bytes, 16))
    work = width * dtype.bytes * BYTE_PICOSECONDS
    per_tile = tile_rows(work)
    count = writer.size(per_tile, "rows of a tile").value
    lower = writer.emit(scalar.Multiply(writer.first.value, count))
    end = writer.emit(scalar.Multiply(writer.last.value, count))
    upper = minimum(writer.emit, end, writer.size(rows, "rows").value)

    def row(emit: Builder, number: Value, _: list[Value]) -> Sequence[Value]:
        _write_row(emit, op, writer, number, lanes)
        return ()

    for_each(writer.emit, lower, upper, 1, (), row, parallel=True)
    return writer.finish(ceil_divide(rows, per_tile), nanoseconds(per_tile * work))


def _write_row(emit: Builder, op: Concatenate, writer: Writer, number: Value, lanes: int) -> None:
    out = len(op.inputs)
    dtype = writer.views[out].dtype
    start: Size = 0
    target = emit(
        loop.Offset(writer.pointers[out], times(emit, number, writer.stride(out, 0)), dtype)
    )
    for part in range(out):
        offset = times(emit, number, writer.stride(part, 0))
        source = emit(loop.Offset(writer.pointers[part], offset, dtype))
        place = emit(loop.Offset(target, writer.size(start, "start", part).value, dtype))
        length = writer.views[part].shape[1]
        _copy(emit, source, place, writer.size(length, "length", part).value, dtype, lanes)
        start = start + length


def _copy(
    emit: Builder, source: Value, target: Value, length: Value, dtype: DType, lanes: int
) -> None:
    """Copy so many elements: whole registers, then what is left one by one."""

    def register(inside: Builder, j: Value, _: list[Value]) -> Sequence[Value]:
        value = inside(vec.Load(source, j, VectorType(dtype, lanes)))
        inside.place(vec.Store(value, target, j))
        return ()

    def one(inside: Builder, j: Value, _: list[Value]) -> Sequence[Value]:
        inside.place(loop.Store(inside(loop.Load(source, j, dtype)), target, j))
        return ()

    zero = index(emit, 0)
    whole = zero
    if lanes > 1:
        whole = whole_registers(emit, zero, length, lanes)
        for_each(emit, zero, whole, lanes, (), register, parallel=True)
    for_each(emit, whole, length, 1, (), one, parallel=True)
