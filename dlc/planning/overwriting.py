"""In-place results: which operands of a kernel its results may overwrite as they are computed."""

from __future__ import annotations

from dlc.dialects import kernel
from dlc.dialects.comm import AllReduce, StartAllReduce, Test, Wait
from dlc.dialects.kernel.product_schedule import Packed, PackInline, Winograd
from dlc.dialects.kernel.products import Conv, Gemm, Product
from dlc.ir.core import Value

__all__ = ["in_place_operands", "overwritable_operands", "reads_only_own_element"]


def overwritable_operands(op: kernel.Kernel) -> list[int]:
    """The indices of the operands that a result may overwrite as it is computed."""
    match op:
        case kernel.Generic() if not _has_rows(op):
            return _own_elements(op)
        case Gemm(schedule=Packed() | PackInline()) | Conv(schedule=Packed() | Winograd()):
            return _own_elements(op)
        case kernel.Scatter() | kernel.Update():
            return [0]
        case AllReduce() | StartAllReduce() | Test() | Wait():
            return [0]
        case _:
            return []


def in_place_operands(op: kernel.Kernel) -> list[int]:
    """The indices of the operands that a result of a kernel in destination-passing form may overwrite."""
    types = [kernel.array_type(target) for target in op.targets]
    return [k for k in overwritable_operands(op) if kernel.array_type(op.operands[k]) in types]


def _has_rows(op: kernel.Generic) -> bool:
    """Whether a kernel writes whole rows before it has read all of its inputs."""
    return any(isinstance(value.op, kernel.Stage) for value in op.body.terminator.operands)


def _own_elements(op: kernel.Generic | Product) -> list[int]:
    """The operands of which the formula reads only the element that it computes."""
    reads = op.segments[-2]
    first = len(op.operands) - reads - op.segments[-1]
    arguments = op.formula.arguments[len(op.formula.arguments) - reads :] if reads else []
    return [
        first + k for k, argument in enumerate(arguments) if reads_only_own_element(op, argument)
    ]


def reads_only_own_element(op: kernel.Generic | Product, argument: Value) -> bool:
    """Whether every load of an input is at the index of the element that is computed."""
    indices = op.formula.arguments[: len(op.domain)]
    return all(
        isinstance(use, kernel.Load) and list(use.indices) == indices and use.parent is op.formula
        for use in argument.uses
    )
