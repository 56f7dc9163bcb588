"""The strategy for `kernel.generic` on a GPU: a thread, some threads of a warp, or a block for an element.

A thread computes some neighbouring elements. Where elements are computed from rows, by reductions along
contiguous memory or with staged rows, and where a few elements are long reductions, several threads compute
an element together.
"""

from __future__ import annotations

from dlc.dialects import kernel
from dlc.ir.dims import product
from dlc.ir.passes import Context
from dlc.lowering.gpu.elements import lower_elements
from dlc.lowering.gpu.long_row_reduce import longest, lower_long_rows
from dlc.lowering.gpu.row_reduce import lower_rows, row_shape
from dlc.lowering.kernel_code.row_access import has_stage
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target import gpu_of

LONG = 64
"""Steps of a fold that are worth a warp."""


def lower_generic(op: kernel.Generic, context: Context) -> Lowered:
    """The function for one generic kernel in destination form."""
    gpu = gpu_of(context.options)
    if has_stage(op.body) or kernel.reduces_along_memory(op):
        shape = row_shape(op)
        return lower_long_rows(op, gpu) if shape is None else lower_rows(op, shape, gpu.costs)
    if _are_few_and_long(op, gpu.occupancy.idle_threads):
        return lower_long_rows(op, gpu)
    return lower_elements(op, gpu)


def _are_few_and_long(op: kernel.Generic, few: int) -> bool:
    """Whether there are so few elements, each a long fold, that threads must share them."""
    count = product(op.domain)
    folds = any(isinstance(inner, kernel.Reduce) for inner in op.body)
    return isinstance(count, int) and count <= few and folds and longest(op) >= LONG
