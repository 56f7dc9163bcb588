"""Cleanup before a text is written: it removes what exporters leave behind and no person would write."""

from __future__ import annotations

from typing import Any, NamedTuple

from dlc.dialects import array, func
from dlc.dialects.array import tensor_type
from dlc.ir.attributes import Dense
from dlc.ir.core import Op, Value
from dlc.ir.dims import Size
from dlc.ir.passes import Context
from dlc.ir.rewrite import EQUAL, Pattern, Rewriter
from dlc.passes.graph.canonicalize import fold, folding_rules, graph_blocks, merge_reshapes, number
from dlc.passes.graph.integer_range import integer_range


def tidy(function: func.Func) -> None:
    """Drop identities and compute what is known, such as that no index of `arange` is negative."""
    rules: dict[type[Op], list[Pattern[Any]]] = {
        kind: [OTHERWISE.get(rule, rule) for rule in found]
        for kind, found in folding_rules().items()
    }
    for kind, rule in OWN.items():
        rules[kind] = [rule, *rules.get(kind, [])]
    rewriter = Context().rewriter
    while rewriter.run([function.body, *graph_blocks(function)], rules):
        pass


def _fold_unless_table(op: Op, rewriter: Rewriter) -> bool:
    """An operation that is a number or one of its operands; a table of numbers is better computed."""
    folded = op.fold() if op.pure and len(op.results) == 1 else None
    return not (isinstance(folded, Dense) and not folded.is_splat) and fold(op, rewriter)


def _reshape_of_number(op: array.Reshape, rewriter: Rewriter) -> bool:
    """A reshape of a number in all places.

    Others stay as they are: a reading of rows times a matrix needs the reshapes around the product.
    """
    return isinstance(op.source.op, array.Fill) and merge_reshapes(op, rewriter)


OTHERWISE: dict[Pattern[Any], Pattern[Any]] = {
    fold: _fold_unless_table,
    merge_reshapes: _reshape_of_number,
}
"""Rules of the pass that are other ones here."""


def _known_sign(op: array.Compare, rewriter: Rewriter) -> bool:
    """What counts from 0 is never negative."""
    if op.predicate not in ("lt", "ge") or number(op.rhs) != 0 or _counted(op.lhs) is None:
        return False
    known = array.Fill(op.predicate == "ge", tensor_type(op.result))
    rewriter.replace(op, rewriter.before(op)(known), relation=EQUAL)
    return True


def _neutral(op: Op, rewriter: Rewriter) -> bool:
    """`x and true` and `x or false` are x."""
    neutral = isinstance(op, array.And)
    for one, other in (op.operands, reversed(op.operands)):
        if number(one) is neutral:
            rewriter.replace(op, other, relation=EQUAL)
            return True
    return False


def _within(op: Op, rewriter: Rewriter) -> bool:
    """`maximum` and `minimum` of integers that are never beyond the limit."""
    limit = number(op.operands[1])
    if not isinstance(limit, int) or not tensor_type(op.result).dtype.is_integer:
        return False
    low, high = integer_range(op.operands[0])
    inside = low >= limit if isinstance(op, array.Maximum) else high <= limit
    if inside:
        rewriter.replace(op, op.operands[0], relation=EQUAL)
    return inside


def _all_places(op: array.Gather, rewriter: Rewriter) -> bool:
    """A gather of all elements along axes, each in its place, only moves these axes."""
    source = tensor_type(op.source)
    counted = [_counted(index) for index in op.indices]
    front = tensor_type(op.indices[0]).rank
    to: dict[int, int] = {}
    for axis, found in zip(op.axes, counted, strict=True):
        if found is None or found.size != source.shape[axis] or found.axis in to.values():
            return False
        to[axis] = found.axis
    rest = [axis for axis in range(source.rank) if axis not in to]
    to |= {axis: front + k for k, axis in enumerate(rest)}
    emit = rewriter.before(op)
    order = tuple(sorted(range(source.rank), key=to.__getitem__))
    moved = op.source
    if order != tuple(range(source.rank)):
        moved = emit(array.Transpose(moved, order))
    shape = tensor_type(op.result).shape
    if tensor_type(moved).shape != shape:
        moved = emit(array.Broadcast(moved, shape, tuple(sorted(to.values()))))
    rewriter.replace(op, moved, relation=EQUAL)
    return True


def _squeezed(op: array.Broadcast, rewriter: Rewriter) -> bool:
    """A broadcast of a reshape that only adds axes of size 1."""
    inner = op.source.op
    if not isinstance(inner, array.Reshape):
        return False
    shape = tensor_type(inner.source).shape
    long = [axis for axis, size in enumerate(inner.shape) if size != 1]
    if shape != tuple([inner.shape[axis] for axis in long]):
        return False
    axes = tuple([op.axes[axis] for axis in long])
    new = rewriter.before(op)(array.Broadcast(inner.source, op.shape, axes))
    rewriter.replace(op, new, relation=EQUAL)
    return True


OWN: dict[type[Op], Pattern[Any]] = {
    array.Broadcast: _squeezed,
    array.Compare: _known_sign,
    array.And: _neutral,
    array.Or: _neutral,
    array.Gather: _all_places,
    array.Maximum: _within,
    array.Minimum: _within,
}


class _Counted(NamedTuple):
    """A tensor that counts 0, 1, 2 along one axis to its end, and is alike along all others."""

    axis: int
    size: Size


def _counted(value: Value) -> _Counted | None:
    """Along which axis a tensor counts from 0; None for one that does not."""
    op = value.op
    match op:
        case array.Iota(shape=shape, axis=axis):
            return _Counted(axis, shape[axis])
        case array.Cast(source=source) if tensor_type(value).dtype.is_integer:
            return _counted(source) if tensor_type(source).dtype.is_integer else None
        case array.Broadcast(source=source, axes=axes):
            found = _counted(source)
            if found is None or op.shape[axes[found.axis]] != found.size:
                return None
            return _Counted(axes[found.axis], found.size)
        case array.Reshape(source=source, shape=shape):
            found = _counted(source)
            long = [axis for axis, size in enumerate(shape) if size != 1]
            if found is None or len(long) != 1 or shape[long[0]] != found.size:
                return None
            return _Counted(long[0], found.size)
        case _:
            return None
