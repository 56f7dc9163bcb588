"""The epilogue of a product on a GPU: results from finished sums."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, simt
from dlc.dialects.expr import Expr
from dlc.dialects.kernel.products import Product
from dlc.ir.core import Value
from dlc.ir.types import BOOL
from dlc.lowering.gpu.writer import GridWriter, store_several
from dlc.lowering.kernel_code.alignment import in_units
from dlc.lowering.kernel_code.body import Body, Point, Row
from dlc.lowering.kernel_code.lanes import Lane, Uniform

TOGETHER = 4
"""Results that a thread writes by one store where it can."""


def written_together(op: Product) -> int:
    """How many neighbouring results a thread can write by one store."""
    types = [kernel.array_type(out) for out in op.outs]
    fit = all(
        type.dtype is not BOOL
        and TOGETHER <= TOGETHER * type.dtype.bytes <= simt.WIDE
        and in_units(out, type.rank - 1, TOGETHER * type.dtype.bytes)
        for out, type in zip(op.outs, types, strict=True)
    )
    return TOGETHER if fit else 1


def write_results(
    op: Product,
    body: Body,
    writer: GridWriter,
    indices: Sequence[Sequence[Expr]],
    sums: Sequence[Expr],
) -> None:
    """Apply the epilogue to the finished sums at neighbouring indices, and write the results."""
    arguments = op.epilogue.arguments[: len(op.domain) + 1]
    points: list[Point] = []
    for index, sum in zip(indices, sums, strict=True):
        lanes: dict[Value, Lane | Row] = dict(
            zip(arguments, map(Uniform, [*index, sum]), strict=True)
        )
        points.append(body.run(op.epilogue, Point(1, lanes)))
    first = len(op.operands) - len(op.outs)
    for view, value in enumerate(op.epilogue.terminator.operands, first):
        if len(points) > 1:
            offset = writer.offset(view, indices[0])
            elements = [uniform(point, value) for point in points]
            store_several(writer.pointer(view), offset, elements)
            continue
        (point,) = points
        body.store_in(point, point.lane(value), view, [Uniform(index) for index in indices[0]])


def uniform(point: Point, value: Value) -> Expr:
    """A scalar of the epilogue at a point."""
    lane = point.lane(value)
    assert isinstance(lane, Uniform)
    return lane.value
