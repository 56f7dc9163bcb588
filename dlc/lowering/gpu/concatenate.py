"""`kernel.concatenate` for a GPU: each thread selects the source of its elements of the result."""

from __future__ import annotations

from dlc.dialects import kernel
from dlc.dialects.expr import Expr
from dlc.dialects.kernel.pieces import Concatenate
from dlc.ir.dims import Size
from dlc.ir.passes import Context
from dlc.lowering.gpu.elements import (
    THREADS,
    ElementIndex,
    copy_elements,
    groups_of,
    in_groups,
    over_groups,
    whole_stores,
)
from dlc.lowering.gpu.writer import GridWriter
from dlc.lowering.kernel_code.body import Body
from dlc.lowering.kernel_code.words import either
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target import gpu_of
from dlc.target.work import nanoseconds


def lower_concatenate(op: Concatenate, context: Context) -> Lowered:
    """The function for one concatenation."""
    (result,) = op.result_types()
    widths = [kernel.array_type(value).shape[1] for value in op.inputs]
    group = whole_stores(op.outs[0])
    for width in widths:
        group = in_groups(width, group)
    writer = GridWriter(op, THREADS)
    pieces = _Pieces(op, writer, widths, group)
    tiles = over_groups(writer, result.shape, group, groups_of(group), pieces.write)
    costs = gpu_of(context.options).costs
    work = THREADS * group * groups_of(group) * costs.copied_element
    return writer.finish(tiles, nanoseconds(work))


class _Pieces:
    def __init__(self, op: Concatenate, writer: GridWriter, widths: list[Size], group: int) -> None:
        self.out = len(op.inputs)
        self.writer = writer
        self.widths = widths
        self.body = Body(writer, {}, group)

    def write(self, places: list[ElementIndex], lanes: int) -> None:
        """Write the groups of the result that begin at these places."""
        for row, column in places:
            self._from(lanes, row, column, column, 0)

    def _from(self, lanes: int, row: Expr, column: Expr, left: Expr, part: int) -> None:
        """Write a group of the result, which begins `left` columns behind the start of a piece."""

        def copy() -> None:
            copy_elements(self.body, lanes, part, [row, left], self.out, [row, column])

        if part == self.out - 1:
            copy()
            return
        width = self.writer.size(self.widths[part], "width", part)
        either(left < width, copy, lambda: self._from(lanes, row, column, left - width, part + 1))
