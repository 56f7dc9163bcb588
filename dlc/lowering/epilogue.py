"""The epilogue of a product over one finished tile: element by element, in registers along the rows.

The sums stand in memory, where the result goes or beside it, or, if the epilogue is short, are still in
the registers that they were added up in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias

from dlc.dialects import scalar
from dlc.dialects.kernel_products import Product
from dlc.ir.core import Value
from dlc.lowering.body import Body, Point, Row, split
from dlc.lowering.expr import Expr, Index, Pointer
from dlc.lowering.lanes import Lane, Uniform, neighbours, varying
from dlc.lowering.loop_writer import KernelWriter
from dlc.lowering.micro_kernel import Shape, Sums

MAX_OPERATIONS = 32
"""Operations of an epilogue that is written once for each register of sums."""


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
    for lanes, j in body.stretch_loops(0, width):
        place = neighbours(column + j, lanes)
        sum = varying(sums.load(j, lanes), lanes)
        point = body.run(op.epilogue, Point(lanes, {**row, last: place, total: sum}))
        for result, target in zip(op.epilogue.terminator.operands, targets, strict=True):
            body.store(point, point.lane(result), target, [neighbours(j, lanes)], [1])


def in_registers(op: Product, body: Body, shape: Shape) -> bool:
    """Whether the epilogue can be applied to sums in registers: it is short, and as wide as they are."""
    operations = sum(not isinstance(step, scalar.Constant) for step in op.epilogue)
    return body.lanes == shape.register.lanes and operations <= MAX_OPERATIONS


@dataclass(frozen=True, slots=True)
class Tile:
    """Which elements some registers of sums are: `rows` and `places` are their indices along the last
    two axes of the domain, `batch` those along the others. There are `lanes` elements in a register."""

    batch: Sequence[Expr]
    rows: Sequence[Expr]
    places: Sequence[Lane]
    lanes: int


Target: TypeAlias = tuple[Pointer, Index]
"""Where the results of a batch are, and the stride of their rows."""


def write_registers(
    op: Product, body: Body, tile: Tile, sums: Sums, targets: Sequence[Target]
) -> None:
    """Apply the epilogue to sums in registers, which come row by row."""
    *outer, row, last, total = op.epilogue.arguments[: len(op.domain) + 1]
    batch: dict[Value, Lane | Row] = dict(zip(outer, map(Uniform, tile.batch), strict=True))
    once, each = split(op.epilogue, [row, total])
    across = len(tile.places)
    points: dict[tuple[int, int], Point] = {}
    for v, place in enumerate(tile.places):
        column = body.ops(once, Point(tile.lanes, {**batch, last: place}))
        for r, m in enumerate(tile.rows):
            sum = varying(sums[r * across + v], tile.lanes)
            points[r, v] = body.ops(each, column.at(tile.lanes, {row: Uniform(m), total: sum}))
    # Nothing is stored before all is loaded: rows are often a multiple of a page apart, and a processor
    # that compares the last bits of addresses only would wait for the stores of the row before.
    for result, (pointer, stride) in zip(op.epilogue.terminator.operands, targets, strict=True):
        for (r, v), point in sorted(points.items(), key=itemgetter(0)):
            indices: list[Lane] = [Uniform(tile.rows[r]), tile.places[v]]
            body.store(point, point.lane(result), pointer, indices, [stride, 1])


def epilogue_body(op: Product, writer: KernelWriter, lanes: int) -> Body:
    """What writes the epilogue of a product: its extra arrays are the views after the operands."""
    extras = op.epilogue.arguments[len(op.domain) + 1 :]
    first = len(op.operands) - len(op.outs) - len(extras)
    return Body(writer, {argument: first + k for k, argument in enumerate(extras)}, lanes)
