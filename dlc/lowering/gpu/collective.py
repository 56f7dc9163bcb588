"""Collectives among ranks whose arrays lie on GPUs: not kernels, but calls that the runtime makes.

The function of one is that of a processor, by which programs are evaluated. It says besides what it does,
from which `dlc.runtime.gpu` makes a call of NCCL in the stream of the kernels.
"""

from __future__ import annotations

from dlc.dialects import comm
from dlc.dialects.kernel.generic import Kernel, array_type
from dlc.errors import Diagnostic, Unsupported
from dlc.ir.core import Op
from dlc.ir.dims import Size
from dlc.ir.passes import Context
from dlc.ir.types import I64
from dlc.lowering.cpu.collective import lower_collective, lower_rank
from dlc.lowering.kernel_code.writer import Lowered

COLLECTIVE = "dlc.collective"
"""The attribute of functions that stand for collectives: what `GpuCollective` has besides a name."""
_NOT_ADDED = ("bool", "i16", "u16", "f16", "bf16")
"""What is not added among ranks: NCCL has no integers of 16 bits, and floats are added in f32."""


def lower_rank_on_gpu(op: comm.Rank, context: Context) -> Lowered:
    """The coordinate of this rank, which is copied to where it is needed."""
    return _named(lower_rank(op, context), "rank", op.mesh_axis, I64.name)


def lower_collective_on_gpu(op: comm.Collective, context: Context) -> Lowered:
    """The function for one collective, and what the runtime does in its place.

    Raises Unsupported (D0741) for sums of what NCCL does not add.
    """
    type = array_type(op.inputs[0])
    function = op.name.partition(".")[2]
    combine, place = "sum", 0
    count: Size = type.size
    match op:
        case comm.AllReduce():
            combine = op.combine
            _check_added(op, type.dtype.name)
        case comm.ReduceScatter():
            _check_added(op, type.dtype.name)
            count = type.with_shape(type.shape[1:]).size
        case comm.AllToAll():
            count = type.with_shape(type.shape[1:]).size
        case comm.CollectiveBroadcast():
            place = op.root
        case comm.Permute():
            place = op.shift % op.ranks
        case _:
            assert isinstance(op, comm.AllGather), op.name
    lowered = lower_collective(op, context)
    at = len(op.operands) + lowered.sizes.index(count)
    return _named(lowered, function, op.mesh_axis, type.dtype.name, combine, place, at)


def refuse_on_gpu(op: Kernel, context: Context) -> Lowered:
    """No function: sums under way, and collectives where a processor has a part, are on processors only.

    Raises Unsupported (D0741).
    """
    raise _refusal(op, f"{op.name} has no form on a GPU here")


def _named(lowered: Lowered, function: str, axis: str, dtype: str, *rest: str | int) -> Lowered:
    lowered.function.attributes[COLLECTIVE] = (function, axis, dtype, *rest)
    return lowered


def _check_added(op: comm.Collective, dtype: str) -> None:
    if dtype in _NOT_ADDED:
        raise _refusal(op, f"{op.name} of {dtype} has no form on a GPU")


def _refusal(op: Op, message: str) -> Unsupported:
    help = "compile it for processors, or for GPUs with f32 there"
    return Unsupported([Diagnostic("D0741", message, op.location.place, help=help)])
