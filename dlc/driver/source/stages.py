"""The level of a module of IR: that of its highest operation that belongs to one level."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import func, kernel, loop, mem
from dlc.dialects.builtin import Module
from dlc.ir.core import Op

NEUTRAL = frozenset({"func", "scalar", "comm"})
"""Dialects whose operations tell nothing."""
UNCHECKED = frozenset({"kernel", "mem", "loop", "vec", "scalar", "simt"})
"""Dialects of the levels below the graph."""
KEPT = frozenset(
    {
        "array.constant",
        "array.reshape",
        "flow.if",
        "flow.scan",
        "flow.while",
        "flow.yield",
        "weight.get",
    }
)
"""Operations of the graph that kernels stand between."""


def stages_of(module: Module) -> tuple[str, ...]:
    """The levels that a module may be at, the one that it is taken for first."""
    functions = _inside(module, func.Func)
    if functions:
        if any(_is_graph(op) for op in functions):
            return ("graph",)
        return ("kernel",) if _has(functions, kernel.Kernel) else ("graph", "kernel")
    plans = _inside(module, mem.Program)
    if plans:
        if _has(plans, kernel.Kernel):
            return ("plan",)
        return ("loop",) if _has(plans, mem.Call) else ("plan", "loop")
    return ("loop",) if _inside(module, loop.Func) else ("graph", "kernel")


def has_kernels(module: Module) -> bool:
    """Whether anything in a module says itself which memory it reads and writes, unchecked."""
    return first_below_graph(module) is not None


def first_below_graph(module: Module) -> Op | None:
    """The first operation that says itself which memory it reads and writes, unchecked."""
    return next((op for op in module.walk() if op.name.partition(".")[0] in UNCHECKED), None)


def _inside(module: Module, kind: type[Op]) -> list[Op]:
    """The operations of this kind in a module, and all in them."""
    return [op for top in module.body if isinstance(top, kind) for op in top.walk()]


def _has(ops: Sequence[Op], kind: type[Op]) -> bool:
    return any(isinstance(op, kind) for op in ops)


def _is_graph(op: Op) -> bool:
    """Whether an operation has to become kernels first."""
    dialect = op.name.partition(".")[0]
    return dialect not in NEUTRAL and dialect != "kernel" and op.name not in KEPT
