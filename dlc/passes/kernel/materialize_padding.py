"""Zeros around pictures of few channels, so that convolutions sum over whole rows of the window.

The elements that one row of the window covers are neighbours in memory then, and the loop over them is not
as short as the channels are few. What makes the picture goes into the kernel that writes the border.
"""

from __future__ import annotations

from dlc.dialects import array, kernel
from dlc.dialects.builtin import Module
from dlc.dialects.kernel.products import Conv
from dlc.ir.core import Builder, Op, Value
from dlc.ir.passes import Context, define_pass
from dlc.passes.graph.device_placement import kernels_on_gpu

THIN = 16
"""Channels: with fewer, the loop over those that one tap meets is too short to be fast."""


@define_pass("materialize_padding")
def materialize_padding(module: Op, context: Context) -> None:
    """Write zeros around the pictures of convolutions that have few channels."""
    assert isinstance(module, Module)
    if context.options.matmul == "blas":
        return  # BLAS multiplies the matrix that has every window as a row
    on_gpu = set(kernels_on_gpu(module))
    for op in list(module.walk()):
        if isinstance(op, Conv) and op not in on_gpu and op.padding[1] != (0, 0):
            reason = _why_not(op)
            if reason:
                context.log.refused(reason, op)
                continue
            context.log.did("write a border of zeros around the picture", op)
            emit = Builder.before_op(op)
            padded = bordered(emit, op)
            op.set_operands([padded, *op.operands[1:]])
            op.attributes["padding"] = ((0, 0), (0, 0))


def bordered(emit: Builder, op: Conv) -> Value:
    """The picture of a convolution with its padding."""
    low, high = ([pair[k] for pair in op.padding] for k in (0, 1))
    zero = array.fill(emit, 0, kernel.array_type(op.lhs).with_shape(()))
    return emit(array.Pad(op.lhs, zero, (0, *low, 0), (0, *high, 0), (0, 0, 0, 0)))


def _why_not(op: Conv) -> str:
    """Why the sums of a convolution are not taken over whole rows of the window; empty if they are."""
    channels = kernel.array_type(op.lhs).shape[-1]
    if not isinstance(channels, int) or channels >= THIN:
        return f"a loop over {channels} channels is long enough"
    if op.groups > 1:
        return "its channels are in groups"
    if op.window[1] == 1:
        return "its window has one column"
    return "its window has gaps" if op.dilations[1] != 1 else ""
