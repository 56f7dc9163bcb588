"""Windows that slide over tensors: pooling, running totals, and the derivative of a window maximum."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlc.dialects import array
from dlc.dialects.array import tensor_type
from dlc.dialects.array.shape import reshape
from dlc.importers.stablehlo.facts import Region
from dlc.importers.stablehlo.node_context import Importer, Made, NodeContext
from dlc.importers.stablehlo.operators.elementwise import evened
from dlc.importers.stablehlo.operators.formulas import combined_by, formulas
from dlc.importers.stablehlo.operators.reductions import combination, identity, paired, with_initial
from dlc.importers.stablehlo.operators.shapes import padded
from dlc.ir.core import Op, Value
from dlc.ir.dims import Dim, Shape, Size
from dlc.ir.types import BOOL

MOST = 1 << 12
"""The most elements of a window whose function has no operation of its own."""

FUNCTIONS = {"add": "sum", "maximum": "max", "minimum": "min"}
CUMULATIVE: dict[str, Callable[..., Op]] = {
    "add": array.CumulativeSum,
    "multiply": array.CumulativeProduct,
    "maximum": array.CumulativeMax,
    "minimum": array.CumulativeMin,
}


@dataclass(frozen=True, slots=True)
class _Window:
    """The numbers of a window, and the region that combines its elements."""

    region: Region
    size: tuple[int, ...]
    strides: tuple[int, ...]
    base: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: tuple[tuple[Size, Size], ...]

    @classmethod
    def of(cls, context: NodeContext) -> _Window:
        """The window that the attributes of an operation describe."""
        rank = context.type(0).rank
        ones = (1,) * rank
        return cls(
            context.region(),
            context.integers("window_dimensions"),
            context.integers("window_strides", ones),
            context.integers("base_dilations", ones),
            context.integers("window_dilations", ones),
            context.pairs("padding", rank),
        )

    @property
    def reach(self) -> tuple[int, ...]:
        """The distance from the first element of a window to the last, along each axis."""
        pairs = zip(self.size, self.dilations, strict=True)
        return tuple([(size - 1) * dilation for size, dilation in pairs])

    @property
    def is_simple(self) -> bool:
        """Whether the padding is less than the window, which is what `array.reduce_window` takes."""
        pairs = zip(self.padding, self.reach, strict=True)
        return all(
            isinstance(size, Dim) or 0 <= size <= reach
            for (low, high), reach in pairs
            for size in (low, high)
        )

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
    window = _Window.of(context)
    if count > 1:
        return _generic(context, window, count)
    kind = combination(window.region, context.type(0).dtype) or ""
    axis = _running_axis(window.size, context.type(0).shape)
    is_plain = {*window.strides, *window.base, *window.dilations} <= {1}
    if axis is not None and is_plain and _is_neutral(context, kind):
        found = _running(context, kind, axis, window.padding)
        if found is not None:
            return found
    return _windowed(context, window, kind)


def _dynamic_reduce_window(context: NodeContext) -> Made:
    """As a custom call, whose function and sizes are named and computed elsewhere."""
    called = context.given("called_computations")
    name = called[0] if isinstance(called, tuple) else ""
    region = context.regions.function(str(name))
    sizes, *steps, edges = (context.sizes(index) for index in range(2, 7))
    padding = tuple(zip(edges[::2], edges[1::2], strict=True))
    strides, base, dilations = (tuple([n for n in s if isinstance(n, int)]) for s in steps)
    window = tuple([size for size in sizes if isinstance(size, int)])
    kind = combination(region, context.type(0).dtype) or ""
    axis = _running_axis(sizes, context.type(0).shape)
    if axis is not None and {*strides, *base, *dilations} <= {1} and _is_neutral(context, kind):
        found = _running(context, kind, axis, padding)
        if found is not None:
            return found
    if len(window) != len(sizes):
        raise context.unsupported(
            "over a number of elements that only a call knows is not imported"
        )
    return _windowed(context, _Window(region, window, strides, base, dilations, padding), kind)


def _is_neutral(context: NodeContext, kind: str) -> bool:
    """Whether the first value leaves others as they are."""
    neutral = identity(kind, context.type(0).dtype)
    return neutral is not None and context.known.is_number(context.value(1), neutral)


def _windowed(context: NodeContext, window: _Window, kind: str) -> Made:
    emit, x, initial = context.emit, context.value(0), context.value(1)
    dtype = tensor_type(x).dtype
    if kind not in FUNCTIONS or dtype is BOOL:
        return _generic(context, window, 1)
    edges = not (_is_neutral(context, kind) and window.is_simple)
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
    return with_initial(context, window.region, kind, found, initial)


def _running_axis(sizes: Sequence[Size], shape: Shape) -> int | None:
    """The only axis along which a window is longer than 1, where it is as long as the tensor."""
    axes = [axis for axis, size in enumerate(sizes) if size != 1]
    return axes[0] if len(axes) == 1 and sizes[axes[0]] == shape[axes[0]] else None


def _running(
    context: NodeContext, kind: str, axis: int, padding: Sequence[tuple[Size, Size]]
) -> Value | None:
    """A window over everything up to each element, or from it on: a prefix scan."""
    type = context.type(0)
    if kind not in CUMULATIVE or type.dtype is BOOL:
        return None
    edges = list(padding)
    before, last = edges.pop(axis), type.shape[axis] - 1
    if any(pair != (0, 0) for pair in edges) or before not in ((last, 0), (0, last)):
        return None
    return context.emit(CUMULATIVE[kind](context.value(0), axis, before == (0, last)))


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
    last = [reshape(emit, row, places) for row in paired(context, window.region, rows)]
    started = [emit(array.Broadcast(value, places, ())) for value in initial]
    found = context.regions.applied(window.region, [*started, *last], emit)
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
    window = _Window.of(context)
    type = tensor_type(x)
    lows = [max(low, 0) for low, _ in context.pairs("padding", type.rank)]
    if not window.is_simple:
        worst = identity("maximum" if function == "max" else "minimum", type.dtype) or 0
        outside = array.fill(emit, worst, type.with_shape(()))
        x = window.pad(context, x, outside, edges=True)
    padding = window.padding if window.is_simple else ((0, 0),) * type.rank
    found = emit(
        array.SelectAndScatter(
            x,
            updates=updates,
            function=function,
            window=window.size,
            strides=window.strides,
            padding=padding,
            dilations=window.dilations,
        )
    )
    if not window.is_simple:
        limits = tuple([low + size for low, size in zip(lows, type.shape, strict=True)])
        found = emit(array.Slice(found, tuple(lows), limits, (1,) * type.rank))
    if context.known.is_number(initial, 0):
        return found
    return emit(array.Add(found, emit(array.Broadcast(initial, type.shape, ()))))


IMPORTERS: dict[str, Importer] = {
    "stablehlo.custom_call @stablehlo.dynamic_reduce_window": _dynamic_reduce_window,
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.select_and_scatter": _select_and_scatter,
}
