"""`x[0, 1:T, .., new]` and `emb[ids]`.

Places known when compiling become slices; computed ones become a gather, which fails the call
when an index is out of range. Index tensors put their axes where the first of them was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dlc.dialects import array
from dlc.dialects.array import show
from dlc.dialects.array.shape import reshape, transpose
from dlc.errors import ModelError
from dlc.frontend.elaboration.evaluator import Evaluator, evaluates
from dlc.frontend.elaboration.problems import Poisoned
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.elaboration.tensors import (
    as_tensor,
    convert,
    dtype_of,
    tensor_type,
    unify,
)
from dlc.frontend.elaboration.trace import Trace
from dlc.frontend.elaboration.values import UNKNOWN, Datum, Items, Range, Record, describe
from dlc.frontend.modules.chains import Chain
from dlc.frontend.modules.instances import Stack
from dlc.ir.core import Value
from dlc.ir.dims import Size
from dlc.ir.intervals import interval
from dlc.ir.types import BOOL, I64
from dlc.text.model import ast
from dlc.text.source import Span

__all__ = ["Selection", "indexed", "selection"]


@dataclass(slots=True)
class Selection:
    """The selection that an index makes of one tensor, axis by axis."""

    starts: list[Size] = field(default_factory=list[Size])
    limits: list[Size] = field(default_factory=list[Size])
    steps: list[int] = field(default_factory=list[int])
    reversed: list[int] = field(default_factory=list[int])
    dropped: list[int] = field(default_factory=list[int])
    tensors: dict[int, Value] = field(default_factory=dict[int, Value])
    new: list[int] = field(default_factory=list[int])
    """Before which axis of the source each new axis stands."""

    def whole(self, size: Size) -> None:
        """Take all of an axis."""
        self.starts.append(0)
        self.limits.append(size)
        self.steps.append(1)


@evaluates(ast.Index)
def _index(ev: Evaluator, node: ast.Index, scope: Scope) -> Datum:
    value = ev.eval(node.value, scope)
    match value:
        case Value():
            return _checked(ev, node, value, scope)
        case Items(items) if _is_list(items):
            return _item(ev, node, items, scope)
        case Items():
            ev.at.stand(node.value.span)
            return _checked(ev, node, as_tensor(ev.at, value), scope)
        case Record(items) | Chain(items):
            return _item(ev, node, items, scope)
        case Stack(count):
            return value.block(_position(ev, node, count, scope))
        case Range(int() as start, int() as stop):
            return _item(ev, node, tuple(range(start, stop)), scope)
        case _:
            if value is UNKNOWN:
                raise Poisoned
            raise ev.at.fail("D0326", f"{describe(value)} has no parts to index", node.span)


def _is_list(items: tuple[Datum, ...]) -> bool:
    """Whether a list is one of sizes, layers or tuples, whose items stay what they are."""
    return not any(isinstance(item, Items | float) for item in items)


def _checked(ev: Evaluator, node: ast.Index, value: Value, scope: Scope) -> Datum:
    try:
        return indexed(ev, value, node.items, scope, node.span)
    except ModelError as error:
        raise ev.labelled(error, [(node.value.span, value)]) from None


def _position(ev: Evaluator, node: ast.Index, count: int, scope: Scope) -> int:
    """A number that counts items, from the end if it is negative."""
    item = node.items[0]
    if len(node.items) != 1 or isinstance(item, ast.Slice | ast.NewAxis | ast.Dots):
        raise ev.at.fail("D0326", "a list is indexed by one number", node.span)
    position = ev.integer(item, scope)
    if not -count <= position < count:
        raise ev.at.fail(
            "D0329", f"index {position} is out of range for a list of {count}", item.span
        )
    return position % count


def _item(ev: Evaluator, node: ast.Index, items: Sequence[Datum], scope: Scope) -> Datum:
    first = node.items[0]
    if len(node.items) == 1 and isinstance(first, ast.Slice):
        parts = [
            None if part is None else ev.integer(part, scope)
            for part in (first.start, first.stop, first.step)
        ]
        return Items(tuple(items[slice(*parts)]))
    return items[_position(ev, node, len(items), scope)]


# Tensors ------------------------------------------------------------------------------------------


def indexed(
    ev: Evaluator, value: Value, items: Sequence[ast.IndexItem], scope: Scope, span: Span
) -> Value:
    """The part of a tensor that an index names."""
    at = ev.at
    chosen = selection(ev, value, items, scope)
    at.stand(span)
    shape = tensor_type(value).shape
    starts, limits, steps = chosen.starts, chosen.limits, chosen.steps
    taken = value
    if any(starts) or limits != list(shape) or any(step != 1 for step in steps):
        taken = at(array.Slice(value, tuple(starts), tuple(limits), tuple(steps)))
    if chosen.reversed:
        taken = at(array.Reverse(taken, tuple(chosen.reversed)))
    if chosen.tensors:
        return _gathered(at, taken, chosen)
    return reshape(at, taken, _final_shape(list(tensor_type(taken).shape), chosen))


def _final_shape(shape: list[Size], chosen: Selection) -> tuple[Size, ...]:
    """The shape without the axes that a number took away and with the new ones."""
    final: list[Size] = []
    for axis in range(len(shape) + 1):
        final += [1] * chosen.new.count(axis)
        if axis < len(shape) and axis not in chosen.dropped:
            final.append(shape[axis])
    return tuple(final)


def _gathered(at: Trace, source: Value, chosen: Selection) -> Value:
    """The places that index tensors name; then new axes and axes taken away by numbers."""
    axes = sorted(chosen.tensors)
    indices = unify(at, [chosen.tensors[axis] for axis in axes])
    result = at(array.Gather(source, tuple(indices), tuple(axes)))
    width = tensor_type(indices[0]).rank
    rest = [axis for axis in range(tensor_type(source).rank) if axis not in axes]
    before = sum(axis < axes[0] for axis in rest)
    order = (
        *range(width, width + before),
        *range(width),
        *range(width + before, width + len(rest)),
    )
    result = transpose(at, result, order)
    shape = list(tensor_type(result).shape)
    final: list[Size] = []
    for axis in range(tensor_type(source).rank + 1):
        final += [1] * chosen.new.count(axis)
        if axis == axes[0]:
            final += shape[before : before + width]
        elif axis in rest and axis not in chosen.dropped:
            final.append(tensor_type(source).shape[axis])
    return reshape(at, result, tuple(final))


# What an index says -------------------------------------------------------------------------------


def selection(
    ev: Evaluator, value: Value, items: Sequence[ast.IndexItem], scope: Scope
) -> Selection:
    shape = tensor_type(value).shape
    used = sum(not isinstance(item, ast.Dots | ast.NewAxis) for item in items)
    dots = [item for item in items if isinstance(item, ast.Dots)]
    if used > len(shape):
        raise ev.at.fail(
            "D0305",
            f"{used} indices for {show(value)}, which has {_axes(len(shape))}",
            items[-1].span,
            help="one index is for one axis; `new` adds an axis and counts as none",
        )
    if len(dots) > 1:
        raise ev.at.fail(
            "D0305",
            "more than one `..` in an index",
            dots[1].span,
            help="one stands for all axes that no index names; write `:` for a single one",
        )
    chosen = Selection()
    for item in items:
        axis = len(chosen.starts)
        match item:
            case ast.NewAxis():
                chosen.new.append(axis)
            case ast.Dots():
                for size in shape[axis : axis + len(shape) - used]:
                    chosen.whole(size)
            case ast.Slice():
                _slice(ev, item, shape[axis], chosen, scope)
            case _:
                _place(ev, item, value, axis, chosen, scope)
    for size in shape[len(chosen.starts) :]:
        chosen.whole(size)
    return chosen


def _axes(count: int) -> str:
    return f"{count} axis" if count == 1 else f"{count} axes"


def _place(
    ev: Evaluator, item: ast.Expr, value: Value, axis: int, chosen: Selection, scope: Scope
) -> None:
    """A number or a tensor of numbers."""
    index_value = ev.eval(item, scope)
    size = tensor_type(value).shape[axis]
    if isinstance(index_value, Value | Items):
        ev.at.stand(item.span)
        index = as_tensor(ev.at, index_value)
        if dtype_of(index) is BOOL:
            raise ev.at.fail(
                "D0337",
                f"an index is a whole number, found {show(index)}",
                item.span,
                help="choose with where(mask, x, 0), or take the places from nonzero(mask)",
            )
        if not dtype_of(index).is_integer:
            raise ev.at.fail(
                "D0337",
                f"an index is a whole number, found {show(index)}",
                item.span,
                help="convert it: i32(...)",
            )
        # Indices of several tensors must have one dtype, and 64 bits count any axis.
        chosen.tensors[axis] = convert(ev.at, index, I64) if _is_narrow(index) else index
        chosen.whole(size)
        return
    position = ev.as_size(index_value, item.span)
    if isinstance(position, int) and position < 0:
        position = size + position
    if _is_below(ev.at, position, 0) or _is_below(ev.at, size - 1, position):
        raise ev.at.fail(
            "D0329",
            f"index {index_value} is out of range for axis {axis} of {show(value)}",
            item.span,
            help=f"it has the places 0 to {size - 1}" if size != 0 else "the axis has no places",
        )
    chosen.starts.append(position)
    chosen.limits.append(position + 1)
    chosen.steps.append(1)
    chosen.dropped.append(axis)


def _is_narrow(index: Value) -> bool:
    return dtype_of(index).bits < 32


def _is_below(at: Trace, one: Size, other: Size) -> bool:
    """Whether one size is smaller whatever the dims are."""
    highest = interval(one - other, at.bounds)[1]
    return highest is not None and highest < 0


def _slice(ev: Evaluator, item: ast.Slice, size: Size, chosen: Selection, scope: Scope) -> None:
    """`start:stop:step`; negative numbers count from the end, and nothing is clamped."""
    step = 1 if item.step is None else ev.integer(item.step, scope)
    if step == 0:
        assert item.step is not None
        raise ev.at.fail("D0329", "the step of a slice is not 0", item.step.span)
    start = _bound(ev, item.start, size, scope)
    stop = _bound(ev, item.stop, size, scope)
    if step < 0:
        # From `start` down to, not including, `stop`: the same places in rising order, reversed.
        last = size - 1 if start is None else start
        first = 0 if stop is None else stop + 1
        count = (last - first - step) // -step
        first = last + (count - 1) * step
        chosen.reversed.append(len(chosen.starts))
        low, high = first, last + 1
    else:
        low, high = 0 if start is None else start, size if stop is None else stop
    if any(_is_below(ev.at, *pair) for pair in ((low, 0), (high, low), (size, high))):
        raise ev.at.fail(
            "D0329",
            f"the slice {low}:{high} leaves an axis of size {size}",
            item.span,
            help="slices are not clamped: its ends lie from 0 to the size, the first before the last",
        )
    chosen.starts.append(low)
    chosen.limits.append(high)
    chosen.steps.append(abs(step))


def _bound(ev: Evaluator, node: ast.Expr | None, size: Size, scope: Scope) -> Size | None:
    if node is None:
        return None
    value = ev.eval(node, scope)
    if isinstance(value, Value):
        raise ev.at.fail(
            "D0327",
            f"the ends of a slice are known when compiling, found {show(value)}",
            node.span,
            help="take places with an index tensor: x[i + arange(n)]",
        )
    bound = ev.as_size(value, node.span)
    return size + bound if isinstance(bound, int) and bound < 0 else bound
