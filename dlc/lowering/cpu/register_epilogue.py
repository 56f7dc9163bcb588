"""The epilogue of a product on a CPU, applied to sums while they are still in registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias

from dlc.dialects import scalar
from dlc.dialects.expr import Expr, Index, Pointer
from dlc.dialects.kernel.products import Product
from dlc.ir.core import Value
from dlc.lowering.cpu.micro_kernel import Shape, Sums
from dlc.lowering.kernel_code.body import Body, Point, Row, split
from dlc.lowering.kernel_code.lanes import Lane, Uniform, varying

MAX_OPERATIONS = 32
"""Operations of an epilogue that is unrolled for each register of sums."""


def in_registers(op: Product, body: Body, shape: Shape) -> bool:
    """Whether the epilogue can be applied to sums in registers: it is short, and as wide as they are."""
    operations = sum(not isinstance(step, scalar.Constant) for step in op.epilogue)
    return body.lanes == shape.register.lanes and operations <= MAX_OPERATIONS


@dataclass(frozen=True, slots=True)
class Tile:
    """The indices of some registers of sums: `rows` and `columns` along the last two axes of the domain,
    `batch` along the others. There are `lanes` elements in a register."""

    batch: Sequence[Expr]
    rows: Sequence[Expr]
    columns: Sequence[Lane]
    lanes: int


Target: TypeAlias = tuple[Pointer, Index]
"""The results of a batch, and the stride of their rows."""


def write_registers(
    op: Product, body: Body, tile: Tile, sums: Sums, targets: Sequence[Target]
) -> None:
    """Apply the epilogue to sums in registers, which are in row-major order."""
    *outer, row, last, total = op.epilogue.arguments[: len(op.domain) + 1]
    batch: dict[Value, Lane | Row] = dict(zip(outer, map(Uniform, tile.batch), strict=True))
    once, each = split(op.epilogue, [row, total])
    across = len(tile.columns)
    points: dict[tuple[int, int], Point] = {}
    for v, column_lanes in enumerate(tile.columns):
        column = body.ops(once, Point(tile.lanes, {**batch, last: column_lanes}))
        for r, m in enumerate(tile.rows):
            sum = varying(sums[r * across + v], tile.lanes)
            points[r, v] = body.ops(each, column.at(tile.lanes, {row: Uniform(m), total: sum}))
    # Nothing is stored before all is loaded: rows are often a multiple of a page apart, and a processor
    # that compares the last bits of addresses only would wait for the stores of the row before.
    for result, (pointer, stride) in zip(op.epilogue.terminator.operands, targets, strict=True):
        for (r, v), point in sorted(points.items(), key=itemgetter(0)):
            indices: list[Lane] = [Uniform(tile.rows[r]), tile.columns[v]]
            body.store(point, point.lane(result), pointer, indices, [stride, 1])
