"""The pass from the graph to kernels, by the rules of the other modules in this folder.

Importing this module registers all of these rules.
"""

from __future__ import annotations

from typing import Any

from dlc.errors import Diagnostic, Unsupported
from dlc.ir.core import Op
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL, Rewriter
from dlc.lowering.graph_to_kernel import normalizers, ordered, pieces, random_bits, windows
from dlc.lowering.graph_to_kernel.arrays import LOWERINGS, Lowering

__all__ = [
    "find_lowering",
    "lower_to_kernels",
    "normalizers",
    "ordered",
    "pieces",
    "random_bits",
    "windows",
]


@define_pass("lower_to_kernels", required=True)
def lower_to_kernels(module: Op, context: Context) -> None:
    """Turn every graph operation into kernels."""
    rewriter = context.rewriter
    missing: list[Op] = []
    for op in list(module.walk()):
        if op.name in KEPT or op.name.partition(".")[0] not in GRAPH_DIALECTS:
            continue
        lowering = find_lowering(type(op))
        if lowering is None:
            missing.append(op)
        else:
            lower_one(op, lowering, rewriter)
    if missing:
        raise Unsupported([_no_kernel(op) for op in missing])


def _no_kernel(op: Op) -> Diagnostic:
    return Diagnostic("D0701", f"{op.name} has no kernel for the CPU yet", op.location.place)


GRAPH_DIALECTS = frozenset(("array", "nn", "rng"))
"""Dialects whose operations become kernels."""

KEPT = frozenset({"array.constant", "array.reshape"})
"""Operations that stay at the kernel level: constants are data, a reshape is a view."""


def lower_one(op: Op, lowering: Lowering[Any], rewriter: Rewriter) -> None:
    """Replace one operation by what its lowering makes."""
    values = lowering(op, rewriter.before(op))
    rewriter.replace(op, values, relation=EQUAL)


def find_lowering(cls: type[Op]) -> Lowering[Any] | None:
    """The lowering of a class or of the nearest base that has one."""
    return next((LOWERINGS[base] for base in cls.__mro__ if base in LOWERINGS), None)
