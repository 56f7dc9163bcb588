"""The strategy for `kernel.gemm` and `kernel.conv` on a GPU: which lowering, and which tile sizes.

f16 and bf16 are multiplied by matrix instructions (tensor cores). f32 is exact, one `fma` after the other
in order of k; where the model is compiled for tf32, matrix instructions multiply it, too. Products of a few
rows or columns (GEMV) are bound by memory bandwidth and have a lowering of their own.
"""

from __future__ import annotations

from dataclasses import replace

from dlc.dialects import kernel, mem
from dlc.dialects.kernel.product_schedule import SplitK
from dlc.dialects.kernel.products import Gemm, Product
from dlc.dialects.measured import upper_bound
from dlc.ir.dims import Size, ceil_divide, product
from dlc.ir.intervals import interval
from dlc.ir.passes import Context
from dlc.ir.types import F32
from dlc.lowering.gpu.product.operands import Geometry, geometry_of
from dlc.lowering.gpu.product.pipelined import PipelinedProduct
from dlc.lowering.gpu.product.skinny import VectorProduct
from dlc.lowering.gpu.product.small import SmallProduct
from dlc.lowering.gpu.product.warp_products import MatrixProduct, ScalarProduct, Tiling
from dlc.lowering.kernel_code.tidy import tidy
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target import gpu_of
from dlc.target.gpu import GpuTarget

WIDE = Tiling(rows=128, columns=128, down=2, across=2, stages=3, blocks=2)
"""Tiles of a large product by matrix instructions; the stages take the 48 KiB that every GPU has."""
DEEP = replace(WIDE, k_bytes=128)
"""The same with half as many barriers, where a multiprocessor has 192 KiB for two blocks."""
NARROW = Tiling(rows=64, columns=64, down=2, across=2, stages=4)
"""Tiles of a small product by matrix instructions."""
EXACT = Tiling(rows=128, columns=128, down=4, across=2, stages=3)
"""Tiles of a large product by `fma`: 8 x 8 sums in each thread."""
SMALL = Tiling(rows=64, columns=64, down=4, across=2, stages=4)
"""Tiles of a small product by `fma`: 4 x 4 sums in each thread."""


def lower_product(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for one product in destination form."""
    geometry = geometry_of(op)
    lowered = _lower(geometry, gpu_of(context.options), context.options.matmul_precision)
    tidy(lowered.function)
    return lowered


def _lower(geometry: Geometry, gpu: GpuTarget, precision: str) -> Lowered:
    op = geometry.op
    lhs, rhs = (kernel.array_type(value).dtype for value in (op.lhs, op.rhs))
    few = few_rows(geometry, gpu.occupancy.vector_rows)
    if few is not None:
        return VectorProduct(geometry, *few, gpu).lower()
    large = is_large(geometry, gpu.occupancy.wide_tiles)
    pipelines = lhs is rhs and gpu.copies_async
    if pipelines and gpu.has_matrix_instructions(lhs, precision):
        deep = gpu.has_room_for(DEEP.blocks, DEEP.shared_bytes) and geometry.consists_of(
            DEEP.k_bytes // lhs.bytes
        )
        tiling = (DEEP if deep else WIDE) if large else NARROW
        return PipelinedProduct(geometry, tiling, MatrixProduct, gpu.costs.matrix_product).lower()
    if pipelines and lhs is F32:
        tiling, cost = EXACT if large else SMALL, gpu.costs.product
        return PipelinedProduct(geometry, tiling, ScalarProduct, cost).lower()
    return SmallProduct(geometry, gpu).lower()


def few_rows(geometry: Geometry, few: int) -> tuple[int, int] | None:
    """The axis of a product of matrices that has at most `few` rows in every call, and how many."""
    if not isinstance(geometry.op, Gemm) or isinstance(geometry.op.schedule, SplitK):
        return None
    for axis, size in enumerate((geometry.rows, geometry.columns)):
        most = _most(geometry.op, size)
        if most is not None and most <= few:
            return axis, most
    return None


def is_large(geometry: Geometry, busy: int) -> bool:
    """Whether a product has at least `busy` wide tiles, enough to keep a GPU busy."""
    tiles = ceil_divide(geometry.rows, WIDE.rows) * ceil_divide(geometry.columns, WIDE.columns)
    count = _most(geometry.op, product(geometry.batch) * tiles)
    return count is None or count >= busy


def _most(op: Product, size: Size) -> int | None:
    """The upper bound of a size; None if it has none."""
    program = mem.program_of(op)
    assert program is not None
    _, most = interval(upper_bound(size, program.limit_of), program.bounds)
    return most
