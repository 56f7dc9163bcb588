"""`update(x, at=[i, ..], v)`, whose place is written like an index.

Neighbours from computed places on are put as one slice; places of index tensors become a scatter. Both fail
the call where one is out of range.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array
from dlc.dialects.array import show
from dlc.dialects.array.index import MODES
from dlc.dialects.array.shape import reshape
from dlc.frontend.builtins.registry import SPECIALS
from dlc.frontend.elaboration.evaluator import Evaluator, Special, evaluates
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.elaboration.tensors import (
    as_tensor,
    broadcast_to,
    dtype_of,
    size_tensor,
    tensor_type,
    unify,
)
from dlc.frontend.elaboration.trace import Trace
from dlc.frontend.elaboration.values import Datum, describe
from dlc.frontend.indexing import Selection, selection
from dlc.ir.core import Value
from dlc.ir.dims import Dim, Size
from dlc.ir.types import I64, TensorType
from dlc.text.model import ast
from dlc.text.source import Span


def _update(ev: Evaluator, node: ast.Call, scope: Scope) -> Datum:
    named = {item.name: item.value for item in node.arguments if item.name is not None}
    positional = [item.value for item in node.arguments if item.name is None]
    place = named.pop("at", None)
    mode = ev.eval(named.pop("mode"), scope) if "mode" in named else "set"
    names = [name for name in ("x", "value") if name not in named]
    parts = dict(zip(names, positional, strict=False)) | named
    if place is None or len(positional) > len(names) or set(parts) != {"x", "value"}:
        raise ev.at.fail(
            "D0208",
            "update takes a tensor, the place `at`, and a value",
            node.span,
            help="write update(x, value, at=[0, ..])",
        )
    if not isinstance(place, ast.List | ast.IndexList):
        raise ev.at.fail("D0320", "a place is written like an index: at=[0, ..]", place.span)
    if not isinstance(mode, str) or mode not in MODES:
        raise ev.at.fail(
            "D0208",
            f"update has no mode {mode if isinstance(mode, str) else describe(mode)}",
            node.span,
            help=f"it has {', '.join(MODES)}",
        )
    target, value = ev.eval(parts["x"], scope), ev.eval(parts["value"], scope)
    ev.at.stand(parts["x"].span)
    return updated(ev, as_tensor(ev.at, target), place.items, value, scope, node.span, mode)


@evaluates(ast.IndexList)
def _place(ev: Evaluator, node: ast.IndexList, scope: Scope) -> Datum:
    raise ev.at.fail(
        "D0320",
        "a position in a tensor is not a value",
        node.span,
        help="only update takes one, as at=[0, ..]",
    )


SPECIALS["update"] = Special(
    "update",
    _update,
    'update(x, at=[i, ..], value, mode="set")',
    "A copy of x with a value, which is broadcast, at an index. The modes add, multiply, max and min "
    "combine the value with the element there; where index tensors name an element several times, the "
    "updates take effect in order.",
    "update([1, 2, 3], 9, at=[0])",
    "[9, 2, 3]",
    "shapes",
)


# The places ---------------------------------------------------------------------------------------


def updated(
    ev: Evaluator,
    target: Value,
    items: Sequence[ast.IndexItem],
    value: Datum,
    scope: Scope,
    span: Span,
    mode: str = "set",
) -> Value:
    """A copy of a tensor with a value, which stretches, at the places that an index names.

    `mode` is that of `array.scatter`: what is done with the value and the element in its place.
    """
    at = ev.at
    chosen = selection(ev, target, items, scope)
    at.stand(span)
    if chosen.new:
        raise at.fail(
            "D0305",
            "`new` names no place that could be updated",
            span,
            help="leave it out: the value stretches to the places that the others name",
        )
    places = _Places(at, target, chosen)
    part = as_tensor(at, value, dtype_of(target))
    if dtype_of(part) is not dtype_of(target):
        raise at.fail(
            "D0322",
            f"cannot put {show(part)} into {show(target)}",
            help=f"convert it: {dtype_of(target).name}(...)",
        )
    part = places.stretched(part)
    if mode == "set" and places.is_slice:
        part = reshape(at, part, places.slice_shape)
        return at(array.DynamicUpdateSlice(target, part, places.starts()))
    axes = tuple(range(tensor_type(target).rank))
    indices = [places.along(axis) for axis in axes]
    return at(array.Scatter(target, part, indices, axes, mode, not chosen.tensors))


def _first_of_consecutive(index: Value) -> Value | None:
    """The scalar of `scalar + arange(n)`, an index of neighbouring places; None for any other index."""
    if tensor_type(index).rank != 1 or not isinstance(index.op, array.Add):
        return None
    operands = list(index.op.operands)
    counted = [value for value in operands if isinstance(value.op, array.Iota)]
    spread = [value.op.source for value in operands if isinstance(value.op, array.Broadcast)]
    if len(counted) != 1 or len(spread) != 1 or tensor_type(spread[0]).rank:
        return None
    return spread[0]


class _Places:
    """The places of an update: their shape, and where in it each axis of the target lies.

    The axes of index tensors stand where the first of these stands, as in an index.
    """

    def __init__(self, at: Trace, target: Value, chosen: Selection) -> None:
        self.at, self.chosen = at, chosen
        wide = {axis: array.wide_index(at, index) for axis, index in chosen.tensors.items()}
        self.indices = dict(zip(wide, unify(at, [*wide.values()]), strict=True))
        self.first_index = self._first_index()
        self.shape: list[Size] = []
        self.first: dict[int, int] = {}
        """The position in the shape at which an axis begins."""
        for axis in range(tensor_type(target).rank):
            lead = min(self.indices) if axis in self.indices else axis
            self.first[axis] = self.first.get(lead, len(self.shape))
            if lead == axis:
                self.shape += self._sizes(axis)

    @property
    def is_single(self) -> bool:
        """Whether the indices that are computed are numbers."""
        return all(not tensor_type(index).rank for index in self.indices.values())

    @property
    def is_slice(self) -> bool:
        """Whether the places are neighbours from places on that are computed."""
        plain = all(step == 1 for step in self.chosen.steps) and not self.chosen.reversed
        return bool(self.first_index) and plain

    def _first_index(self) -> dict[int, Value]:
        """The first place along each axis with an index, if the places there are neighbours; else none."""
        if self.is_single:
            return self.indices
        if len(self.indices) > 1:
            return {}
        ((axis, index),) = self.chosen.tensors.items()
        first = _first_of_consecutive(index)
        return {} if first is None else {axis: array.wide_index(self.at, first)}

    @property
    def slice_shape(self) -> tuple[Size, ...]:
        """The shape of neighbouring places, with an axis for each of the target."""
        axes = range(len(self.chosen.starts))
        return tuple([self._sizes(axis)[0] for axis in axes])

    def starts(self) -> tuple[Value, ...]:
        """The first place along each axis, where the places are neighbours: an i64."""
        known = [self._start(start) for start in self.chosen.starts]
        return tuple([self.first_index.get(axis, start) for axis, start in enumerate(known)])

    def _start(self, start: Size) -> Value:
        if isinstance(start, Dim):
            return size_tensor(self.at, start, I64)
        return array.fill(self.at, start, TensorType(I64))

    def _sizes(self, axis: int) -> Sequence[Size]:
        """The sizes of the places for an axis; a single place has one too, which any value fits."""
        index = self.indices.get(axis)
        if index is not None:
            return tensor_type(index).shape or (1,)
        step = self.chosen.steps[axis]
        return [(self.chosen.limits[axis] - self.chosen.starts[axis] + (step - 1)) // step]

    def stretched(self, part: Value) -> Value:
        """The value, as `x[place]` gives it, with axes of size 1 for those named by a number."""
        named = [*self.chosen.dropped, *(self.indices if self.is_single else ())]
        single = {self.first[axis] for axis in named}
        open_axes = [k for k in range(len(self.shape)) if k not in single]
        own = list(tensor_type(part).shape)
        wanted = f"[{', '.join([str(self.shape[axis]) for axis in open_axes])}]"
        if len(own) > len(open_axes):
            message = f"{show(part)} has more axes than the place that it is put into, {wanted}"
            help = f"leave out axes of size 1: reshape(v, {wanted})"
            raise self.at.fail("D0301", message, help=help)
        aligned: list[Size] = [1] * len(self.shape)
        for axis, size in zip(reversed(open_axes), reversed(own), strict=False):
            aligned[axis] = size
        if any(a not in (1, n) for a, n in zip(aligned, self.shape, strict=True)):
            raise self.at.fail("D0301", f"{show(part)} does not fit a place of {wanted}")
        return broadcast_to(self.at, reshape(self.at, part, tuple(aligned)), tuple(self.shape))

    def along(self, axis: int) -> Value:
        """The index along one axis, in every place."""
        at, shape, first = self.at, tuple(self.shape), self.first[axis]
        index = self.indices.get(axis)
        if index is not None:
            own = tuple(self._sizes(axis))
            axes = tuple(range(first, first + len(own)))
            return at(array.Broadcast(reshape(at, index, own), shape, axes))
        counted = at(array.Iota(shape, first, I64))
        if axis in self.chosen.reversed:
            counted = at(array.Reverse(counted, (first,)))
        step, start = self.chosen.steps[axis], self.chosen.starts[axis]
        if step != 1:
            counted = at(array.Multiply(counted, array.constant_like(at, step, counted)))
        if isinstance(start, Dim):
            return at(array.Add(*unify(at, (counted, start))))
        return at(array.Add(counted, array.constant_like(at, start, counted))) if start else counted
