"""The results that a product's finished sums become."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.kernel_products import Product
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.lowering.body import Body, Point, Row
from dlc.lowering.lanes import Lane, Uniform


def write_result(
    op: Product, body: Body, emit: Builder, place: Sequence[Value], sum: Value
) -> None:
    """Apply the epilogue to one finished sum and write what it gives."""
    rank = len(op.domain)
    known: dict[Value, Lane | Row] = {
        argument: Uniform(value)
        for argument, value in zip(op.epilogue.arguments[: rank + 1], [*place, sum], strict=True)
    }
    point = body.run(op.epilogue, Point(emit, 1, known))
    first = len(op.operands) - len(op.outs)
    lanes: list[Lane] = [Uniform(position) for position in place]
    for view, value in enumerate(op.epilogue.terminator.operands, first):
        body.store(point, point.lane(value), body.writer.pointers[view], lanes, body.strides(view))
