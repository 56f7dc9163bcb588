"""The epilogue of a product over one finished tile: element by element, in registers along the rows.

The sums stand where the result goes; the epilogue reads each once and writes the result over it.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, loop, scalar, vec
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.types import VectorType
from dlc.lowering.body import Body, Point, Row, Step
from dlc.lowering.lanes import Lane, Linear, Uniform, Varying
from dlc.lowering.loop_writer import Writer, index


def is_identity(op: kernel.Product) -> bool:
    """Whether the epilogue hands the sums on as they are."""
    sums = op.epilogue.arguments[len(op.domain)]
    return op.epilogue.terminator.operands == (sums,)


def write_epilogue(
    op: kernel.Product,
    body: Body,
    emit: Builder,
    leading: Sequence[Value],
    column: Value,
    width: Value,
    sums: Value,
    target: Value,
) -> None:
    """Apply the epilogue to one row of sums.

    `leading` are the indices of the row along all axes of the domain but the last, `column` is where
    along the last it begins; `sums` and `target` point at its first number and at its first result.
    """
    *outer, last = op.epilogue.arguments[: len(op.domain)]
    total = op.epilogue.arguments[len(op.domain)]
    (result,) = op.epilogue.terminator.operands
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
            body.store(point, point.lane(result), target, [where], [None])
            return ()

        return one

    body.stretch_loops(emit, index(emit, 0), width, element_at)


def epilogue_body(op: kernel.Product, writer: Writer, lanes: int) -> Body:
    """What writes the epilogue of a product: its extra arrays are the views after the operands."""
    extras = op.epilogue.arguments[len(op.domain) + 1 :]
    first = len(op.operands) - len(op.outs) - len(extras)
    return Body(writer, {argument: first + k for k, argument in enumerate(extras)}, lanes)
