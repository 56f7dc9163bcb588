"""Explicit padding of windows along the last axis, such as those of a local response normalisation.

Registers hold neighbouring elements of that axis. Where a window reaches beyond it, each of its elements
would be loaded by an index that is kept within the axis, and chosen or not, lane by lane; in a padded copy
it is a load like any other. The producer of the array is fused into the kernel that writes the copy.
"""

from __future__ import annotations

from dlc.dialects import array
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.builtin import Module
from dlc.ir.core import Builder, Op
from dlc.ir.passes import Context, define_pass

LONGEST = 32
"""Larger windows are rare, and their padding is longer than the axis."""


@define_pass("pad_windows")
def pad_windows(module: Op, context: Context) -> None:
    """Pad the arrays of windows that reach beyond the ends of the last axis."""
    assert isinstance(module, Module)
    for op in list(module.walk()):
        if isinstance(op, array.ReduceWindow) and op.padding[-1] != (0, 0):
            reason = _why_not(op)
            if reason:
                context.log.refused(reason, op)
                continue
            context.log.did("write the padding of the last axis", op)
            _pad(op)


def _pad(op: array.ReduceWindow) -> None:
    emit = Builder.before_op(op)
    type = tensor_type(op.source)
    neutral = array.fill(emit, op.identity(type.dtype), type.with_shape(()))
    others = (0,) * (type.rank - 1)
    low, high = op.padding[-1]
    padded = array.Pad(op.source, neutral, (*others, low), (*others, high), (0, *others))
    op.set_operands([emit(padded)])
    op.attributes["padding"] = (*op.padding[:-1], (0, 0))


def _why_not(op: array.ReduceWindow) -> str:
    """Why the padding is not written; empty if it is."""
    if not 1 < op.window[-1] <= LONGEST:
        return f"its window has {op.window[-1]} elements of the last axis"
    return "its windows are not next to each other" if op.strides[-1] != 1 else ""
