"""From kernels to loops, for CPUs."""

from __future__ import annotations

from dlc.dialects import kernel, kernels_in_order
from dlc.dialects.comm import Send
from dlc.dialects.kernel_attention import Attention
from dlc.dialects.kernel_pieces import Concatenate
from dlc.dialects.kernel_products import Conv, Gemm
from dlc.dialects.schedule import Blas, Packed, PackInline, SplitK
from dlc.errors import Diagnostic, Unsupported
from dlc.errors.options import option
from dlc.ir.core import Op
from dlc.ir.passes import Context, define_pass
from dlc.lowering.attention_to_loop import lower_attention
from dlc.lowering.blocks_to_loop import lower_blocks
from dlc.lowering.concatenate_to_loop import lower_concatenate
from dlc.lowering.depthwise_to_loop import lower_depthwise
from dlc.lowering.gemm_to_loop import lower_gemm
from dlc.lowering.generic_to_loop import lower_generic
from dlc.lowering.loop_writer import Lowered
from dlc.lowering.lower_kernels import Lowering, lower_kernels
from dlc.lowering.nonzero_to_loop import lower_nonzero
from dlc.lowering.panels_to_loop import lower_panels
from dlc.lowering.running_to_loop import lower_running
from dlc.lowering.scatter_to_loop import lower_scatter
from dlc.lowering.send_to_loop import lower_send
from dlc.lowering.sort_to_loop import lower_sort
from dlc.lowering.update_to_loop import lower_update


def _lower_product(op: kernel.Kernel, context: Context) -> Lowered:
    """A product by BLAS, or by our own loops if its right operand is in panels or they put it there."""
    assert isinstance(op, Gemm)
    match op.schedule:
        case Packed():
            return lower_panels(op, context)
        case PackInline():
            return lower_blocks(op, context)
        case Blas() | None:
            return lower_gemm(op, context)
        case SplitK():
            raise AssertionError("sums are split for GPUs only")


def _lower_convolution(op: kernel.Kernel, context: Context) -> Lowered:
    """A convolution channel by channel, or on panels."""
    assert isinstance(op, Conv)
    return lower_panels(op, context) if op.schedule else lower_depthwise(op, context)


LOWERINGS: dict[type[Op], Lowering] = {
    kernel.Generic: lower_generic,
    Gemm: _lower_product,
    Conv: _lower_convolution,
    Attention: lower_attention,
    Concatenate: lower_concatenate,
    Send: lower_send,
    kernels_in_order.NonZero: lower_nonzero,
    kernels_in_order.Running: lower_running,
    kernels_in_order.Scatter: lower_scatter,
    kernels_in_order.Sort: lower_sort,
    kernels_in_order.Update: lower_update,
}
"""How each kind of kernel is written as loops."""


def _is_for_gpu(op: kernel.Kernel) -> bool:
    match op:
        case Attention(panel=0) | Gemm(schedule=SplitK()) | Conv(schedule=SplitK()):
            return True
        case _:
            return type(op) not in LOWERINGS


def _no_loops(op: kernel.Kernel) -> Diagnostic:
    return Diagnostic(
        "D0701",
        f"this {op.name} was written for a GPU and has no loops for the CPU",
        op.location.place,
        help=f"compile it with {option('target', 'cuda')}, or begin with the graph",
    )


@define_pass("lower_to_loops", required=True)
def lower_to_loops(module: Op, context: Context) -> None:
    """Turn every kernel into a function of loops and a call of it.

    Raises Unsupported (D0701) for kernels that were written for a GPU.
    """
    foreign = [op for op in module.walk() if isinstance(op, kernel.Kernel) and _is_for_gpu(op)]
    if foreign:
        raise Unsupported([_no_loops(op) for op in foreign])
    lower_kernels(module, context, LOWERINGS.__getitem__)
