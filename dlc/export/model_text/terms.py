"""Terms of model text: a value as a call, an operator, an index or a layer over other values.

A term says how one value follows from others, without saying yet what these are called or whether they
are written in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from dlc.importers.onnx.facts import Array
from dlc.ir.core import Value
from dlc.ir.dims import Dim, Size
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
    """Numbers that a weight file holds; `origin` is what they were called before.

    Of a stack `parts` are what the numbers of each layer were called.
    """

    array: Array
    dtype: DType
    origin: str
    trained: bool = True
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Layer:
    """`module(settings)`, applied to a value; `weights` are its members by name.

    `name` is what it is called where it comes from. With a `count` it is a stack of `count` instances, each
    applied to the result of the one before, and its weights are stacked.
    """

    module: str
    settings: tuple[tuple[str, Item], ...]
    """By name; the name is empty for those that are given by their place."""
    weights: tuple[tuple[str, Weight], ...]
    source: Value
    more: tuple[Value, ...] = ()
    """Its further arguments."""
    name: str = ""
    count: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """One of the results of a term that has several."""

    whole: Term
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Braces:
    """A block in braces: its terms in order, and the values that it yields.

    `arguments` are what a loop names anew in each step. All else is a value around the braces.
    """

    terms: Mapping[Value, Term]
    arguments: tuple[Value, ...]
    results: tuple[Value, ...]


@dataclass(frozen=True, slots=True, eq=False)
class If:
    """`if condition then ... else ...`."""

    condition: Value
    then: Braces
    otherwise: Braces


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """`scan pattern in sources with ... { ... }`: the arguments are the number of the step, what is
    carried, and this step's parts of the sources. The body hands over what is carried, then the yields.
    """

    sources: tuple[Value, ...]
    length: Size
    along: int
    reverse: bool
    initial: tuple[Value, ...]
    body: Braces


@dataclass(frozen=True, slots=True, eq=False)
class While:
    """`while condition with ... { ... }`: both take what is carried."""

    condition: Braces
    initial: tuple[Value, ...]
    body: Braces


Form: TypeAlias = If | Scan | While
"""Terms that are written with braces."""
Term: TypeAlias = Call | Infix | Prefix | Index | Layer | Part | Form
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
        case Layer(source=source, more=more):
            yield source
            yield from more
        case Part(whole):
            yield from values_of(whole)
        case If(condition, then, otherwise):
            yield condition
            yield from _around(then)
            yield from _around(otherwise)
        case Scan(sources=sources, initial=initial, body=body):
            yield from sources
            yield from initial
            yield from _around(body)
        case While(condition, initial, body):
            yield from initial
            yield from _around(condition)
            yield from _around(body)
        case tuple():
            for part in item:
                yield from values_of(part)
        case _:
            pass


def _around(braces: Braces) -> Iterator[Value]:
    """The values that stand around braces and are used in them."""
    own = {*braces.terms, *braces.arguments}
    for part in (*braces.terms.values(), *braces.results):
        yield from [value for value in values_of(part) if value not in own]
