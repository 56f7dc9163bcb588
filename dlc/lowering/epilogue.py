"""The epilogue of a product over one finished tile: element by element, in registers along the rows.

The sums stand where the result goes; the epilogue reads each once and writes the result over it.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, loop, scalar, vec
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.types import VectorType
from dlc.lowering.body import Body, Point, Step
from dlc.lowering.lanes import Lane, Linear, Uniform, Varying
from dlc.lowering.loop_writer import Writer, for_each, index, times


def is_identity(op: kernel.Gemm) -> bool:
    """Whether the epilogue hands the sums on as they are."""
    sums = op.epilogue.arguments[len(op.domain)]
    return op.epilogue.terminator.operands == (sums,)


def write_epilogue(
    op: kernel.Gemm,
    writer: Writer,
    emit: Builder,
    start: Sequence[Value],
    height: Value,
    width: Value,
    target: Value,
    lanes: int,
) -> None:
    """Apply the epilogue to the tile of sums at `target`, whose first element has index `start`."""
    if is_identity(op):
        return
    indices = op.epilogue.arguments[: len(op.domain)]
    sums, *extras = op.epilogue.arguments[len(op.domain) :]
    body = Body(writer, {argument: 2 + k for k, argument in enumerate(extras)}, lanes)
    (result,) = op.epilogue.terminator.operands
    out_view = len(op.operands) - 1
    stride = writer.stride(out_view, len(op.domain) - 2)
    dtype = op.accumulator
    zero = index(emit, 0)

    def row(inside: Builder, i: Value, _: list[Value]) -> Sequence[Value]:
        first = inside(loop.Offset(target, times(inside, i, stride), dtype))
        known: dict[Value, Lane] = {
            argument: Uniform(value)
            for argument, value in zip(indices[:-2], start[:-2], strict=True)
        }
        known[indices[-2]] = Uniform(inside(scalar.Add(start[-2], i)))
        here = Point(inside, 1, dict(known))

        def element_at(lanes: int) -> Step:
            def one(deep: Builder, j: Value, _: list[Value]) -> Sequence[Value]:
                column = deep(scalar.Add(start[-1], j))
                if lanes == 1:
                    total: Lane = Uniform(deep(loop.Load(first, j, dtype)))
                    more: dict[Value, Lane] = {indices[-1]: Uniform(column), sums: total}
                else:
                    total = Varying(deep(vec.Load(first, j, VectorType(dtype, lanes))))
                    more = {indices[-1]: Linear(column), sums: total}
                point = body.run(op.epilogue, here.at(deep, lanes, more))
                place: Lane = Uniform(j) if lanes == 1 else Linear(j)
                body.store(point, point.lane(result), first, [place], [None])
                return ()

            return one

        body.stretch_loops(inside, zero, width, element_at)
        return ()

    for_each(emit, zero, height, 1, (), row)
