"""Reductions of an axis whose size is computed when the model runs: some elements at a time, in a loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dlc.dialects import array, flow
from dlc.dialects.array.arithmetic import plus
from dlc.dialects.array.shape import reshape
from dlc.dialects.nn.rows import in_dtype
from dlc.frontend.elaboration.trace import capture
from dlc.importers.onnx.delayed_tensor import DelayedTensor
from dlc.importers.onnx.node_context import Importer, NodeContext, NodeResults
from dlc.importers.onnx.operators.extents import everywhere, number, zero_unless
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.dims import Shape, Size
from dlc.ir.types import I64, TensorType

AT_ONCE = 1024
"""Elements of the axis that a round of the loop looks at."""


def _arg(find: Callable[[Value, int], Op], predicate: str, worst: float) -> Importer:
    """The place of the first of the best elements along an axis."""

    def apply(context: NodeContext) -> NodeResults:
        source = context.any_value(0)
        assert isinstance(source, DelayedTensor)
        axis = context.axis(context.integer("axis", 0), len(source.sizes))
        extent = source.sizes[axis]
        others: list[Size] = [
            size for k, size in enumerate(source.sizes) if k != axis and not isinstance(size, Value)
        ]
        is_last = context.flag("select_last_index")
        if len(others) < len(source.sizes) - 1 or is_last or not source.dtype.is_float:
            raise source.undecided()
        emit, shape = context.emit, tuple(others)
        length = number(emit, extent)
        none = emit(array.Compare(length, array.constant_like(emit, 1, length), "lt"))
        length = emit(array.Add(length, zero_unless(emit, none)))

        def round(at: Builder, start: Value, best: Value, place: Value) -> list[Value]:
            indices = _chunk(at, shape, axis, start)
            inside = at(array.Compare(indices[axis], everywhere(at, length, indices[axis]), "lt"))
            found = source.element(at, array.tensor_type(indices[axis]).shape, indices)
            outside = array.constant_like(at, worst, found)
            found = at(array.Select(inside, found, outside))
            own = in_dtype(at, at(find(found, len(shape))), I64)
            value = array.take_along(at, found, reshape(at, own, (*shape, 1)), len(shape))
            value = reshape(at, value, shape)
            is_better = at(array.Compare(value, best, predicate))
            own = at(array.Add(own, everywhere(at, start, own)))
            return [
                at(array.Select(is_better, value, best)),
                at(array.Select(is_better, own, place)),
            ]

        best = array.fill(emit, worst, TensorType(source.dtype, shape))
        place = array.fill(emit, 0, TensorType(I64, shape))
        _, place = _looped(emit, length, [best, place], round)
        kept = context.flag("keepdims", default=True)
        return reshape(emit, place, (*shape[:axis], 1, *shape[axis:])) if kept else place

    return apply


def _chunk(emit: Builder, shape: Shape, axis: int, start: Value) -> list[Value]:
    """The indices of the next elements of an axis, which is the last one, at all places of the others."""
    type = TensorType(I64, (*shape, AT_ONCE))
    indices = [array.iota(emit, type, k) for k in range(len(shape))]
    own = array.iota(emit, type, len(shape))
    own = emit(array.Add(own, everywhere(emit, start, own)))
    return [*indices[:axis], own, *indices[axis:]]


Round = Callable[..., list[Value]]


def _looped(
    emit: Builder, length: Value, initial: Sequence[Value], round: Round
) -> Sequence[Value]:
    """What is carried through rounds that begin at each `AT_ONCE`-th place of a length."""
    carried = [array.fill(emit, 0, TensorType(I64)), *initial]
    types = [value.type for value in carried]
    test, body = Block(types), Block(types)
    at = Builder(test, emit.location)
    at.place(flow.Yield((at(array.Compare(test.arguments[0], length, "lt")),)))
    at = Builder(body, emit.location)
    following = round(at, *body.arguments)
    at.place(flow.Yield((plus(at, body.arguments[0], AT_ONCE), *following)))
    used = capture([test, body])
    _, *results = emit.all(flow.While(tuple(carried), tuple(used), test, body))
    return results


RULES: dict[str, Importer] = {
    "ArgMax": _arg(array.ArgMax, "gt", -math.inf),
    "ArgMin": _arg(array.ArgMin, "lt", math.inf),
}
