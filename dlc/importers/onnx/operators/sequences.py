"""Sequences and optional values. What they hold is known while importing, so that none is left: a sequence
is its elements, and an optional value is there or not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects import array
from dlc.dialects.array.shape import reshape
from dlc.importers.onnx.delayed_tensor import DelayedTensor
from dlc.importers.onnx.node_context import (
    Absent,
    AnyValue,
    Constant,
    Importer,
    NodeContext,
    NodeResults,
    Operand,
    TensorSequence,
)
from dlc.ir.core import Value
from dlc.ir.dims import Size
from dlc.ir.types import BOOL

LONGEST = 1 << 10
"""Elements of the longest sequence that a tensor is split into."""


def _construct(context: NodeContext) -> NodeResults:
    return TensorSequence(tuple([context.needed(k) for k in range(len(context.operands))]))


def _empty(context: NodeContext) -> NodeResults:
    return TensorSequence(())


def _place(context: NodeContext, index: int, length: int, count: int) -> int:
    """A place of `count`, which may be counted from the end of a sequence of that length."""
    (place,) = context.integers(index)
    if not -length <= place < count:
        raise context.wrong(f"speaks of element {place} of a sequence of {length}")
    return place + length if place < 0 else place


def _insert(context: NodeContext) -> NodeResults:
    items, one = context.sequence(0), context.needed(1)
    length = len(items)
    place = length if context.operand(2) is None else _place(context, 2, length, length + 1)
    return TensorSequence((*items[:place], one, *items[place:]))


def _erase(context: NodeContext) -> NodeResults:
    items = context.sequence(0)
    length = len(items)
    place = length - 1 if context.operand(1) is None else _place(context, 1, length, length)
    if not items:
        raise context.wrong("takes an element out of an empty sequence")
    return TensorSequence((*items[:place], *items[place + 1 :]))


def _at(context: NodeContext) -> NodeResults:
    items = context.sequence(0)
    return items[_place(context, 1, len(items), len(items))]


def _length(context: NodeContext) -> NodeResults:
    return Constant.of_sizes([len(context.sequence(0))], ())


def _split(context: NodeContext) -> NodeResults:
    """By default into slices of size 1, whose axis `keepdims` keeps."""
    emit, x, shape = context.emit, context.value(0), context.type(0).shape
    axis = context.axis(context.integer("axis", 0), len(shape))
    size = shape[axis]
    sizes = _part_sizes(context, size)
    if len(sizes) > LONGEST:
        raise context.unsupported(f"into {len(sizes)} parts; {LONGEST} are imported")
    parts: list[Value] = []
    start: Size = 0
    for extent in sizes:
        part = array.slice_axis(emit, x, axis, start, start + extent)
        if context.operand(1) is None and not context.flag("keepdims", default=True):
            part = reshape(emit, part, (*shape[:axis], *shape[axis + 1 :]))
        parts.append(part)
        start = start + extent
    return TensorSequence(tuple(parts))


def _part_sizes(context: NodeContext, size: Size) -> list[Size]:
    """The sizes of the parts: as listed, or equal ones of which the last may be smaller."""
    split = None if context.operand(1) is None else context.constant(1)
    if split is not None and split.array.ndim == 1:
        sizes = context.sizes(1)
        whole = sum(sizes)
        if whole != size and not (isinstance(whole, int) and isinstance(size, int)):
            raise context.unsupported(f"into parts of {sizes} of an axis of {size}")
        if whole != size:
            raise context.wrong(f"has parts of {sizes} of an axis of {size}")
        return sizes
    part = 1 if split is None else context.integers(1)[0]
    if not isinstance(size, int):
        raise context.unsupported("of an axis whose size is not a number is not imported")
    if part < 1:
        raise context.wrong(f"makes parts of {part}")
    return [min(part, size - start) for start in range(0, size, part)]


def _concatenated(context: NodeContext) -> NodeResults:
    items = [context.as_value(item) for item in context.sequence(0)]
    if not items:
        raise context.wrong("joins the elements of an empty sequence")
    stacks = context.flag("new_axis")
    rank = array.tensor_type(items[0]).rank + stacks
    axis = context.axis(context.integer("axis"), rank)
    return stacked(context, items, axis) if stacks else _joined(context, items, axis)


def stacked(context: NodeContext, items: Sequence[Value], axis: int) -> Value:
    """Values of one shape above each other along a new axis."""
    rows: list[Value] = []
    for item in items:
        shape = array.tensor_type(item).shape
        rows.append(reshape(context.emit, item, (*shape[:axis], 1, *shape[axis:])))
    return _joined(context, rows, axis)


def _joined(context: NodeContext, items: Sequence[Value], axis: int) -> Value:
    if len(items) == 1:
        return items[0]
    return context.emit(array.Concatenate(tuple(items), axis))


# Optional values ----------------------------------------------------------------------------------


def _optional(context: NodeContext) -> NodeResults:
    found = context.any_value(0)
    return Absent() if found is None else found


def _has_element(context: NodeContext) -> NodeResults:
    is_there = not isinstance(context.any_value(0), Absent | None)
    return Constant(np.asarray(is_there), BOOL)


def _get_element(context: NodeContext) -> NodeResults:
    found = context.any_value(0)
    if isinstance(found, Absent | None):
        raise context.wrong("takes the value of an optional one that is not there")
    return found


# Structure ----------------------------------------------------------------------------------------


def is_tensor(value: AnyValue) -> bool:
    """Whether a value is a tensor."""
    return isinstance(value, Value | Constant)


def elements(values: Sequence[AnyValue]) -> list[Operand]:
    """The tensors that values consist of, in order. Raises Undecided for one whose sizes are computed."""
    found: list[Operand] = []
    for value in values:
        if isinstance(value, DelayedTensor):
            raise value.undecided()
        if isinstance(value, TensorSequence):
            found += value.items
        elif not isinstance(value, Absent):
            found.append(value)
    return found


def structure(values: Sequence[AnyValue]) -> list[int | None]:
    """The number of elements of each value; None for a tensor, and -1 for an optional one not there."""
    return [
        len(value.items)
        if isinstance(value, TensorSequence)
        else -1
        if isinstance(value, Absent)
        else None
        for value in values
    ]


def rebuilt(counts: Sequence[int | None], tensors: Sequence[Operand]) -> list[AnyValue]:
    """Values of this structure from the tensors that `elements` gives."""
    rest = iter(tensors)
    found: list[AnyValue] = []
    for count in counts:
        if count is None:
            found.append(next(rest))
        elif count < 0:
            found.append(Absent())
        else:
            found.append(TensorSequence(tuple([next(rest) for _ in range(count)])))
    return found


IMPORTERS: dict[str, Importer] = {
    "ConcatFromSequence": _concatenated,
    "Optional": _optional,
    "OptionalGetElement": _get_element,
    "OptionalHasElement": _has_element,
    "SequenceAt": _at,
    "SequenceConstruct": _construct,
    "SequenceEmpty": _empty,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SplitToSequence": _split,
}
