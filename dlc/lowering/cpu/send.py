"""`comm.send` between CPUs as loops: a copy from the memory of the one device to that of the other."""

from __future__ import annotations

from dlc.dialects import kernel
from dlc.dialects.comm import Send
from dlc.ir.core import Block, Builder
from dlc.ir.passes import Context
from dlc.ir.types import INDEX
from dlc.lowering.cpu.generic import lower_generic
from dlc.lowering.kernel_code.writer import Lowered


def lower_send(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for one transfer in destination form."""
    assert isinstance(op, Send)
    (value,), (target,) = op.inputs, op.outs
    shape = kernel.array_type(value).shape
    body = Block([*[INDEX] * len(shape), value.type])
    inside = Builder(body, op.location)
    *indices, array = body.arguments
    inside.place(kernel.Yield([inside(kernel.Load(array, indices))]))
    copy = kernel.Generic([value], [target], body, shape)
    # It is in the plan meanwhile, whose sizes it needs.
    Builder.before_op(op).place(copy)
    lowered = lower_generic(copy, context)
    copy.erase()
    return lowered
