"""Operators whose number of results depends on values: `NonMaxSuppression` and `Unique`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlc.dialects import array, flow
from dlc.dialects.array.arithmetic import plus, times
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.nn.rows import along, in_dtype, spread
from dlc.frontend.elaboration.trace import capture
from dlc.importers.onnx.node_context import Constant, Importer, NodeContext, NodeResults
from dlc.ir.bounded import smaller
from dlc.ir.core import Block, Builder, Value
from dlc.ir.dims import Bounds, Dim, Size, names, product, symbol
from dlc.ir.intervals import interval
from dlc.ir.types import BOOL, I64, U8, TensorType

MOST_KEYS = 64
"""`Unique` along an axis sorts by the elements of a slice, one after the other: by this many at most."""
ALL = 1 << 56
"""More boxes than any memory holds: exporters write the largest i64 where all may be chosen."""

# NonMaxSuppression --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Boxes:
    """Lower and upper ends along both axes, and areas, each `[batch, class, box]` or `[batch, class]`."""

    lows: tuple[Value, Value]
    highs: tuple[Value, Value]
    area: Value

    def parts(self) -> tuple[Value, ...]:
        return *self.lows, *self.highs, self.area

    @classmethod
    def of(cls, parts: Sequence[Value]) -> _Boxes:
        """From what `parts` gave."""
        return cls((parts[0], parts[1]), (parts[2], parts[3]), parts[4])


def _non_max_suppression(context: NodeContext) -> NodeResults:
    """Rows of batch, class and box: of boxes that overlap the one with the best score.

    Boxes are visited in the order of their scores. One that is left is chosen, and those behind it that
    overlap with it by more than the threshold are left no longer.
    """
    emit = context.emit
    boxes, scores = context.value(0), context.value(1)
    type = array.tensor_type(scores)
    if type.rank != 3 or context.type(0).shape != (type.shape[0], type.shape[2], 4):
        raise context.wrong(f"takes boxes {context.type(0).text} with the scores {type.text}")
    most = 0 if context.operand(2) is None else context.integers(2)[0]
    steps = type.shape[2]
    if most < ALL:
        steps = smaller(max(most, 0), steps, context.regions.bounds)
    if steps == 0:
        return Constant(np.zeros((0, 3), np.int64), I64)
    counted = array.iota(emit, type.with_dtype(I64), 2)
    scores, order = emit.all(array.Sort(scores, (counted,), 2, True))
    left = array.fill(emit, True, type.with_dtype(BOOL))
    threshold = context.optional(4)
    if threshold is not None:
        limit = emit(array.Broadcast(reshape(emit, threshold, ()), type.shape, ()))
        left = emit(array.Compare(scores, limit, "gt"))
    walked = _walked(type.shape[2], context.regions.bounds)
    left = _padded(emit, left, walked)
    parts = [_padded(emit, part, walked) for part in _corners(context, boxes, order).parts()]
    rounds = walked if steps == type.shape[2] else _walked(steps, context.regions.bounds)
    chosen, is_chosen = _chosen(context, _Boxes.of(parts), left, rounds)
    # [step, batch, class] becomes [batch, class, step].
    chosen, is_chosen = (transpose(emit, x, (1, 2, 0)) for x in (chosen, is_chosen))
    dim = context.regions.fresh_dim(context.node.line)
    rows, _ = emit.all(array.NonZero(is_chosen, dim, product((*type.shape[:2], steps))))
    columns = [_column(emit, rows, k) for k in range(3)]
    place = emit(array.Gather(chosen, tuple(columns), (0, 1, 2)))
    box = emit(array.Gather(order, (*columns[:2], place), (0, 1, 2)))
    whole = [reshape(emit, part, (symbol(dim), 1)) for part in (*columns[:2], box)]
    return emit(array.Concatenate(tuple(whole), 1))


def _walked(size: Size, bounds: Bounds) -> Size:
    """The size of a loop over an axis: the most that it can be where it is calculated from what is counted.

    A loop goes over counted elements themselves, or over a size that is known before they are counted.
    """
    highest = interval(size, bounds)[1]
    return size if highest is None or not is_calculated(size, bounds) else highest


def is_calculated(size: Size, bounds: Bounds) -> bool:
    """Whether a size is calculated from what is counted in a call, which no scan goes over."""
    is_counted = not names(size) <= bounds.keys()
    return is_counted and isinstance(size, Dim) and size != symbol(min(names(size)))


def _padded(emit: Builder, part: Value, size: Size) -> Value:
    """Boxes, along the last axis, and behind them zeros, which are of no box."""
    type = array.tensor_type(part)
    after = size - type.shape[2]
    if after == 0:
        return part
    zero = array.fill(emit, 0, type.with_shape(()))
    return emit(array.Pad(part, zero, (0, 0, 0), (0, 0, after), (0, 0, 0)))


def _column(emit: Builder, rows: Value, k: int) -> Value:
    part = array.slice_axis(emit, rows, 1, k, k + 1)
    return reshape(emit, part, array.tensor_type(part).shape[:1])


def _corners(context: NodeContext, boxes: Value, order: Value) -> _Boxes:
    """The boxes in the order of each class."""
    emit, type = context.emit, array.tensor_type(order)
    batch = array.iota(emit, type, 0)
    sorted_boxes = emit(array.Gather(boxes, (batch, order), (0, 1)))
    parts = [
        reshape(emit, array.slice_axis(emit, sorted_boxes, 3, k, k + 1), type.shape)
        for k in range(4)
    ]
    pairs = [_ends(context, parts[k], parts[k + 2]) for k in range(2)]
    extents = [emit(array.Subtract(high, low)) for low, high in pairs]
    area = emit(array.Multiply(extents[0], extents[1]))
    (low0, high0), (low1, high1) = pairs
    return _Boxes((low0, low1), (high0, high1), area)


def _ends(context: NodeContext, one: Value, other: Value) -> tuple[Value, Value]:
    """The ends of boxes along an axis: given as two ends in any order, or as centre and extent."""
    emit = context.emit
    if not context.flag("center_point_box"):
        return emit(array.Minimum(one, other)), emit(array.Maximum(one, other))
    half = times(emit, other, 0.5)
    return emit(array.Subtract(one, half)), emit(array.Add(one, half))


def _chosen(context: NodeContext, boxes: _Boxes, left: Value, steps: Size) -> tuple[Value, Value]:
    """For each step, batch and class the place of the chosen box, and whether there was one left."""
    emit = context.emit
    threshold = context.optional(3)
    if threshold is None:
        threshold = array.fill(emit, 0, array.tensor_type(boxes.area).with_shape(()))
    threshold = reshape(emit, threshold, ())
    block = Block([flow.COUNTER, left.type])
    at = Builder(block, emit.location)
    is_left = block.arguments[1]
    first = at(array.Cast(at(array.ArgMax(at(array.Cast(is_left, U8)), 2)), I64))
    places = array.tensor_type(first)
    index = (array.iota(at, places, 0), array.iota(at, places, 1), first)
    found = at(array.Gather(is_left, index, (0, 1, 2)))
    best = _Boxes.of([at(array.Gather(part, index, (0, 1, 2))) for part in boxes.parts()])
    overlapping = _overlap(at, boxes, best, threshold)
    every = array.iota(at, array.tensor_type(is_left).with_dtype(I64), 2)
    itself = at(array.Compare(every, spread(at, first, every, (2,)), "eq"))
    gone = at(array.Or(overlapping, itself))
    following = at(array.And(is_left, at(array.Not(gone))))
    at.place(flow.Yield((following, first, found)))
    used = tuple(capture([block]))
    _, chosen, is_chosen = emit.all(
        flow.Scan((left,), (), used, block, steps, (), (0, 0)),
    )
    return chosen, is_chosen


def _overlap(emit: Builder, boxes: _Boxes, best: _Boxes, threshold: Value) -> Value:
    """Whether the area that boxes share with the best one is more than a part of both areas together."""
    widest = [spread(emit, part, boxes.area, (2,)) for part in best.parts()]
    other = _Boxes.of(widest)
    zero = array.constant_like(emit, 0, boxes.area)
    extents = [
        emit(
            array.Subtract(
                emit(array.Minimum(boxes.highs[k], other.highs[k])),
                emit(array.Maximum(boxes.lows[k], other.lows[k])),
            )
        )
        for k in range(2)
    ]
    shared = emit(array.Multiply(extents[0], extents[1]))
    whole = emit(array.Subtract(emit(array.Add(boxes.area, other.area)), shared))
    limit = along(emit, threshold, boxes.area, ())
    overlaps = emit(array.Compare(emit(array.Divide(shared, whole)), limit, "gt"))
    for part in (*extents, shared, boxes.area, other.area, whole):
        overlaps = emit(array.And(overlaps, emit(array.Compare(part, zero, "gt"))))
    return overlaps


# Unique -------------------------------------------------------------------------------------------


def _unique(context: NodeContext) -> NodeResults:
    """The different elements, or slices along an axis: their first places, which is which, how many."""
    emit, x = context.emit, context.value(0)
    if "axis" in context.node.attributes:
        axis = context.axis(context.integer("axis"), context.type(0).rank)
    else:
        x, axis = reshape(emit, x, (context.type(0).size,)), 0
    type = array.tensor_type(x)
    order, is_new = _sorted(context, _keys(context, x, axis))
    places = array.tensor_type(order)
    zero = array.constant_like(emit, 0, order)
    # For each place of the sorted elements, where the first of its equals stood.
    start = emit(array.Select(is_new, array.iota(emit, places, 0), zero))
    start = emit(array.CumulativeMax(start, 0))
    first = emit(array.Gather(order, (start,), (0,)))
    if not context.flag("sorted", default=True):
        # As they stand, an element is new where it is its own first one.
        first = _put(emit, zero, first, order)
        order = array.iota(emit, places, 0)
        is_new = emit(array.Compare(first, order, "eq"))
    dim = context.regions.fresh_dim(context.node.line)
    rows, _ = emit.all(array.NonZero(is_new, dim))
    rows = reshape(emit, rows, (symbol(dim),))
    indices = emit(array.Gather(order, (rows,), (0,)))
    number = emit(array.CumulativeSum(in_dtype(emit, is_new, I64), 0))
    number = plus(emit, number, -1)
    if context.flag("sorted", default=True):
        inverse = _put(emit, zero, number, order)
    else:
        inverse = emit(array.Gather(number, (first,), (0,)))
    none = array.fill(emit, 0, TensorType(I64, (symbol(dim),)))
    ones = array.constant_like(emit, 1, inverse)
    counts = emit(array.Scatter(none, ones, (inverse,), (0,), "add"))
    found = emit(array.Gather(x, (indices,), (axis,)))
    found = transpose(emit, found, (*range(1, axis + 1), 0, *range(axis + 1, type.rank)))
    return found, indices, inverse, counts


def _put(emit: Builder, target: Value, updates: Value, places: Value) -> Value:
    return emit(array.Scatter(target, updates, (places,), (0,), "set", True))


def _keys(context: NodeContext, x: Value, axis: int) -> list[Value]:
    """The elements of each slice along an axis, one vector for each place in a slice."""
    emit, type = context.emit, array.tensor_type(x)
    size = type.shape[axis]
    order = (axis, *[k for k in range(type.rank) if k != axis])
    count = type.with_shape(tuple([type.shape[k] for k in order[1:]])).size
    if not isinstance(count, int) or count > MOST_KEYS:
        raise context.unsupported(f"of slices of {count} elements; {MOST_KEYS} are imported")
    rows = reshape(emit, transpose(emit, x, order), (size, count))
    if type.dtype is BOOL:
        rows = in_dtype(emit, rows, U8)
    columns = [array.slice_axis(emit, rows, 1, k, k + 1) for k in range(count)]
    return [reshape(emit, column, (size,)) for column in columns]


def _sorted(context: NodeContext, keys: Sequence[Value]) -> tuple[Value, Value]:
    """The places in the order of the keys, the first key first, and whether each differs from the last."""
    emit = context.emit
    type = array.tensor_type(keys[0]).with_dtype(I64)
    order = array.iota(emit, type, 0)
    # Sorting is stable: by the last key first.
    for key in reversed(keys):
        sorted_key = emit(array.Gather(key, (order,), (0,)))
        _, order = emit.all(array.Sort(sorted_key, (order,), 0))
    place = array.iota(emit, type, 0)
    zero = array.constant_like(emit, 0, place)
    is_new = emit(array.Compare(place, zero, "eq"))
    before = emit(array.Maximum(plus(emit, place, -1), zero))
    for key in keys:
        here = emit(array.Gather(key, (order,), (0,)))
        last = emit(array.Gather(here, (before,), (0,)))
        is_new = emit(array.Or(is_new, _differs(emit, here, last)))
    return order, is_new


def _differs(emit: Builder, one: Value, other: Value) -> Value:
    """Whether elements differ; a NaN is like any other."""
    differs = emit(array.Compare(one, other, "ne"))
    if not array.tensor_type(one).dtype.is_float:
        return differs
    numbers = [emit(array.Compare(value, value, "eq")) for value in (one, other)]
    return emit(array.And(differs, emit(array.Or(*numbers))))


IMPORTERS: dict[str, Importer] = {
    "NonMaxSuppression": _non_max_suppression,
    "Unique": _unique,
}
