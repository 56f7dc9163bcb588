"""`kernel.winograd_kernel`: each register of outputs is transformed in f64 and written to all places.

A task is a panel and some input channels. What it writes to a place is contiguous.
"""

from __future__ import annotations

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, constant
from dlc.dialects.expr import minimum as smaller
from dlc.dialects.kernel.winograd import WINDOW, transforms
from dlc.dialects.kernel.winograd_kernel import WinogradKernel
from dlc.ir.passes import Context
from dlc.ir.types import F32, F64
from dlc.lowering.cpu.winograd.tile_transforms import both_sides
from dlc.lowering.kernel_code.words import for_each, unravel
from dlc.lowering.kernel_code.writer import Lowered, Writer
from dlc.target import cpu_of
from dlc.target.work import nanoseconds, transform_picoseconds

CHANNELS = 32
"""Input channels of a task."""


def lower_winograd_kernel(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for the transform of one kernel."""
    assert isinstance(op, WinogradKernel)
    return _WinogradKernel(op, context).lower()


class _WinogradKernel:
    def __init__(self, op: WinogradKernel, context: Context) -> None:
        self.op = op
        self.cpu = cpu_of(context.options)
        self.writer = Writer(op)
        self.lanes = self.cpu.lanes(F64)

    def lower(self) -> Lowered:
        op, writer, emit = self.op, self.writer, self.writer.emit
        channels, outputs = op.channels
        panels, blocks = -(-outputs // op.columns), -(-channels // CHANNELS)
        counts = [writer.size(panels, "panels"), writer.size(blocks, "blocks")]
        columns = writer.size(op.columns, "columns")
        with for_each(emit, writer.first, writer.last) as number:
            p, block = unravel(number, counts)
            first = p * columns
            width = smaller(writer.size(outputs, "o") - first, columns)
            whole = width // self.lanes * self.lanes
            start = block * CHANNELS
            end = smaller(start + CHANNELS, writer.size(channels, "c"))
            with for_each(emit, start, end) as channel:
                with for_each(emit, 0, whole, self.lanes) as column:
                    self._transform(p, channel, column, self.lanes)
                with for_each(emit, whole, width) as column:
                    self._transform(p, channel, column, 1)
                with for_each(emit, width, columns) as column:
                    zero = constant(emit, 0, F32)
                    self._write(p, channel, column, [zero] * op.places)
        elements = op.places * min(channels, CHANNELS) * op.columns
        work = elements * transform_picoseconds(self.cpu.costs)
        return writer.finish(panels * blocks, nanoseconds(work))

    def _transform(self, p: Expr, channel: Expr, column: Expr, lanes: int) -> None:
        """Transform some neighbouring outputs of a channel."""
        writer = self.writer
        output = p * writer.size(self.op.columns, "columns") + column
        taps = [
            [writer.part(0, [h, w, channel]).load(output, lanes).cast(F64) for w in range(WINDOW)]
            for h in range(WINDOW)
        ]
        places = both_sides(transforms(self.op.tile).kernel, taps, fused=self.cpu.fma)
        self._write(p, channel, column, [place.cast(F32) for place in places])

    def _write(self, p: Expr, channel: Expr, column: Expr, places: list[Expr]) -> None:
        for number, place in enumerate(places):
            self.writer.part(1, [number, p, channel]).store(column, place)
