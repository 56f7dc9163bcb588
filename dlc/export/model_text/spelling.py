"""The table of spellings: how the value of an operation is written in the language.

Readings come first: they recognise what several operations mean together. A spelling is of one
operation; None says that the language has none for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from dlc.export.model_text.graph import Graph
from dlc.export.model_text.terms import Part, Term
from dlc.ir.core import Op, Value

OpT = TypeVar("OpT", bound=Op)

Spelling: TypeAlias = "Callable[[Graph, OpT], Term | None]"

SPELLINGS: dict[type[Op], Spelling[Any]] = {}
READINGS: dict[type[Op], list[Spelling[Any]]] = defaultdict(list)


def spells(*ops: type[OpT]) -> Callable[[Spelling[OpT]], Spelling[OpT]]:
    """Enter a spelling of these operations."""

    def enter(spelling: Spelling[OpT]) -> Spelling[OpT]:
        for op in ops:
            assert op not in SPELLINGS, op.name
            SPELLINGS[op] = spelling
        return spelling

    return enter


def reads(*ops: type[OpT]) -> Callable[[Spelling[OpT]], Spelling[OpT]]:
    """Enter a reading of what ends with one of these operations; those entered first are tried first."""

    def enter(reading: Spelling[OpT]) -> Spelling[OpT]:
        for op in ops:
            READINGS[op].append(reading)
        return reading

    return enter


def spelled(graph: Graph, value: Value) -> Term | None:
    """The term of a value that an operation makes; None where the language has none for it."""
    op = value.op
    assert op is not None
    for reading in READINGS.get(type(op), ()):
        found = reading(graph, op)
        if found is not None:
            return found
    spelling = SPELLINGS.get(type(op))
    found = None if spelling is None else spelling(graph, op)
    if found is None or len(op.results) == 1:
        return found
    return Part(found, value.index)
