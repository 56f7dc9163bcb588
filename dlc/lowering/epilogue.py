"""The epilogue of a product over one finished tile: element by element, in registers along the rows.

The sums stand in memory, where the result goes or beside it, or, if the epilogue is short, are still in
the registers that they were added up in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias

from dlc.dialects import loop, scalar, vec
from dlc.dialects.kernel_products import Product
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.types import VectorType
from dlc.lowering.body import Body, Point, Row, Step, split
from dlc.lowering.lanes import Lane, Linear, Uniform, Varying
from dlc.lowering.loop_words import index
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
    emit: Builder,
    leading: Sequence[Value],
    column: Value,
    width: Value,
    sums: Value,
    targets: Sequence[Value],
) -> None:
    """Apply the epilogue to one row of sums.

    `leading` are the indices of the row along all axes of the domain but the last, `column` is where
    along the last it begins; `sums` points at its first number and `targets` at its first results.
    """
    *outer, last = op.epilogue.arguments[: len(op.domain)]
    total = op.epilogue.arguments[len(op.domain)]
    results = op.epilogue.terminator.operands
    dtype = op.accumulator
    known: dict[Value, Lane | Row] = {
        argument: Uniform(value) for argument, value in zip(outer, leading, strict=True)
    }
    here = Point(emit, 1, known)

    def element_at(lanes: int) -> Step:
        def one(deep: Builder, j: Value, _: list[Value]) -> Sequence[Value]:
            place = deep(scalar.Add(column, j))
            more: dict[Value, Lane]
            if lanes == 1:
                more = {last: Uniform(place), total: Uniform(deep(loop.Load(sums, j, dtype)))}
            else:
                register = deep(vec.Load(sums, j, VectorType(dtype, lanes)))
                more = {last: Linear(place), total: Varying(register)}
            point = body.run(op.epilogue, here.at(deep, lanes, more))
            where: Lane = Uniform(j) if lanes == 1 else Linear(j)
            for result, target in zip(results, targets, strict=True):
                body.store(point, point.lane(result), target, [where], [None])
            return ()

        return one

    body.stretch_loops(emit, index(emit, 0), width, element_at)


def in_registers(op: Product, body: Body, shape: Shape) -> bool:
    """Whether the epilogue can be applied to sums in registers: it is short, and as wide as they are."""
    operations = sum(not isinstance(step, scalar.Constant) for step in op.epilogue)
    return body.lanes == shape.register.lanes and operations <= MAX_OPERATIONS


@dataclass(frozen=True, slots=True)
class Tile:
    """Which elements some registers of sums are: `rows` and `places` are their indices along the last
    two axes of the domain, `batch` those along the others. There are `lanes` elements in a register."""

    batch: Sequence[Value]
    rows: Sequence[Value]
    places: Sequence[Lane]
    lanes: int


Target: TypeAlias = tuple[Value, Value | None]
"""Where the results of a batch are, and the stride of their rows."""


def write_registers(
    op: Product,
    body: Body,
    emit: Builder,
    tile: Tile,
    sums: Sums,
    targets: Sequence[Target],
) -> None:
    """Apply the epilogue to sums in registers, which come row by row."""
    *outer, row, last = op.epilogue.arguments[: len(op.domain)]
    total = op.epilogue.arguments[len(op.domain)]
    results = op.epilogue.terminator.operands
    known: dict[Value, Lane | Row] = {
        argument: Uniform(value) for argument, value in zip(outer, tile.batch, strict=True)
    }
    once, each = split(op.epilogue, [row, total])
    across = len(tile.places)
    points: dict[tuple[int, int], Point] = {}
    for v, place in enumerate(tile.places):
        there = body.ops(once, Point(emit, tile.lanes, {**known, last: place}))
        for r, m in enumerate(tile.rows):
            value = sums[r * across + v]
            sum: Lane = Varying(value) if tile.lanes > 1 else Uniform(value)
            point = there.at(emit, tile.lanes, {row: Uniform(m), total: sum})
            points[r, v] = body.ops(each, point)
    # Nothing is stored before all is loaded: rows are often a multiple of a page apart, and a processor
    # that compares the last bits of addresses only would wait for the stores of the row before.
    for result, (pointer, stride) in zip(results, targets, strict=True):
        for (r, v), point in sorted(points.items(), key=itemgetter(0)):
            indices: list[Lane] = [Uniform(tile.rows[r]), tile.places[v]]
            body.store(point, point.lane(result), pointer, indices, [stride, None])


def epilogue_body(op: Product, writer: KernelWriter, lanes: int) -> Body:
    """What writes the epilogue of a product: its extra arrays are the views after the operands."""
    extras = op.epilogue.arguments[len(op.domain) + 1 :]
    first = len(op.operands) - len(op.outs) - len(extras)
    return Body(writer, {argument: first + k for k, argument in enumerate(extras)}, lanes)
