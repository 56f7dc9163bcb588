"""From kernels to functions for two kinds of devices: each for the one that its kernel is on.

What a kernel writes says where it runs. A transfer between the memories of the two is a call of
`TRANSFER`, a copy byte by byte that is there to be evaluated: whoever runs the program copies instead.
"""

from __future__ import annotations

from dataclasses import replace

from dlc.dialects import kernel, mem
from dlc.dialects.comm import HOST, Collective, Rank, Send, is_gpu
from dlc.dialects.measured import upper_bound
from dlc.ir.core import Op
from dlc.ir.dims import ceil_divide
from dlc.ir.passes import Context, define_pass
from dlc.ir.types import U8
from dlc.lowering.cpu.kernel_to_loop import LOWERINGS
from dlc.lowering.gpu.collective import refuse_on_gpu
from dlc.lowering.gpu.kernel_to_simt import lowering_for_gpu
from dlc.lowering.kernel_code.lower_kernels import Lowering, lower_kernels
from dlc.lowering.kernel_code.words import for_each
from dlc.lowering.kernel_code.writer import Lowered, Writer
from dlc.target import Target, gpu_of
from dlc.target.gpu_costs import GpuCosts

TRANSFER = "dlc.transfer"
"""The attribute of functions that stand for copies between two memories."""


@define_pass("lower_to_hetero", required=True)
def lower_to_hetero(module: Op, context: Context) -> None:
    """Turn every kernel into a function for its device and a call of it."""
    gpu = gpu_of(context.options)
    on_gpu = replace(context, options=replace(context.options, target=Target.all_on(gpu)))

    def lowering(cls: type[Op]) -> Lowering:
        def lower(op: kernel.Kernel, context: Context) -> Lowered:
            if isinstance(op, Send) and op.crosses:
                return _transfer(op, gpu.costs)
            if isinstance(op, Collective | Rank) and is_gpu(device_of(op)):
                return refuse_on_gpu(op, context)
            if is_gpu(device_of(op)):
                return lowering_for_gpu(cls)(op, on_gpu)
            return LOWERINGS[cls](op, context)

        return lower

    lower_kernels(module, context, lowering)


def device_of(op: Op) -> str:
    """The device that an operation of a plan runs on: where what it writes is."""
    views = op.views[-op.writes :] if isinstance(op, mem.Call) else op.operands[-1:]
    for view in views:
        root = view.op.root.op if isinstance(view.op, mem.View) else None
        if isinstance(root, mem.Root):
            return root.device or HOST
    return HOST


def _transfer(op: Send, costs: GpuCosts) -> Lowered:
    """A copy of the bytes of an array from one memory to another."""
    writer = Writer(op)
    program = mem.program_of(op)
    type = kernel.array_type(op.inputs[0])
    limits = {} if program is None else program.limit_of
    length = upper_bound(type.size, limits) * type.dtype.bytes
    count = writer.size(length, "bytes")
    source, target = writer.pointer(0).of(U8), writer.pointer(1).of(U8)
    with for_each(writer.emit, 0, count) as place:
        target[place] = source[place]
    lowered = writer.finish(
        1, costs.transfer // 1000 + ceil_divide(length, 1000 // costs.transfer_byte)
    )
    lowered.function.attributes[TRANSFER] = True
    return lowered
