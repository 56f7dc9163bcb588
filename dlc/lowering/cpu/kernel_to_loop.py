"""From kernels to loops, for CPUs."""

from __future__ import annotations

from dlc.dialects import kernel
from dlc.dialects.comm import Collective, Rank, Send, Test, Wait
from dlc.dialects.kernel.attention import Attention, CachedAttention
from dlc.dialects.kernel.pieces import Concatenate
from dlc.dialects.kernel.product_schedule import Blas, Packed, PackInline, SplitK, Winograd
from dlc.dialects.kernel.products import Conv, Gemm
from dlc.dialects.kernel.winograd_gradient import WinogradGradient
from dlc.dialects.kernel.winograd_kernel import WinogradKernel
from dlc.errors import Diagnostic, Unsupported
from dlc.errors.options import option
from dlc.ir.core import Op
from dlc.ir.passes import Context, define_pass
from dlc.lowering.cpu.attention import lower_attention
from dlc.lowering.cpu.cached_attention import lower_cached_attention
from dlc.lowering.cpu.collective import lower_collective, lower_rank, lower_test, lower_wait
from dlc.lowering.cpu.concatenate import lower_concatenate
from dlc.lowering.cpu.depthwise import lower_depthwise
from dlc.lowering.cpu.generic import lower_generic
from dlc.lowering.cpu.nonzero import lower_nonzero
from dlc.lowering.cpu.prefix_scan import lower_running
from dlc.lowering.cpu.product.blas import lower_blas_gemm
from dlc.lowering.cpu.product.inline_packed import lower_inline_packed_gemm
from dlc.lowering.cpu.product.prepacked import lower_packed_product
from dlc.lowering.cpu.scatter import lower_scatter
from dlc.lowering.cpu.send import lower_send
from dlc.lowering.cpu.sort import lower_sort
from dlc.lowering.cpu.update import lower_update
from dlc.lowering.cpu.winograd.convolution import lower_winograd
from dlc.lowering.cpu.winograd.gradient import lower_winograd_gradient
from dlc.lowering.cpu.winograd.kernel_transform import lower_winograd_kernel
from dlc.lowering.kernel_code.lower_kernels import Lowering, lower_kernels
from dlc.lowering.kernel_code.writer import Lowered


def _lower_product(op: kernel.Kernel, context: Context) -> Lowered:
    """A product by BLAS, or by generated loops: its right operand is packed before, or by each tile."""
    assert isinstance(op, Gemm)
    match op.schedule:
        case Packed():
            return lower_packed_product(op, context)
        case PackInline():
            return lower_inline_packed_gemm(op, context)
        case Blas() | None:
            return lower_blas_gemm(op, context)
        case SplitK():
            raise AssertionError("sums are split for GPUs only")


def _lower_convolution(op: kernel.Kernel, context: Context) -> Lowered:
    """A convolution in Winograd's form, channel by channel, or as an implicit GEMM on packed weights."""
    assert isinstance(op, Conv)
    match op.schedule:
        case Winograd():
            return lower_winograd(op, context)
        case None:
            return lower_depthwise(op, context)
        case _:
            return lower_packed_product(op, context)


LOWERINGS: dict[type[Op], Lowering] = {
    kernel.Generic: lower_generic,
    Gemm: _lower_product,
    Conv: _lower_convolution,
    Attention: lower_attention,
    CachedAttention: lower_cached_attention,
    Concatenate: lower_concatenate,
    Send: lower_send,
    Rank: lower_rank,
    Collective: lower_collective,
    Test: lower_test,
    Wait: lower_wait,
    kernel.NonZero: lower_nonzero,
    kernel.PrefixScan: lower_running,
    kernel.Scatter: lower_scatter,
    kernel.Sort: lower_sort,
    kernel.Update: lower_update,
    WinogradGradient: lower_winograd_gradient,
    WinogradKernel: lower_winograd_kernel,
}
"""How each kind of kernel is written as loops."""


def lowering_of(cls: type[Op]) -> Lowering | None:
    """The lowering of a class or of the nearest base that has one."""
    return next((LOWERINGS[base] for base in cls.__mro__ if base in LOWERINGS), None)


def _known(cls: type[Op]) -> Lowering:
    found = lowering_of(cls)
    assert found is not None, cls
    return found


def _is_for_gpu(op: kernel.Kernel) -> bool:
    match op:
        case Attention(panel=0) | Gemm(schedule=SplitK()) | Conv(schedule=SplitK()):
            return True
        case _:
            return lowering_of(type(op)) is None


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
    lower_kernels(module, context, _known)
