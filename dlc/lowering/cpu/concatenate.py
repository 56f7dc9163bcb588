"""`kernel.concatenate` as loops: each row of the result is written piece by piece, in whole registers."""

from __future__ import annotations

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, Index, Pointer, index, minimum
from dlc.dialects.kernel.pieces import Concatenate
from dlc.ir.dims import Size, ceil_divide
from dlc.ir.passes import Context
from dlc.lowering.kernel_code.words import for_each, whole_registers
from dlc.lowering.kernel_code.writer import Lowered, Writer
from dlc.target import cpu_of
from dlc.target.work import nanoseconds, tile_rows


def lower_concatenate(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for one concatenation."""
    assert isinstance(op, Concatenate)
    writer = Writer(op)
    (result,) = op.result_types()
    rows, width = result.shape
    dtype = result.dtype
    cpu = cpu_of(context.options)
    lanes = min(cpu.lanes(dtype), 16)
    work = width * dtype.bytes * cpu.costs.copied_byte
    per_tile = tile_rows(rows, work, cpu.costs)
    count = writer.size(per_tile, "rows of a tile")
    lower = writer.first * count
    upper = minimum(writer.last * count, writer.size(rows, "rows"))
    with for_each(writer.emit, lower, upper, parallel=True) as row:
        _write_row(op, writer, row, lanes)
    return writer.finish(ceil_divide(rows, per_tile), nanoseconds(per_tile * work))


def _write_row(op: Concatenate, writer: Writer, row: Expr, lanes: int) -> None:
    out = len(op.inputs)
    target = writer.pointer(out) + row * writer.stride(out, 0)
    start: Size = 0
    for part in range(out):
        source = writer.pointer(part) + row * writer.stride(part, 0)
        place = target + writer.size(start, "start", part)
        length = writer.views[part].shape[1]
        _copy(source, place, writer.size(length, "length", part), lanes)
        start = start + length


def _copy(source: Pointer, target: Pointer, length: Expr, lanes: int) -> None:
    """Copy `length` elements: whole registers, then the remainder one by one."""
    emit = length.emit
    whole: Index = 0
    if lanes > 1:
        whole = whole_registers(index(emit, 0), length, lanes)
        with for_each(emit, 0, whole, lanes, parallel=True) as j:
            target.store(j, source.load(j, lanes))
    with for_each(emit, whole, length, parallel=True) as j:
        target[j] = source[j]
