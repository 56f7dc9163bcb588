"""The table of builtin functions: signature, documentation, example, and what a call does.

A row is written as a decorated function of the trace and the bound arguments:

    @builtin("tril(n: size)", "shapes", "...", "tril(2)", "[[true, false], [true, true]]")
    def tril(at: Trace, n: Size) -> Datum: ...

The kind after each parameter says what it takes and how it is converted. `*xs` takes all further
arguments, `**sizes` all further ones with names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Final

from dlc.frontend.elaboration.evaluator import Special
from dlc.frontend.elaboration.values import Builtin, Datum, Parameter
from dlc.ir.types import LANGUAGE_DTYPES

__all__ = ["BUILTINS", "CONSTANTS", "KINDS", "SPECIALS", "add_builtin", "builtin"]

BUILTINS: dict[str, Builtin] = {}
"""Every builtin function by name."""

SPECIALS: dict[str, Special] = {}
"""Functions that look at their arguments as they are written."""

CONSTANTS: Final[Mapping[str, float | None]] = {
    "inf": math.inf,
    "nan": math.nan,
    "pi": math.pi,
    "none": None,
}
"""Names of numbers, and of an argument that is left out."""

KINDS: Final = {
    "tensor": "a tensor, or numbers that become one",
    "alike": "as tensor; numbers take the dtype of the tensors beside them",
    "float": "a tensor of floats; numbers take the dtype of the tensors beside them, else f32",
    "real": "as float, but a number known when compiling gives a number",
    "count": "as tensor, but a number known when compiling gives a number",
    "any": "any value",
    "number": "a number known when compiling",
    "int": "a whole number known when compiling",
    "size": "a whole number or a size",
    "axis": "the number of an axis; -1 is the last",
    "axes": "an axis, or a list of them",
    "shape": "a list of sizes",
    "ints": "a whole number, or a list of them",
    "bool": "true or false, known when compiling",
    "text": "a text",
    "dtype": "a dtype",
    "function": "a function",
    "list": "a list",
}
"""The values that each kind of parameter takes."""

_HEAD = re.compile(r"(\w+)\((.*)\)")
_PARAMETER = re.compile(r"(\*{0,2}\w+): (\w+)(?: = (.+))?")
_DTYPES = {dtype.name: dtype for dtype in LANGUAGE_DTYPES}


def builtin(
    signature: str, group: str, doc: str, example: str, result: str
) -> Callable[[Callable[..., Datum]], Callable[..., Datum]]:
    """Enter a function into the table. `result` is what `example` gives, as a literal or a type."""

    def enter(run: Callable[..., Datum]) -> Callable[..., Datum]:
        add_builtin(signature, group, doc, example, result, run)
        return run

    return enter


def add_builtin(
    signature: str, group: str, doc: str, example: str, result: str, run: Callable[..., Datum]
) -> None:
    """Enter one row."""
    match = _HEAD.fullmatch(signature)
    assert match is not None, signature
    name = match[1]
    parameters = tuple([_parameter(text) for text in match[2].split(", ") if text])
    assert name not in BUILTINS, name
    simple = "*" not in signature
    BUILTINS[name] = Builtin(name, parameters, run, signature, doc, example, result, group, simple)


def _parameter(text: str) -> Parameter:
    match = _PARAMETER.fullmatch(text)
    assert match is not None, text
    name, kind, default = match.groups()
    assert kind in KINDS, kind
    starred = name.startswith("*")
    if default is None:
        return Parameter(name, kind, required=not starred)
    return Parameter(name, kind, _default(default), required=False)


def _default(text: str) -> Datum:
    simple: dict[str, Datum] = {"none": None, "true": True, "false": False, "inf": math.inf}
    if text in simple:
        return simple[text]
    if text in _DTYPES:
        return _DTYPES[text]
    if text[0] == '"':
        return text[1:-1]
    return float(text) if "." in text or "e" in text else int(text)
