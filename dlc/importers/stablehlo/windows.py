"""Windows that slide over tensors: pooling, running totals, and the derivative of a window maximum."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

from dlc.dialects import array
from dlc.dialects.array import tensor_type
from dlc.dialects.array.shape import reshape
from dlc.importers.stablehlo.elementwise import evened
from dlc.importers.stablehlo.formulas import combined_by, formulas
from dlc.importers.stablehlo.node_context import Importer, Made, NodeContext
from dlc.importers.stablehlo.reductions import combination, identity, paired, with_initial
from dlc.importers.stablehlo.shapes import padded
from dlc.ir.core import Op, Value
from dlc.ir.dims import Shape
from dlc.ir.types import BOOL

MOST = 1 << 12
"""So many elements a window may have whose function has no operation of its own."""

FUNCTIONS = {"add": "sum", "maximum": "max", "minimum": "min"}
CUMULATIVE: dict[str, Callable[..., Op]] = {
    "add": array.CumulativeSum,
    "multiply": array.CumulativeProduct,
    "maximum": array.CumulativeMax,
    "minimum": array.CumulativeMin,
}
Pairs = tuple[tuple[int, int], ...]


class _Window:
    """The numbers of a window, and how many places it has."""

    def __init__(self, context: NodeContext) -> None:
        rank = context.type(0).rank
        ones = (1,) * rank
        self.size = context.integers("window_dimensions")
        self.strides = context.integers("window_strides", ones)
        self.base = context.integers("base_dilations", ones)
        self.dilations = context.integers("window_dilations", ones)
        self.padding: Pairs = context.pairs("padding", rank)

    @property
    def reach(self) -> tuple[int, ...]:
        """The distance from the first element of a window to the last, along each axis."""
        pairs = zip(self.size, self.dilations, strict=True)
        return tuple([(size - 1) * dilation for size, dilation in pairs])

    @property
    def is_simple(self) -> bool:
        """Whether the padding is less than the window, which is what `array.reduce_window` takes."""
        pairs = zip(self.padding, self.reach, strict=True)
        return all(0 <= low <= reach and 0 <= high <= reach for (low, high), reach in pairs)

    def pad(self, context: NodeContext, x: Value, value: Value, *, edges: bool) -> Value:
        """The tensor with its elements apart, and with its edges where these are asked for."""
        interior = [step - 1 for step in self.base]
        low, high = ([pair[k] if edges else 0 for pair in self.padding] for k in (0, 1))
        return padded(context.emit, x, value, tuple(low), tuple(high), interior)

    def places(self, shape: Shape) -> Shape:
        """How many windows a padded tensor has along each axis."""
        numbers = zip(shape, self.reach, self.strides, strict=True)
        made = [(size - reach - 1) // stride + 1 for size, reach, stride in numbers]
        return tuple([max(size, 0) if isinstance(size, int) else size for size in made])


def _reduce_window(context: NodeContext) -> Made:
    count = len(context.operands) // 2
    window = _Window(context)
    if count > 1:
        return _generic(context, window, count)
    emit, x, initial = context.emit, context.value(0), context.value(1)
    dtype = tensor_type(x).dtype
    kind = combination(context.region(), dtype) or ""
    neutral = identity(kind, dtype)
    is_neutral = neutral is not None and context.known.is_number(initial, neutral)
    running = _running(context, window, kind) if is_neutral else None
    if running is not None:
        return running
    if kind not in FUNCTIONS or dtype is BOOL:
        return _generic(context, window, 1)
    edges = not (is_neutral and window.is_simple)
    x = window.pad(context, x, initial, edges=edges)
    padding = ((0, 0),) * len(window.size) if edges else window.padding
    shape = tensor_type(x).shape
    added = [low + high for low, high in padding]
    places = window.places(tuple([s + more for s, more in zip(shape, added, strict=True)]))
    if 0 in places:
        return array.fill(emit, 0, tensor_type(x).with_shape(places))
    found = emit(
        array.ReduceWindow(
            x, FUNCTIONS[kind], window.size, window.strides, padding, window.dilations
        )
    )
    return with_initial(context, kind, found, initial)


def _running(context: NodeContext, window: _Window, kind: str) -> Value | None:
    """A window over everything up to each element, along one axis: a prefix scan."""
    shape = context.type(0).shape
    ones = (1,) * len(shape)
    axes = [axis for axis, size in enumerate(window.size) if size != 1]
    if kind not in CUMULATIVE or len(axes) != 1 or context.type(0).dtype is BOOL:
        return None
    if not window.strides == window.base == window.dilations == ones:
        return None
    (axis,) = axes
    size = shape[axis]
    if size != window.size[axis]:
        return None
    edges = list(window.padding)
    low, high = edges.pop(axis)
    if any(pair != (0, 0) for pair in edges) or {low, high} != {0, size - 1}:
        return None
    return context.emit(CUMULATIVE[kind](context.value(0), axis, low == 0))


def _generic(context: NodeContext, window: _Window, count: int) -> list[Value]:
    """Each element of the windows as a tensor; the region combines them."""
    emit = context.emit
    total = math.prod(window.size)
    if total > MOST:
        raise context.unsupported(f"by such a function over {total} elements is not imported")
    xs, initial = context.operands[:count], context.operands[count:]
    pairs = zip(xs, initial, strict=True)
    wide = [window.pad(context, x, value, edges=True) for x, value in pairs]
    shape = tensor_type(wide[0]).shape
    places = window.places(shape)
    if 0 in places:
        return [array.fill(emit, 0, tensor_type(x).with_shape(places)) for x in wide]
    offsets = list(itertools.product(*[range(size) for size in window.size]))
    rows = [
        emit(array.Concatenate(tuple(parts), 0)) if len(parts) > 1 else parts[0]
        for parts in (
            [_element(context, window, x, offset, places) for offset in offsets] for x in wide
        )
    ]
    last = [reshape(emit, row, places) for row in paired(context, rows)]
    started = [emit(array.Broadcast(value, places, ())) for value in initial]
    found = context.regions.applied(context.region(), [*started, *last], emit)
    return evened(emit, [*found, *started])[: len(found)]


def _element(
    context: NodeContext, window: _Window, x: Value, offset: tuple[int, ...], places: Shape
) -> Value:
    """The element at an offset of every window, with a first axis of size 1."""
    emit = context.emit
    starts = [k * dilation for k, dilation in zip(offset, window.dilations, strict=True)]
    limits = [
        start + (size - 1) * stride + 1
        for start, size, stride in zip(starts, places, window.strides, strict=True)
    ]
    part = emit(array.Slice(x, tuple(starts), tuple(limits), window.strides))
    return reshape(emit, part, (1, *places))


def _select_and_scatter(context: NodeContext) -> Made:
    """Each window's update added to the element that the window selects: the first of the extremes."""
    emit, x, updates, initial = context.emit, *context.operands
    chosen = formulas(context.region(0))[0]
    function = {"GE": "max", "LE": "min"}.get(str(chosen[1])) if len(chosen) == 5 else None
    if function is None or chosen[3:] != (("argument", 0), ("argument", 1)):
        raise context.unsupported("that selects by another function than >= or <= is not imported")
    if combined_by(context.region(1)) != "add":
        raise context.unsupported("that does not add what is scattered is not imported")
    window = _Window(context)
    type = tensor_type(x)
    lows = [max(low, 0) for low, _ in window.padding]
    if not window.is_simple:
        worst = identity("maximum" if function == "max" else "minimum", type.dtype) or 0
        outside = array.fill(emit, worst, type.with_shape(()))
        x = window.pad(context, x, outside, edges=True)
    padding = window.padding if window.is_simple else ((0, 0),) * type.rank
    found = emit(
        array.SelectAndScatter(
            x, function, window.size, window.strides, padding, window.dilations, updates
        )
    )
    if not window.is_simple:
        limits = tuple([low + size for low, size in zip(lows, type.shape, strict=True)])
        found = emit(array.Slice(found, tuple(lows), limits, (1,) * type.rank))
    if context.known.is_number(initial, 0):
        return found
    return emit(array.Add(found, emit(array.Broadcast(initial, type.shape, ()))))


IMPORTERS: dict[str, Importer] = {
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.select_and_scatter": _select_and_scatter,
}
