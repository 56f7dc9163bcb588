"""Non-maximum suppression of overlapping boxes, as in torchvision, over all boxes or per class."""

from __future__ import annotations

import math

from dlc.dialects import array, flow
from dlc.dialects.array import tensor_type
from dlc.dialects.array.arithmetic import plus
from dlc.dialects.array.shape import reshape
from dlc.dialects.nn.rows import in_dtype, numbers, spread
from dlc.frontend.elaboration.trace import capture
from dlc.importers.torch.node_context import Importer, NodeContext, Operand
from dlc.ir.core import Block, Builder, Value
from dlc.ir.dims import Size, names, symbol
from dlc.ir.intervals import interval
from dlc.ir.types import BOOL, I64, TensorType

MOVED = 1000
"""Up to this number of boxes, torchvision moves those of each class away from all others and suppresses
them together; more it takes class by class. The numbers differ in their last bits."""


def _nms(context: NodeContext) -> Operand:
    """Places of the boxes that are kept, of all boxes together."""
    return _kept(context, context.value("dets"), None)


def _batched_nms(context: NodeContext) -> Operand:
    """Places of the boxes that are kept, of each class alone."""
    emit, boxes, classes = context.emit, context.value("boxes"), context.value("idxs", I64)
    type = tensor_type(boxes)
    flat = reshape(emit, boxes, (type.size,))
    none = array.fill(emit, -math.inf, type.with_shape((1,)))
    highest = emit(array.ReduceMax(emit(array.Concatenate((none, flat), 0)), (0,)))
    above = plus(emit, highest, 1)
    count = numbers(emit, type.shape[0], TensorType(I64))
    is_moved = emit(array.Compare(count, array.constant_like(emit, MOVED, count), "le"))
    step = emit(array.Select(is_moved, above, array.constant_like(emit, 0, above)))
    number = in_dtype(emit, classes, type.dtype)
    offset = emit(array.Multiply(number, spread(emit, step, number, (0,))))
    moved = emit(array.Add(boxes, spread(emit, offset, boxes, (1,))))
    return _kept(context, moved, classes)


def _kept(context: NodeContext, boxes: Value, classes: Value | None) -> Value:
    """The places of boxes `[boxes, 4]` that stay, the best first.

    They are visited in the order of their scores. One that is there still removes those behind it that
    share more than a part of the area of both.
    """
    emit, scores = context.emit, context.value("scores")
    count = tensor_type(scores).shape[0]
    place = array.iota(emit, TensorType(I64, (count,)), 0)
    _, order = emit.all(array.Sort(scores, (place,), 0, True))
    sorted_boxes = emit(array.Gather(boxes, (order,), (0,)))
    corners = [
        reshape(emit, array.slice_axis(emit, sorted_boxes, 1, k, k + 1), (count,)) for k in range(4)
    ]
    extents = [emit(array.Subtract(corners[k + 2], corners[k])) for k in range(2)]
    parts = [*corners, emit(array.Multiply(*extents))]
    if classes is not None:
        parts.append(emit(array.Gather(classes, (order,), (0,))))
    walked = _walked(context, count)
    limit = context.number("iou_threshold")
    is_gone = _suppressed(emit, [_padded(emit, part, walked) for part in parts], limit, walked)
    # What stands behind the boxes is none.
    every = array.iota(emit, TensorType(I64, (walked,)), 0)
    is_box = emit(array.Compare(every, numbers(emit, count, tensor_type(every)), "lt"))
    is_kept = emit(array.And(is_box, emit(array.Not(is_gone))))
    rows = context.regions.places(emit, is_kept, [str(context.type.shape[0])])
    places = reshape(emit, rows, tensor_type(rows).shape[:1])
    return emit(array.Gather(order, (places,), (0,)))


def _walked(context: NodeContext, size: Size) -> Size:
    """The steps of a loop over an axis: the most that it has where its size is calculated from counts."""
    bounds, counted = context.regions.bounds, context.regions.counted
    is_calculated = not isinstance(size, int) and size != symbol(min(names(size)))
    highest = interval(size, {**bounds, **counted})[1]
    return highest if is_calculated and names(size) & counted.keys() and highest else size


def _padded(emit: Builder, part: Value, size: Size) -> Value:
    """A vector with zeros behind it."""
    type = tensor_type(part)
    behind = size - type.shape[0]
    if behind == 0:
        return part
    zero = array.fill(emit, 0, type.with_shape(()))
    return emit(array.Pad(part, zero, (0,), (behind,), (0,)))


def _suppressed(emit: Builder, parts: list[Value], limit: float, steps: Size) -> Value:
    """Of boxes in the order of their scores, whether another one removes them.

    `parts` are vectors: the corners, the areas, and the classes where only those of one are compared.
    """
    none = array.fill(emit, False, TensorType(BOOL, (steps,)))
    scalars = [tensor_type(part).with_shape(()) for part in parts]
    block = Block([flow.COUNTER, none.type, *scalars])
    counter, is_gone, *own = block.arguments
    at = Builder(block, emit.location)
    wide = [spread(at, one, part, (0,)) for one, part in zip(own, parts, strict=True)]
    removed = _overlap(at, parts, wide, limit)
    if len(parts) > 5:
        removed = at(array.And(removed, at(array.Compare(parts[5], wide[5], "eq"))))
    every = array.iota(at, TensorType(I64, (steps,)), 0)
    here = in_dtype(at, counter, I64)
    is_behind = at(array.Compare(every, spread(at, here, every, (0,)), "gt"))
    is_left = at(array.Not(at(array.Gather(is_gone, (here,), (0,)))))
    removed = at(array.And(removed, at(array.And(is_behind, spread(at, is_left, removed, (0,))))))
    at.place(flow.Yield((at(array.Or(is_gone, removed)),)))
    used = tuple(capture([block]))
    scan = flow.Scan((none,), tuple(parts), used, block, steps, (0,) * len(parts), ())
    return emit(scan)


def _overlap(emit: Builder, parts: list[Value], own: list[Value], limit: float) -> Value:
    """Whether the area that boxes share with one is more than a part of both areas together."""
    zero = array.constant_like(emit, 0, parts[0])
    extents: list[Value] = []
    for k in range(2):
        low = emit(array.Maximum(own[k], parts[k]))
        high = emit(array.Minimum(own[k + 2], parts[k + 2]))
        extents.append(emit(array.Maximum(emit(array.Subtract(high, low)), zero)))
    shared = emit(array.Multiply(*extents))
    both = emit(array.Subtract(emit(array.Add(own[4], parts[4])), shared))
    part = emit(array.Divide(shared, both))
    return emit(array.Compare(part, array.constant_like(emit, limit, part), "gt"))


IMPORTERS: dict[str, Importer] = {
    "dlc.batched_nms": _batched_nms,
    "torchvision.nms": _nms,
}
