"""Labels of kernels for reports: what a kernel computes, in a few words."""

from __future__ import annotations

from collections.abc import Iterator

from dlc.dialects import kernel, scalar
from dlc.dialects.kernel.ordered import PrefixScan
from dlc.ir.core import Op
from dlc.ir.types import INDEX

MOST = 3
"""How many of the operations in a formula are told."""

_SILENT = (scalar.Constant, scalar.Cast)
"""What is in most formulas and says nothing about them."""


def label(op: kernel.Kernel) -> str:
    """The kind of a kernel and the first operations of its formula: `gemm · add · maximum`.

    Of a kernel that is nothing but a formula, the operations alone; `copy` where there are none.
    """
    names = list(dict.fromkeys(_computed(op)))
    kind = [] if isinstance(op, kernel.Generic) else [_kind(op)]
    more = ["…"] if len(names) > MOST else []
    return " · ".join([*kind, *names[:MOST], *more]) or "copy"


def _kind(op: kernel.Kernel) -> str:
    kind = op.name.partition(".")[2]
    return f"{kind} {op.combine}" if isinstance(op, PrefixScan) else kind


def _computed(op: kernel.Kernel) -> Iterator[str]:
    """The operations on elements, without those that only find the way to one."""
    for inner in op.walk():
        match inner:
            case kernel.Reduce(combine=combine):
                yield f"fold {combine}"
            case Op() if inner is op or isinstance(inner, _SILENT):
                pass
            case _ if inner.name.startswith("scalar.") and inner.result.type is not INDEX:
                yield inner.name.partition(".")[2]
            case _:
                pass
