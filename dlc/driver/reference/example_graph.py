"""The operations that a function of the language becomes, from the graph of its own example."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TypeAlias, cast

import numpy as np

from dlc.dialects import array, flow, func
from dlc.dialects.builtin import Module
from dlc.errors import DlcError
from dlc.frontend.builtins.registry import BUILTINS, SPECIALS
from dlc.frontend.elaborate import elaborate
from dlc.frontend.elaboration.evaluator import Special
from dlc.frontend.elaboration.values import Builtin
from dlc.ir.core import OPS, Op

Nested: TypeAlias = "float | list[Nested]"

_FRAME = (Module, func.Func, func.Return, flow.Yield, array.Constant, array.Fill)
"""Operations that are left out: those of every graph, and constants of the example."""

_DTYPES = {"b": "bool", "i": "i32", "f": "f32"}


def result_type(function: Builtin | Special) -> str:
    """The type of what the example gives, such as `f32[2]`; of several results `(f32, i32)`."""
    text = function.result
    if not text.startswith(("(", "[", "-", "t", "false")) and not text[:1].isdecimal():
        return text  # drawn numbers: the type itself is written
    parts = json.loads(f"[{text[1:-1]}]" if text.startswith("(") else f"[{text}]")
    types = [_type(value) for value in cast("list[Nested]", parts)]
    return types[0] if len(types) == 1 else f"({', '.join(types)})"


def _type(value: Nested) -> str:
    found = np.asarray(value)
    sizes = ", ".join(map(str, found.shape))
    dtype = _DTYPES[found.dtype.kind]
    return f"{dtype}[{sizes}]" if sizes else dtype


def operations_of(function: Builtin | Special) -> list[type[Op]]:
    """The kinds of operations in the example's graph, in order; none where it is a number already."""
    module = _graph_of(function)
    if module is None:
        return []
    names = dict.fromkeys(op.name for op in module.walk() if not isinstance(op, _FRAME))
    return [OPS[name] for name in names if name in OPS]


def example_graphs() -> Iterator[Module]:
    """The graphs of the examples of all functions that have one."""
    for function in (*BUILTINS.values(), *SPECIALS.values()):
        module = _graph_of(function)
        if module is not None:
            yield module


def _graph_of(function: Builtin | Special) -> Module | None:
    """The graph of its example; None without one, and where it needs a bound or a file."""
    if not function.example:
        return None
    text = f"dlc 1\nexport fn example() -> {result_type(function)} = {function.example}\n"
    try:
        return elaborate("example.dlm", text=text).module
    except DlcError:
        return None
