"""The reverse-mode rule of each operation, in a few words."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.decomposed import Decomposed
from dlc.dialects.flow.reverse import Structured
from dlc.ir.core import Op
from dlc.ir.define import fields_of

LOWERED = frozenset(["scalar", "kernel", "mem", "loop", "vec"])
"""Dialects of the levels below the graph, where derivatives have been taken already."""


def derivative_through(kinds: Sequence[type[Op]]) -> str:
    """Of a function that is made of these operations."""
    if len(kinds) == 1:
        return derivative_of(kinds[0])
    stops = [f"{kind.name} ({why})" for kind in kinds if (why := kind.not_differentiable)]
    return f"not through {', '.join(stops)}" if stops else "of what it is made of"


def derivative_of(kind: type[Op]) -> str:
    """Of one operation."""
    if kind.not_differentiable:
        return f"none: {kind.not_differentiable}"
    structured = issubclass(kind, Structured)
    if structured and any(field.kind == "region" for field in fields_of(kind)):
        return "through its regions, step by step in reverse"
    if structured or kind.gradient is not Op.gradient:
        return "by a rule of its own"
    if issubclass(kind, Decomposed):
        return "of what it is made of"
    if kind.name.partition(".")[0] in LOWERED:
        return "none: derivatives are taken at graph level"
    if not any(field.kind in ("operand", "operands") for field in fields_of(kind)):
        return "none: it has no operands"
    return "that of what it holds together"
