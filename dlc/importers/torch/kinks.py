"""Derivatives where a function has none: PyTorch's choice, for graphs that are differentiated.

The values are the same without; what is added here only says what comes back at the kink.
"""

from __future__ import annotations

from collections.abc import Callable

from dlc.dialects import array, flow
from dlc.dialects.array import tensor_type
from dlc.dialects.array.arithmetic import times
from dlc.importers.torch.node_context import Importer, NodeContext
from dlc.ir.core import Builder, Op, Value


def flat_at_ends(importer: Importer, low: float | str, high: float | str) -> Importer:
    """A function that is flat outside of `low` to `high`, and has the derivative 0 at both ends.

    The ends are numbers, or names of arguments.
    """

    def apply(context: NodeContext) -> Value:
        y = importer(context)
        assert isinstance(y, Value)
        if not context.regions.differentiated or not tensor_type(y).dtype.is_float:
            return y
        emit, x = context.emit, context.value("self")
        least, most = (
            context.number(end, default) if isinstance(end, str) else end
            for end, default in ((low, -1), (high, 1))
        )
        stopped = emit(flow.StopGradient(y))
        inside = emit(array.Select(_compared(emit, x, least, "gt"), y, stopped))
        return emit(array.Select(_compared(emit, x, most, "lt"), inside, stopped))

    return apply


def hard_swish(importer: Importer) -> Importer:
    """`x * clip(x + 3, 0, 6) / 6`, which has the derivative 0 at -3 and 1 at 3."""

    def apply(context: NodeContext) -> Value:
        y = importer(context)
        assert isinstance(y, Value)
        if not context.regions.differentiated:
            return y
        emit, x = context.emit, context.value("self")
        above = emit(array.Select(_compared(emit, x, 3, "ge"), x, y))
        return emit(array.Select(_compared(emit, x, -3, "le"), emit(flow.StopGradient(y)), above))

    return apply


def half_at_ties(
    pair: Callable[[NodeContext], tuple[Value, Value]], make: Callable[[Value, Value], Op]
) -> Importer:
    """The larger or the smaller of two, half of whose derivative goes to each where they are equal."""

    def apply(context: NodeContext) -> Value:
        emit = context.emit
        x, y = pair(context)
        found = emit(make(x, y))
        if not context.regions.differentiated or not tensor_type(x).dtype.is_float:
            return found
        half = emit(array.Add(times(emit, x, 0.5), times(emit, y, 0.5)))
        return emit(array.Select(emit(array.Compare(x, y, "eq")), half, found))

    return apply


def root(emit: Builder, squares: Value) -> Value:
    """The square root of a sum of squares, with the derivative 0 where all of them are 0."""
    is_zero = _compared(emit, squares, 0, "eq")
    one = array.constant_like(emit, 1, squares)
    found = emit(array.Sqrt(emit(array.Select(is_zero, one, squares))))
    return emit(array.Select(is_zero, array.constant_like(emit, 0, squares), found))


def _compared(emit: Builder, x: Value, number: float, predicate: str) -> Value:
    return emit(array.Compare(x, array.constant_like(emit, number, x), predicate))
