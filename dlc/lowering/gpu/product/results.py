"""The results that a product's finished sums become."""

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
"""Results that a thread writes at once where it can."""


def written_together(op: Product) -> int:
    """How many neighbouring results a thread can write at once."""
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
    places: Sequence[Sequence[Expr]],
    sums: Sequence[Expr],
) -> None:
    """Apply the epilogue to finished sums, whose places are neighbours, and write what it gives."""
    arguments = op.epilogue.arguments[: len(op.domain) + 1]
    points: list[Point] = []
    for place, sum in zip(places, sums, strict=True):
        known: dict[Value, Lane | Row] = dict(
            zip(arguments, map(Uniform, [*place, sum]), strict=True)
        )
        points.append(body.run(op.epilogue, Point(1, known)))
    first = len(op.operands) - len(op.outs)
    for view, value in enumerate(op.epilogue.terminator.operands, first):
        if len(points) > 1:
            where = writer.offset(view, places[0])
            store_several(writer.pointer(view), where, [uniform(point, value) for point in points])
            continue
        (point,) = points
        body.store_in(point, point.lane(value), view, [Uniform(index) for index in places[0]])


def uniform(point: Point, value: Value) -> Expr:
    """A scalar of the epilogue at a point."""
    lane = point.lane(value)
    assert isinstance(lane, Uniform)
    return lane.value
