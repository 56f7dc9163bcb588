"""Options of a compilation in messages, spelled as on the command line or as in Python.

What the command line calls `--dim B=1..64` is `dims={"B": (1, 64)}` for `dlc.compile`. A message says it as
data, by the name that Python has for it:

>>> f"compile with {option('dims', {'B': (1, 64)})}"
'compile with --dim B=1..64'
>>> with in_python():
...     f"compile with {option('dims', {'B': (1, 64)})}"
'compile with dims={"B": (1, 64)}'
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import EllipsisType
from typing import Final, TypeAlias

__all__ = ["in_python", "option"]

Bounds: TypeAlias = tuple[int, int | None]
Value: TypeAlias = "str | int | Bounds | EllipsisType"
"""Bounds are the lowest and the highest size, if there is one; `...` is left to the reader."""

FLAGS: Final = {
    "settings": "--set",
    "dims": "--dim",
    "places": "--place",
    "disable": "--disable-pass",
}
"""Options that the command line calls otherwise, as it takes one name at a time."""

_IN_PYTHON: ContextVar[bool] = ContextVar("in_python", default=False)


@contextmanager
def in_python() -> Generator[None]:
    """Messages that are made meanwhile are for someone who writes Python."""
    token = _IN_PYTHON.set(True)
    try:
        yield
    finally:
        _IN_PYTHON.reset(token)


def option(name: str, *values: Value | Mapping[str, Value]) -> str:
    """An option with a value, or several to choose from; with none its name alone.

    >>> option("trust_ir", True), option("matmul", "blas", "auto"), option("level", 2)
    ('--trust-ir', '--matmul blas or auto', '-O2')
    """
    spell = _for_python if _IN_PYTHON.get() else _for_command_line
    return spell(name, values)


def _for_command_line(name: str, values: tuple[Value | Mapping[str, Value], ...]) -> str:
    flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
    match values:
        case () | (True,):
            return flag
        case (int(level),) if name == "level":
            return f"-O{level}"
        case (Mapping() as named,):
            return " ".join(f"{flag} {key}={_word(value)}" for key, value in named.items())
        case _:
            return f"{flag} {_alternatives([_word(value) for value in values])}"


def _word(value: Value | Mapping[str, Value]) -> str:
    match value:
        case (low, high):
            return str(low) if low == high else f"{low}..{'' if high is None else high}"
        case EllipsisType():
            return "..."
        case _:
            return str(value)


def _for_python(name: str, values: tuple[Value | Mapping[str, Value], ...]) -> str:
    if not values:
        return name
    return f"{name}={_alternatives([_literal(value) for value in values])}"


def _literal(value: Value | Mapping[str, Value]) -> str:
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case Mapping():
            pairs = [f"{_literal(key)}: {_literal(each)}" for key, each in value.items()]
            return f"{{{', '.join(pairs)}}}"
        case EllipsisType():
            return "..."
        case _:
            return str(value)


def _alternatives(texts: list[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    *others, last = texts
    return f"{', '.join(others)} or {last}" if others else last
