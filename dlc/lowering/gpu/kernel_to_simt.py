"""From kernels to functions for a GPU: each kernel of the plan becomes one, and a call of it.

Kernels that have no form of their own here run as the loops that they are on a CPU, a thread to a tile.
"""

from __future__ import annotations

from dlc.dialects import comm, kernel, loop, simt
from dlc.dialects.expr import Expr, Pointer
from dlc.dialects.kernel.attention import Attention, AttentionGradient
from dlc.dialects.kernel.pieces import Concatenate
from dlc.dialects.kernel.products import Conv, Gemm
from dlc.dialects.simt import WARP
from dlc.ir.core import Block, Builder, Op
from dlc.ir.dims import ceil_divide
from dlc.ir.passes import Context, define_pass
from dlc.ir.types import INDEX, POINTER, U8
from dlc.lowering.cpu.kernel_to_loop import LOWERINGS
from dlc.lowering.gpu.attention.forward import lower_attention
from dlc.lowering.gpu.attention.gradient import lower_attention_gradient
from dlc.lowering.gpu.bitonic_sort import lower_sort
from dlc.lowering.gpu.collective import (
    lower_collective_on_gpu,
    lower_rank_on_gpu,
    refuse_on_gpu,
)
from dlc.lowering.gpu.concatenate import lower_concatenate
from dlc.lowering.gpu.depthwise import lower_depthwise
from dlc.lowering.gpu.generic import lower_generic
from dlc.lowering.gpu.nonzero import lower_nonzero
from dlc.lowering.gpu.prefix_scan import lower_running
from dlc.lowering.gpu.product.strategy import lower_product
from dlc.lowering.gpu.scatter import lower_scatter
from dlc.lowering.gpu.update import lower_update
from dlc.lowering.kernel_code.lower_kernels import Lowering, lower_kernels
from dlc.lowering.kernel_code.words import empty
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target import gpu_of


def _lower_convolution(op: Conv, context: Context) -> Lowered:
    """A convolution channel by channel, or as a product."""
    return (
        lower_depthwise(op, gpu_of(context.options))
        if op.is_depthwise
        else lower_product(op, context)
    )


GRIDS: dict[type[Op], Lowering] = {
    kernel.Generic: lower_generic,
    Gemm: lower_product,
    Conv: _lower_convolution,
    Attention: lower_attention,
    AttentionGradient: lower_attention_gradient,
    Concatenate: lower_concatenate,
    kernel.NonZero: lower_nonzero,
    kernel.PrefixScan: lower_running,
    kernel.Scatter: lower_scatter,
    kernel.Sort: lower_sort,
    kernel.Update: lower_update,
    comm.Rank: lower_rank_on_gpu,
    comm.AllGather: lower_collective_on_gpu,
    comm.AllReduce: lower_collective_on_gpu,
    comm.AllToAll: lower_collective_on_gpu,
    comm.CollectiveBroadcast: lower_collective_on_gpu,
    comm.Permute: lower_collective_on_gpu,
    comm.ReduceScatter: lower_collective_on_gpu,
    comm.StartAllReduce: refuse_on_gpu,
    comm.Test: refuse_on_gpu,
    comm.Wait: refuse_on_gpu,
}
"""The kernels that have a form for GPUs."""


@define_pass("lower_to_simt", required=True)
def lower_to_simt(module: Op, context: Context) -> None:
    """Turn every kernel into a function for a GPU and a call of it."""
    lower_kernels(module, context, lowering_for_gpu)


def lowering_for_gpu(cls: type[Op]) -> Lowering:
    """What writes kernels of a class for a GPU."""
    found = GRIDS.get(cls)
    if found is not None:
        return found
    loops = LOWERINGS[cls]
    return lambda op, context: _by_tiles(loops(op, context))


def _by_tiles(lowered: Lowered) -> Lowered:
    """The same work with a thread for each tile of the loops: a warp does 32 of them."""
    block, work = Block(), lowered.function.body
    emit = Builder(block, lowered.function.location)
    tile, thread = (Expr(emit, block.add_argument(INDEX, name)) for name in ("tile", "thread"))
    first, last, *rest = work.arguments
    scratch = rest.pop() if lowered.scratch != 0 else None
    for argument in rest:
        argument.replace_by(block.add_argument(argument.type, argument.name))
    count = Expr(emit, block.add_argument(INDEX, "tiles"))
    number = tile * WARP + thread
    first.replace_by(number.value)
    last.replace_by((number + 1).value)
    sizes = (*lowered.sizes, lowered.tiles)
    if scratch is not None:
        length = Expr(emit, block.add_argument(INDEX, "scratch_bytes"))
        whole = Pointer(emit, block.add_argument(POINTER, "scratch"), U8)
        scratch.replace_by((whole + number * length).value)
        sizes = (*sizes, lowered.scratch)
    emit.place(loop.If((number < count).value, _as_branch(work), empty(emit)))
    emit.place(loop.Return())
    function = simt.Func(block, "kernel", WARP)
    function.location = lowered.function.location
    warps = ceil_divide(lowered.tiles, WARP)
    room = warps * WARP * lowered.scratch
    return Lowered(function, sizes, warps, lowered.cost * WARP, room)


def _as_branch(body: Block) -> Block:
    """The body of a function as the branch of an `if`."""
    branch = Block()
    for op in body:
        body.unlink(op)
        end = isinstance(op, loop.Return)
        Builder(branch, op.location).place(loop.Yield([]) if end else op)
    return branch
