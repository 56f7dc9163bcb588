"""The searches of the planner as machine code, which the cache keeps like that of kernels."""

from __future__ import annotations

from typing import cast

from dlc.codegen.integer_functions import compile_function
from dlc.driver.compile.cache import open_cache
from dlc.ir.native import Code, Record

_MADE: dict[object, object] = {}
"""The functions that this process has compiled."""


def machine_code(function: Code[Record], record: type[Record]) -> Code[Record]:
    """The function as machine code, made once in a process at most."""
    if function not in _MADE:
        _MADE[function] = compile_function(function, record, open_cache())
    return cast("Code[Record]", _MADE[function])
