"""Expressions as text, with parentheses where an operator needs them, and calls as chains."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Final

from dlc.export.model_text.terms import (
    Call,
    Code,
    Cut,
    Form,
    If,
    Index,
    Infix,
    Item,
    Layer,
    Part,
    Prefix,
    Scan,
    Weight,
    While,
)
from dlc.ir.core import Value
from dlc.ir.dims import Dim, Size, names
from dlc.ir.types import DType, TensorType
from dlc.text.model.literals import quote
from dlc.text.model.parser_expressions import LEVELS, NOT_LEVEL

SIGN: Final = LEVELS["*"] + 1
POWER: Final = SIGN + 1
VALUE: Final = POWER + 1
"""The precedences of signs, powers and values: above any operator."""
UNCHAINED: Final = frozenset({"update"})
"""Functions that look at their arguments as they are written: nothing is handed on to them by `|>`."""
FORM: Final = 0
"""Choices and loops reach as far as they can: no operator holds together less tightly."""


@dataclass(frozen=True, slots=True)
class Expr:
    """A text and how tightly it holds together.

    A call is kept apart as its first argument and the functions that are applied to it, each with its
    further arguments: so calls of calls become a chain, `x |> conv1 |> relu`.
    """

    plain: str
    own: int = VALUE
    stages: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        """The whole."""
        if not self.stages:
            return self.plain
        if len(self.stages) == 1:
            function, more = self.stages[0]
            return f"{function}({self.plain}{', ' if more else ''}{more})"
        first = self.plain if self.own > LEVELS["|>"] else f"({self.plain})"
        calls = [f"{function}({more})" if more else function for function, more in self.stages]
        return " |> ".join([first, *calls])

    @property
    def level(self) -> int:
        """Its precedence."""
        if not self.stages:
            return self.own
        return VALUE if len(self.stages) == 1 else LEVELS["|>"]

    def at(self, level: int) -> str:
        """The text for a place of that precedence, in parentheses if it binds less tightly."""
        return self.text if self.level >= level else f"({self.text})"

    def applied(self, function: str, more: str) -> Expr:
        """A function of this and further arguments."""
        if self.stages:
            return Expr(self.plain, self.own, (*self.stages, (function, more)))
        return Expr(self.plain, self.own, ((function, more),))


Resolve = Callable[[Value, bool], Expr]
"""The expression of a value; the flag says that it is the first argument of a call."""


class Expressions:
    """Writes terms.

    `resolve` says what their values are called, `layer` how a layer is called; `form` writes what has
    braces.
    """

    def __init__(
        self, resolve: Resolve, layer: Callable[[Layer], str], form: Callable[[Form | Layer], Expr]
    ) -> None:
        self._resolve = resolve
        self._layer = layer
        self._form = form

    def of(self, item: Item, first: bool = False) -> Expr:
        """The expression of an item."""
        match item:
            case Value():
                return self._resolve(item, first)
            case Call(function, items, named):
                return self._call(function, items, named)
            case Layer(count=count) if count:
                return self._form(item)
            case Layer():
                more = ", ".join([self.of(value).text for value in item.more])
                return self._resolve(item.source, True).applied(self._layer(item), more)
            case Infix(op, left, right):
                return self._infix(op, left, right)
            case Prefix(op, operand):
                level = NOT_LEVEL if op == "not" else SIGN + 1
                sign = "not " if op == "not" else "-"
                own = NOT_LEVEL if op == "not" else SIGN
                return Expr(sign + self.of(operand).at(level), own)
            case Index(source, places):
                inside = ", ".join(self._place(place) for place in places)
                return Expr(f"{self.of(source).at(VALUE)}[{inside}]")
            case Part(whole):
                return self.of(whole)
            case If() | Scan() | While():
                return self._form(item)
            case tuple():
                return Expr(f"[{', '.join(self.of(part).text for part in item)}]")
            case Weight():
                raise AssertionError("weights occur in layers only")
            case _:
                return known(item)

    def _call(
        self, function: str, items: tuple[Item, ...], named: tuple[tuple[str, Item], ...]
    ) -> Expr:
        pairs = [self.of(value).text for value in items[1:]]
        pairs += [f"{name}={self.of(value).text}" for name, value in named]
        more = ", ".join(pairs)
        chained = items and isinstance(items[0], Value | Call | Infix | Index | Layer | Prefix)
        if chained and function not in UNCHAINED:
            return self.of(items[0], True).applied(function, more)
        start = "" if not items else self.of(items[0]).text
        return Expr(f"{function}({start}{', ' if start and more else ''}{more})")

    def _infix(self, op: str, left: Item, right: Item) -> Expr:
        if op == "**":
            return Expr(f"{self.of(left).at(VALUE)} ** {self.of(right).at(SIGN)}", POWER)
        level = LEVELS[op]
        # Comparisons do not chain, all others chain to the left.
        near = level + 1 if op in ("==", "!=", "<", "<=", ">", ">=") else level
        return Expr(f"{self.of(left).at(near)} {op} {self.of(right).at(level + 1)}", level)

    def _place(self, place: Item | Cut) -> str:
        if not isinstance(place, Cut):
            return self.of(place).text
        ends = ["" if end is None else self.of(end).text for end in (place.start, place.stop)]
        return ":".join(ends if place.step == 1 else [*ends, str(place.step)])


def declared(module: str, settings: Iterable[tuple[str, Item]]) -> str:
    """A layer as it is declared: `Linear(3, 4, bias=false)`."""
    texts = [f"{name}={setting(item)}" if name else setting(item) for name, item in settings]
    return f"{module}({', '.join(texts)})"


def setting(item: Item) -> str:
    """An argument of a layer, which is known when compiling."""
    match item:
        case Call(module, items, named):
            return declared(module, [*[("", part) for part in items], *named])
        case tuple():
            return f"[{', '.join(map(setting, item))}]"
        case Code() | Dim() | DType() | float() | int() | str() | None:
            return known(item).text
        case _:
            raise AssertionError(item)


def known(item: Code | Dim | DType | float | str | None) -> Expr:
    """Something that is known when compiling."""
    match item:
        case Code(text):
            return Expr(text)
        case Dim():
            return size(item)
        case DType():
            return Expr(item.name)
        case bool():
            return Expr("true" if item else "false")
        case int() | float():
            return number(item)
        case str():
            return Expr(quote(item))
        case None:
            return Expr("none")


def number(value: float) -> Expr:
    """A number, as short as it can be.

    >>> [number(value).text for value in (3, -0.5, 1e-05, 1e20, float("-inf"))]
    ['3', '-0.5', '1e-5', '1e20', '-inf']
    """
    if isinstance(value, float) and not math.isfinite(value):
        text = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    else:
        digits, sign, exponent = repr(value).partition("e")
        text = f"{digits}e{int(exponent)}" if sign else digits
    return Expr(text, SIGN if text.startswith("-") else VALUE)


def size(value: Size) -> Expr:
    """A size: in the language the larger of two is `maximum`."""
    text = str(value).replace("max(", "maximum(").replace("min(", "minimum(")
    plain = text.isidentifier() or text.isdecimal()
    return Expr(text, VALUE if plain else LEVELS["+"])


def type_text(type: TensorType, counted: Container[str] = ()) -> str:
    """A type: `f32[B, 3 * D]`, with `_` for sizes of which some are counted in the call."""
    shape = ", ".join(
        "_" if any(name in counted for name in names(extent)) else size(extent).text
        for extent in type.shape
    )
    return f"{type.dtype.name}[{shape}]" if type.shape else type.dtype.name
