"""The searches of the planner as machine code, which the cache keeps like that of kernels."""

from __future__ import annotations

from typing import cast

from dlc.codegen.integer_functions import begin_function, compile_function
from dlc.codegen.llvm.begun import BegunObjects, ObjectCache
from dlc.driver.compile.cache import open_cache
from dlc.ir.native import Code, Record
from dlc.planning.arena import exact
from dlc.planning.scheduling.moves import SearchState, improve

_MADE: dict[object, object] = {}
"""The functions that this process has compiled."""


def machine_code(
    function: Code[Record], record: type[Record], cache: ObjectCache | None = None
) -> Code[Record]:
    """The function as machine code, made once in a process at most."""
    if function not in _MADE:
        objects = open_cache() if cache is None else cache
        _MADE[function] = compile_function(function, record, objects)
    return cast("Code[Record]", _MADE[function])


def begin_searches(objects: BegunObjects) -> None:
    """Begin with the searches that a plan of a large graph needs, unless this process has them."""
    if improve not in _MADE:
        begin_function(improve, SearchState, objects)
    if exact.search not in _MADE:
        begin_function(exact.search, exact.Tables, objects)
