"""Explicit zero padding of pictures with few channels: convolutions then sum over whole rows of the window.

The elements under one row of the window are then contiguous in memory, and the inner loop runs over all of
them instead of a few channels. The producer of the picture is fused into the kernel that writes the
padding.
"""

from __future__ import annotations

from dlc.dialects import array, kernel
from dlc.dialects.builtin import Module
from dlc.dialects.kernel.products import Conv
from dlc.ir.core import Builder, Op, Value
from dlc.ir.passes import Context, define_pass
from dlc.passes.graph.device_placement import kernels_on_gpu

THIN = 16
"""With fewer channels the loop over those of one tap is too short to be fast."""


@define_pass("materialize_padding")
def materialize_padding(module: Op, context: Context) -> None:
    """Pad the pictures of convolutions that have few channels."""
    assert isinstance(module, Module)
    if context.options.matmul == "blas":
        return  # BLAS multiplies the im2col matrix
    on_gpu = set(kernels_on_gpu(module))
    for op in list(module.walk()):
        if isinstance(op, Conv) and op not in on_gpu and op.padding[1] != (0, 0):
            reason = _why_not(op)
            if reason:
                context.log.refused(reason, op)
                continue
            context.log.did("write the zero padding of the picture", op)
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
        return f"the inner loop over {channels} channels is long enough"
    if op.groups > 1:
        return "its channels are in groups"
    if op.window[1] == 1:
        return "its window has one column"
    return "its window has gaps" if op.dilations[1] != 1 else ""
