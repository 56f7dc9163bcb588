"""The weights of a model: one symbol for each `param` and `state`, and their values where they are used."""

from __future__ import annotations

from dlc.dialects import array, weight
from dlc.dialects.array.shape import reshape
from dlc.frontend.elaboration.tensors import tensor_type
from dlc.frontend.elaboration.trace import Loop, Trace
from dlc.frontend.elaboration.weight import Weight
from dlc.ir.attributes import Symbol
from dlc.ir.core import Op, Value
from dlc.ir.location import FileLocation

__all__ = ["Pick", "source_of", "weight_value"]


Pick = int | Loop
"""The selected one of stacked blocks: a fixed one, or that of each step of a loop."""


def source_of(item: Weight) -> Op:
    """The symbol of a weight."""
    source = weight.Source(
        item.symbol,
        item.type,
        item.origin.key or item.symbol,
        item.origin.file,
        item.origin.init,
        item.trained,
        item.stacked,
        item.parts,
        item.transposed,
        item.portion,
        item.constant,
        splits=None if item.splits is None else tuple([f"{by} {axis}" for by, axis in item.splits]),
    )
    place = item.place
    source.location = FileLocation(place.file, place.line, place.column, place.end)
    return source


def weight_value(at: Trace, item: Weight, picks: tuple[Pick, ...]) -> Value:
    """The value of a weight in the function at hand; read once, at the function's top level.

    A weight without elements is stored nowhere: it is made where it is used.
    """
    if item.type.size == 0:
        return array.fill(at, 0, item.type.with_shape(item.type.shape[len(picks) :]))
    value = at.gets.get(item.symbol)
    if value is None:
        get = weight.Get(Symbol(item.symbol), item.type)
        get.location = at.location
        at.top.insert(get, None)
        value = at.gets[item.symbol] = get.result
        value.name = item.symbol
        at.declared[value] = item.place
        at.stacked[item.symbol] = item.stacked
    for k, pick in enumerate(picks):
        if not isinstance(pick, int):
            value = pick.slice_of(value)
            continue
        # What an inner loop goes through is taken before that loop.
        inner = next((loop for loop in picks[k:] if not isinstance(loop, int)), None)
        with at.inside(at.block if inner is None else inner.outer):
            value = _fixed_part(at, value, pick)
    return value


def _fixed_part(at: Trace, value: Value, pick: int) -> Value:
    """One of the stacked values."""
    shape = tensor_type(value).shape
    rest = len(shape) - 1
    starts, limits = (pick, *[0] * rest), (pick + 1, *shape[1:])
    return reshape(at, at(array.Slice(value, starts, limits, (1,) * (rest + 1))), shape[1:])
