"""The epilogue of a product, applied row by row to sums in memory, in registers along the rows."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.expr import Expr, Pointer
from dlc.dialects.kernel.products import Product
from dlc.ir.core import Value
from dlc.lowering.kernel_code.body import Body, Point, Row
from dlc.lowering.kernel_code.lanes import Lane, Uniform, neighbours, varying
from dlc.lowering.kernel_code.writer import KernelWriter


def is_identity(op: Product) -> bool:
    """Whether the epilogue hands the sums on as they are."""
    sums = op.epilogue.arguments[len(op.domain)]
    return op.epilogue.terminator.operands == (sums,)


def write_epilogue(
    op: Product,
    body: Body,
    leading: Sequence[Expr],
    column: Expr,
    width: Expr,
    sums: Pointer,
    targets: Sequence[Pointer],
) -> None:
    """Apply the epilogue to one row of sums.

    `leading` are the indices of the row along all axes of the domain but the last, `column` is where
    along the last it begins; `sums` points at its first number and `targets` at its first results.
    """
    *outer, last, total = op.epilogue.arguments[: len(op.domain) + 1]
    row: dict[Value, Lane | Row] = dict(zip(outer, map(Uniform, leading), strict=True))
    for lanes, j in body.register_loops(0, width):
        place = neighbours(column + j, lanes)
        sum = varying(sums.load(j, lanes), lanes)
        point = body.run(op.epilogue, Point(lanes, {**row, last: place, total: sum}))
        for result, target in zip(op.epilogue.terminator.operands, targets, strict=True):
            body.store(point, point.lane(result), target, [neighbours(j, lanes)], [1])


def epilogue_body(op: Product, writer: KernelWriter, lanes: int) -> Body:
    """What writes the epilogue of a product: its extra arrays are the views after the operands."""
    extras = op.epilogue.arguments[len(op.domain) + 1 :]
    first = len(op.operands) - len(op.outs) - len(extras)
    return Body(writer, {argument: first + k for k, argument in enumerate(extras)}, lanes)
