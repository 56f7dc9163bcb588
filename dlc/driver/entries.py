"""The entry points of a model that was read, and which one the user means."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import func
from dlc.dialects.builtin import Module
from dlc.driver.build import interface_of
from dlc.driver.calls import choose
from dlc.runtime import manifest


def entry_functions(module: Module) -> Sequence[func.Func]:
    """Every function that is an entry point, in order of the text."""
    return [
        op for op in module.body if isinstance(op, func.Func) and op.sym_visibility != "private"
    ]


def interfaces(module: Module) -> list[manifest.Entry]:
    """What a caller sees of each entry point."""
    return [interface_of(function) for function in entry_functions(module)]


def find_function(module: Module, name: str | None) -> func.Func:
    """The entry point of that name, or the only one. Raises UsageError (D0904) if it is not clear."""
    functions = {op.sym_name: op for op in entry_functions(module)}
    return functions[choose(functions, name)]
