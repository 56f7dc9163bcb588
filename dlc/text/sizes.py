"""Sizes of the compiler from their text: the grammar of the runtime, calculated with symbols."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from dlc.errors import ModelError
from dlc.ir.dims import Size, check_number, floor_divide, maximum, minimum, symbol
from dlc.runtime.artifact.size_expressions import BadExpression, Operator, Step, postfix

__all__ = ["MAX_DIVISIONS", "MAX_TERMS", "parse_size"]

MAX_DIVISIONS = 500
MAX_TERMS = 200
"""A size is refused when it divides and compares more often, or is a sum of more terms.

The tiles of a kernel over symbolic sizes may well be the quotient of two maxima of quotients.
"""

SYMBOLIC: Final[dict[Operator, Callable[[Size, Size], Size]]] = {
    int.__add__: lambda left, right: left + right,
    int.__sub__: lambda left, right: left - right,
    int.__mul__: lambda left, right: left * right,
    int.__floordiv__: floor_divide,
    max: maximum,
    min: minimum,
}
"""What each operator of the runtime does with symbolic sizes; `%` is in no text of the compiler."""


@lru_cache(maxsize=4096)
def parse_size(text: str) -> Size:
    """A size from its text, such as `3*T + 1`, `(H - 1)//2` or `max(A, B)`.

    Raises ValueError that says what is wrong.
    """
    steps = postfix(text)
    short = f"the size {text[:40]!r}{'...' if len(text) > 40 else ''}"
    if sum(step in (int.__floordiv__, max, min) for step in steps) > MAX_DIVISIONS:
        raise ValueError(f"{short} divides more than {MAX_DIVISIONS} times")
    try:
        return _calculated(steps)
    except ZeroDivisionError:
        raise ValueError(f"{short} divides by 0") from None
    except ModelError as error:
        raise ValueError(f"{short}: {error.diagnostics[0].message}") from None
    except BadExpression as error:
        raise ValueError(f"{short} {error}") from None


def _calculated(steps: tuple[Step, ...]) -> Size:
    stack: list[Size] = []
    for step in steps:
        match step:
            case int():
                stack.append(step)
            case str():
                stack.append(symbol(step))
            case _ if callable(step) and step in SYMBOLIC:
                right, left = stack.pop(), stack.pop()
                stack.append(_bounded(SYMBOLIC[step](left, right)))
            case _:
                raise BadExpression("has `%` or `$`, which only artifacts have")
    return stack[0]


def _bounded(size: Size) -> Size:
    if isinstance(size, int):
        check_number(size)
    elif len(size.terms) > MAX_TERMS:
        raise BadExpression(f"is a sum of more than {MAX_TERMS} terms")
    return size
