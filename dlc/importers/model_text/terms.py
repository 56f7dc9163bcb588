"""What a value is in model text: a call, an operator, an index or a layer, over other values.

A term says how one value follows from others, without saying yet what these are called or whether they
are written in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from dlc.importers.onnx.facts import Array
from dlc.ir.core import Value
from dlc.ir.dims import Dim
from dlc.ir.types import DType


@dataclass(frozen=True, slots=True)
class Code:
    """Text that is written as it stands, such as `_`."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """`function(items, name=item)`."""

    function: str
    items: tuple[Item, ...]
    named: tuple[tuple[str, Item], ...] = ()


@dataclass(frozen=True, slots=True)
class Infix:
    """`left op right`."""

    op: str
    left: Item
    right: Item


@dataclass(frozen=True, slots=True)
class Prefix:
    """`-x`, `not x`."""

    op: str
    operand: Item


@dataclass(frozen=True, slots=True)
class Cut:
    """`start:stop:step` of one axis; None where an end is left out."""

    start: Item = None
    stop: Item = None
    step: int = 1


@dataclass(frozen=True, slots=True)
class Index:
    """`source[places]`."""

    source: Item
    places: tuple[Item | Cut, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """Numbers that a weight file holds; `origin` is what they were called before."""

    array: Array
    dtype: DType
    origin: str
    trained: bool = True


@dataclass(frozen=True, slots=True)
class Layer:
    """`module(settings)`, applied to a value; `weights` are its members by name."""

    module: str
    settings: tuple[tuple[str, Item], ...]
    """By name; the name is empty for those that are given by their place."""
    weights: tuple[tuple[str, Weight], ...]
    source: Value


@dataclass(frozen=True, slots=True)
class Part:
    """One of the results of a term that has several."""

    whole: Term
    index: int


Term: TypeAlias = Call | Infix | Prefix | Index | Layer | Part
Known: TypeAlias = "Weight | Code | Dim | DType | bool | int | float | str | None"
Item: TypeAlias = "Value | Term | Known | tuple[Item, ...]"
"""Something in a term: a value, a term in place, or something known: a tuple is a list."""


def values_of(item: Item | Cut) -> Iterator[Value]:
    """The values that an item is made of, in order of the text, each as often as it stands there."""
    match item:
        case Value():
            yield item
        case Call(_, items, named):
            for part in (*items, *[value for _, value in named]):
                yield from values_of(part)
        case Infix(_, left, right):
            yield from values_of(left)
            yield from values_of(right)
        case Prefix(_, operand):
            yield from values_of(operand)
        case Index(source, places):
            yield from values_of(source)
            for place in places:
                yield from values_of(place)
        case Cut(start, stop):
            yield from values_of(start)
            yield from values_of(stop)
        case Layer(source=source):
            yield source
        case Part(whole):
            yield from values_of(whole)
        case tuple():
            for part in item:
                yield from values_of(part)
        case _:
            pass
