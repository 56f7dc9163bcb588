"""The entry points of a model that was read, and which one the user means."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import func
from dlc.dialects.builtin import Module
from dlc.driver.calls import choose


def entry_functions(module: Module) -> Sequence[func.Func]:
    """Every function that is an entry point, in order of the text."""
    return [
        op for op in module.body if isinstance(op, func.Func) and op.sym_visibility != "private"
    ]


def find_function(module: Module, name: str | None) -> func.Func:
    """The entry point of that name, or the only one. Raises UsageError (D0904) if it is not clear."""
    functions = {op.sym_name: op for op in entry_functions(module)}
    return functions[choose(functions, name)]
