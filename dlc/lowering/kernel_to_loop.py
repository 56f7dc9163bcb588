"""From kernels to loops: each kernel of the plan becomes a function and a call of it.

Functions take their sizes as arguments, so kernels that differ in sizes only are one function.
"""

from __future__ import annotations

from collections.abc import Callable

from dlc.dialects import kernel, kernels_in_order, loop, mem
from dlc.dialects.builtin import Module
from dlc.dialects.comm import Send
from dlc.dialects.kernel_attention import Attention
from dlc.dialects.kernel_pieces import Concatenate
from dlc.dialects.kernel_products import Conv, Gemm
from dlc.dialects.measured import at_most
from dlc.ir.attributes import Symbol
from dlc.ir.builder import Builder
from dlc.ir.core import Op
from dlc.ir.fingerprint import fingerprint
from dlc.ir.passes import Context, define_pass
from dlc.lowering.attention_to_loop import lower_attention
from dlc.lowering.call_label import label
from dlc.lowering.concatenate_to_loop import lower_concatenate
from dlc.lowering.depthwise_to_loop import lower_depthwise
from dlc.lowering.expand import expand, expansions_for
from dlc.lowering.gemm_to_loop import lower_gemm
from dlc.lowering.generic_to_loop import lower_generic
from dlc.lowering.hoist import tidy
from dlc.lowering.loop_writer import Lowered
from dlc.lowering.math import Expansion
from dlc.lowering.needs import needs
from dlc.lowering.nonzero_to_loop import lower_nonzero
from dlc.lowering.panels_to_loop import lower_panels
from dlc.lowering.running_to_loop import lower_running
from dlc.lowering.scatter_to_loop import lower_scatter
from dlc.lowering.send_to_loop import lower_send
from dlc.lowering.sort_to_loop import lower_sort
from dlc.lowering.update_to_loop import lower_update


def _lower_product(op: kernel.Kernel, context: Context) -> Lowered:
    """A product by BLAS, or by our own loops if its right operand is in panels."""
    assert isinstance(op, Gemm)
    return lower_panels(op, context) if op.panel else lower_gemm(op, context)


def _lower_convolution(op: kernel.Kernel, context: Context) -> Lowered:
    """A convolution channel by channel, or on panels."""
    assert isinstance(op, Conv)
    return lower_panels(op, context) if op.panel else lower_depthwise(op, context)


LOWERINGS: dict[type[Op], Callable[[kernel.Kernel, Context], Lowered]] = {
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


@define_pass("lower_to_loops", required=True)
def lower_to_loops(module: Op, context: Context) -> None:
    """Turn every kernel into a function of loops and a call of it."""
    assert isinstance(module, Module)
    known: dict[tuple[object, ...], str] = {}
    table = expansions_for(context.options)
    for wave in [op for op in module.walk() if isinstance(op, mem.Wave)]:
        for op in wave.body:
            if isinstance(op, kernel.Kernel):
                lowered = LOWERINGS[type(op)](op, context)
                key = fingerprint(lowered.function)
                if key not in known:
                    known[key] = f"{op.name.partition('.')[2]}_{len(known)}"
                    _finish(lowered.function, known[key], table)
                    Builder(module.body, op.location).place(lowered.function)
                _call(op, lowered, known[key])


def _finish(function: loop.Func, name: str, table: dict[type[Op], Expansion]) -> None:
    """Give a function its name, and formulas for what the target has no instruction for."""
    function.attributes["sym_name"] = name
    if expand(function, table):
        tidy(function)


def _call(op: kernel.Kernel, lowered: Lowered, name: str) -> None:
    """Call a function in the place of its kernel."""
    program = mem.program_of(op)
    limits = {} if program is None else program.limit_of
    facts = (lowered.tiles, lowered.cost, lowered.scratch, needs(op))
    laid_out = [at_most(size, limits) for size in facts]
    call = mem.Call(
        op.operands,
        Symbol(name),
        lowered.sizes,
        *laid_out,
        writes=len(op.targets),
        label=label(op),
    )
    Builder.before_op(op).place(call)
    op.erase()
