"""The weights of a model: one symbol for each `param` and `state`, and their values where they are used."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects import array, weight
from dlc.dialects.array.shape import reshape
from dlc.errors import Place
from dlc.frontend.initialisers import Origin
from dlc.frontend.tensors import tensor_type
from dlc.frontend.trace import Loop, Trace
from dlc.ir.attributes import Symbol
from dlc.ir.core import Op, Value
from dlc.ir.location import FileLocation
from dlc.ir.types import TensorType

__all__ = ["Pick", "Weight", "picked", "source_of", "weight_value"]


Pick = int | Loop
"""Which of stacked blocks is meant: a fixed one, or the one of each step of a loop."""


@dataclass(frozen=True, slots=True)
class Weight:
    """One `param` or `state` of one instance. `type` has the leading sizes of the stack."""

    symbol: str
    type: TensorType
    origin: Origin
    trained: bool
    stacked: int
    place: Place


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
    for pick in picks:
        value = picked(at, value, pick)
    return value


def picked(at: Trace, value: Value, pick: Pick) -> Value:
    """One of the stacked values."""
    if not isinstance(pick, int):
        return pick.slice_of(value)
    shape = tensor_type(value).shape
    rest = len(shape) - 1
    starts, limits = (pick, *[0] * rest), (pick + 1, *shape[1:])
    return reshape(at, at(array.Slice(value, starts, limits, (1,) * (rest + 1))), shape[1:])
