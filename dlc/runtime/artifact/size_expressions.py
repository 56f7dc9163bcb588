"""Sizes that depend on named dims, such as `3*T + 1`, `(H - 1)//2` or `max(A, B)`: parsed and evaluated.

The text is what the compiler's canonical form prints; `%` and `$k` come in addition. `$k` stands for
entry k of the list the expression belongs to, which must come earlier: so a long chain of sizes, each
built on others, stays as short as it is. Numbers are exact; any value beyond 2**62 is refused.

>>> evaluate_all(["B", "4*$0", "max($1, 64)", "($2 + 63)//64*64"], {"B": 20})
[20, 80, 80, 128]
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

MAX_LENGTH = 2000
"""Characters of one expression."""
MAX_DEPTH = 50
"""Parentheses inside parentheses."""
MAX_VALUE = 2**62
"""No result, and no step on the way to it, may be larger or smaller than minus this."""

KEPT = 1 << 15
"""Parsed texts that are kept: a step of training may have ten thousand, which are read more than once."""

_TOKEN = re.compile(r"\s*(//|[-+*%(),]|\$?[0-9]+|[^\W\d]\w*|\S)")
_LARGER = re.compile(r"max\(\$([0-9]{1,9}), \$([0-9]{1,9})\)")
"""The larger of two entries: most sizes of a large program are that."""
_NUMBER = re.compile(r"[0-9]{1,19}")
_END = ""


class BadExpression(ValueError):
    """The text is not a size, or has no value at the given dims; the message says why."""


class TooLarge(BadExpression):
    """The value is beyond `MAX_VALUE` at the given dims."""


class Earlier(NamedTuple):
    """The value of an earlier entry of the same list."""

    entry: int


Numbers: TypeAlias = "NDArray[np.int64] | int"
Operator: TypeAlias = Callable[[int, int], int]
Step: TypeAlias = "int | str | Earlier | Operator"

_SUM: dict[str, Operator] = {"+": int.__add__, "-": int.__sub__}
_PRODUCT: dict[str, Operator] = {
    "*": int.__mul__,
    "//": int.__floordiv__,
    "%": int.__mod__,
}
_EXTREME: dict[str, Operator] = {"max": max, "min": min}
_OF_ARRAYS: dict[Operator, Callable[[Any, Any], Any]] = {
    int.__add__: operator.add,
    int.__sub__: operator.sub,
    int.__mul__: operator.mul,
    int.__floordiv__: np.floor_divide,
    int.__mod__: np.remainder,
    max: np.maximum,
    min: np.minimum,
}


class Expression(NamedTuple):
    """A parsed size. `steps` is its postfix form: numbers and names are pushed, operators take two."""

    text: str
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return self.text

    @property
    def names(self) -> frozenset[str]:
        """The dims that it mentions."""
        return frozenset(step for step in self.steps if isinstance(step, str))

    @property
    def earlier(self) -> frozenset[int]:
        """The entries of its list that it refers to."""
        return frozenset(step.entry for step in self.steps if isinstance(step, Earlier))

    def is_line_in(self, name: str) -> bool:
        """Whether it is `a*name + b` with `a` and `b` of other dims, so that it can be solved.

        >>> [parse(text).is_line_in("T") for text in ("2*T + S*T - 1", "T - S", "T*T", "T//2", "S")]
        [True, True, False, False, False]
        """
        degrees: list[int] = []
        for step in self.steps:
            match step:
                case int() | Earlier():
                    degrees.append(0)
                case str():
                    degrees.append(int(step == name))
                case _:
                    right, left = degrees.pop(), degrees.pop()
                    degrees.append(_degree(step, left, right))
        return degrees[0] == 1

    def evaluate(self, dims: Mapping[str, int], earlier: Sequence[int] = ()) -> int:
        """Its value. Raises BadExpression for an unknown dim, a division by 0 and a value too large."""
        stack: list[int] = []
        for step in self.steps:
            match step:
                case int():
                    stack.append(step)
                case str():
                    stack.append(self._dim(step, dims))
                case Earlier(entry):
                    stack.append(self._entry(entry, earlier))
                case _:
                    right = stack.pop()
                    stack.append(self._applied(step, stack.pop(), right))
        return stack[0]

    def of_arrays(self, dims: Mapping[str, Numbers]) -> Numbers:
        """Its values where dims are arrays; wrong ones beyond 2**63 and where a division is by 0."""
        stack: list[Numbers] = []
        for step in self.steps:
            match step:
                case int():
                    stack.append(step)
                case str():
                    stack.append(dims[step])
                case Earlier():
                    raise BadExpression(f"the size {self.text} refers to another one")
                case _:
                    right = stack.pop()
                    stack.append(_OF_ARRAYS[step](stack.pop(), right))
        return stack[0]

    def _dim(self, name: str, dims: Mapping[str, int]) -> int:
        if name not in dims:
            raise BadExpression(f"the size {self.text} needs the dim {name}, which has no value")
        return dims[name]

    def _entry(self, index: int, earlier: Sequence[int]) -> int:
        if index >= len(earlier):
            raise BadExpression(
                f"the size {self.text} refers to ${index}, which comes later or never"
            )
        return earlier[index]

    def _applied(self, operation: Operator, left: int, right: int) -> int:
        try:
            value = operation(left, right)
        except ZeroDivisionError:
            raise BadExpression(f"the size {self.text} divides by 0") from None
        if not -MAX_VALUE <= value <= MAX_VALUE:
            raise TooLarge(f"the size {self.text} is beyond 2**62")
        return value


def _degree(operation: Operator, left: int, right: int) -> int:
    """The degree in a dim of what an operation makes of two polynomials; 2 for what is not a polynomial."""
    if operation in _SUM.values():
        return max(left, right)
    if operation is int.__mul__:
        return left + right
    return 2 if left or right else 0


@lru_cache(maxsize=KEPT)
def parse(text: str) -> Expression:
    """The expression a text spells; raises BadExpression where it spells none."""
    if pair := _LARGER.fullmatch(text):
        return Expression(text, (Earlier(int(pair[1])), Earlier(int(pair[2])), max))
    if len(text) > MAX_LENGTH:
        raise BadExpression(f"a size of {len(text)} characters; at most {MAX_LENGTH} are read")
    return Expression(text, postfix(text))


def postfix(text: str) -> tuple[Step, ...]:
    """The steps of an expression of any length. Raises BadExpression for a text that is none."""
    return _Parser(text).parse()


def evaluate_all(texts: Sequence[str], dims: Mapping[str, int]) -> list[int]:
    """The values of a list of expressions; each may refer to the ones before it as `$k`."""
    values: list[int] = []
    for text in texts:
        values.append(evaluate(text, dims, values))
    return values


def evaluate(text: str, dims: Mapping[str, int], earlier: Sequence[int]) -> int:
    """The value of one expression, which may refer to the entries `earlier` of a list as `$k`."""
    # Most sizes of most models are plain numbers.
    if _NUMBER.fullmatch(text) and (number := int(text)) <= MAX_VALUE:
        return number
    return parse(text).evaluate(dims, earlier)


class _Parser:
    """Recursive descent that writes postfix: sums of products of atoms."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [*_TOKEN.findall(text), _END]
        self.next = 0
        self.steps: list[Step] = []

    def parse(self) -> tuple[Step, ...]:
        self._sum(depth=0)
        self._expect(_END)
        return tuple(self.steps)

    def _take(self) -> str:
        token = self.tokens[self.next]
        self.next = min(self.next + 1, len(self.tokens) - 1)
        return token

    def _expect(self, wanted: str) -> None:
        if (found := self._take()) != wanted:
            raise self._fail(repr(wanted) if wanted else "the end", found)

    def _fail(self, wanted: str, found: str) -> BadExpression:
        what = repr(found) if found else "the end"
        return BadExpression(f"expected {wanted} in the size {self.text!r}, found {what}")

    def _sum(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise BadExpression(f"a size is nested more than {MAX_DEPTH} deep")
        self._product(depth, signed=True)
        while (operation := _SUM.get(self.tokens[self.next])) is not None:
            self._take()
            self._product(depth)
            self.steps.append(operation)

    def _product(self, depth: int, *, signed: bool = False) -> None:
        """A product; the sign of a `signed` one belongs to its first factor, as in a model text."""
        is_negative = signed and self.tokens[self.next] == "-"
        if is_negative:
            self._take()
            self.steps.append(0)
        self._atom(depth)
        if is_negative:
            self.steps.append(int.__sub__)
        while (operation := _PRODUCT.get(self.tokens[self.next])) is not None:
            self._take()
            self._atom(depth)
            self.steps.append(operation)

    def _atom(self, depth: int) -> None:
        token = self._take()
        if token == "(":
            self._sum(depth + 1)
            self._expect(")")
        elif token in _EXTREME and self.tokens[self.next] == "(":
            self._extreme(_EXTREME[token], depth)
        elif token.isascii() and token.isdigit():
            self.steps.append(self._capped(token))
        elif token[:1] == "$" and len(token) <= 10 and token != "$":
            self.steps.append(Earlier(int(token[1:])))
        elif token.isidentifier():
            self.steps.append(token)
        else:
            raise self._fail("a number or a name", token)

    def _extreme(self, operation: Operator, depth: int) -> None:
        self._expect("(")
        self._sum(depth + 1)
        self._expect(",")
        self._sum(depth + 1)
        self._expect(")")
        self.steps.append(operation)

    def _capped(self, digits: str) -> int:
        if not _NUMBER.fullmatch(digits) or int(digits) > MAX_VALUE:
            raise BadExpression(f"a number in the size {self.text!r} is beyond 2**62")
        return int(digits)
