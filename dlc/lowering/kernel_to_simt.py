"""From kernels to functions for a GPU: each kernel of the plan becomes one, and a call of it.

Kernels that have no form of their own here run as the loops that they are on a CPU, a thread to a tile.
"""

from __future__ import annotations

from dlc.dialects import kernel, kernels_in_order, loop, simt
from dlc.dialects.kernel_attention import Attention, AttentionGradient
from dlc.dialects.kernel_pieces import Concatenate
from dlc.dialects.kernel_products import Conv, Gemm
from dlc.dialects.simt import WARP
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Op
from dlc.ir.dims import ceil_divide
from dlc.ir.passes import Context, define_pass
from dlc.ir.types import INDEX, POINTER, U8
from dlc.lowering.attention_gradient_to_simt import lower_attention_gradient
from dlc.lowering.attention_to_simt import lower_attention
from dlc.lowering.concatenate_to_simt import lower_concatenate
from dlc.lowering.depthwise_to_simt import lower_depthwise
from dlc.lowering.expr import Expr, Pointer
from dlc.lowering.generic_to_simt import lower_generic
from dlc.lowering.kernel_to_loop import LOWERINGS
from dlc.lowering.loop_writer import Lowered
from dlc.lowering.lower_kernels import Lowering, lower_kernels
from dlc.lowering.nonzero_to_simt import lower_nonzero
from dlc.lowering.product_to_simt import lower_product
from dlc.lowering.running_to_simt import lower_running
from dlc.lowering.scatter_to_simt import lower_scatter
from dlc.lowering.sort_to_simt import lower_sort
from dlc.lowering.update_to_simt import lower_update
from dlc.lowering.words import empty
from dlc.target import gpu_of


def _lower_convolution(op: kernel.Kernel, context: Context) -> Lowered:
    """A convolution channel by channel, or as a product."""
    assert isinstance(op, Conv)
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
    kernels_in_order.NonZero: lower_nonzero,
    kernels_in_order.Running: lower_running,
    kernels_in_order.Scatter: lower_scatter,
    kernels_in_order.Sort: lower_sort,
    kernels_in_order.Update: lower_update,
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
