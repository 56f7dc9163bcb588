"""Split-K: a product of few tiles and a long k becomes two kernels on a GPU, partial sums and their total.

The gradient of a weight is such a product: its rows and columns are few, and k is the batch. So are the
last convolutions of a network on one picture, where the channels are split. A block computes a tile, and a
few blocks leave most of a GPU idle; so the first kernel has a tile for each part of k, and the second adds
the parts up, in order, and applies the epilogue. The number of parts follows from the sizes, so the bits
are the same in every run.
"""

from __future__ import annotations

from math import prod

from dlc.dialects import func, kernel
from dlc.dialects.expr import Expr, exprs
from dlc.dialects.formulas import Array, reduce
from dlc.dialects.kernel.product_schedule import SplitK
from dlc.dialects.kernel.products import Conv, Gemm
from dlc.ir.clone import clone_into
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.dims import Bounds, Shape, Size, ceil_divide, evaluate, names
from dlc.ir.intervals import interval
from dlc.ir.passes import Context, define_pass
from dlc.ir.types import INDEX
from dlc.passes.graph.device_placement import ops_of
from dlc.passes.kernel.two_stage_reduction import USUAL
from dlc.target import gpu_of

TILE = 64
"""Rows and columns of the tiles of a small product."""
MOST = 32
"""The most parts of k: one thread adds them up."""
WORTH = 2
"""How many times the minimal steps of a part must be saved, to pay for the second launch."""
WHOLE = 64
"""The steps of a part are a multiple of this, so that a k-tile lies in one part."""


@define_pass("split_k")
def split_k(module: Op, context: Context, *, gpu_only: bool = False) -> None:
    """Split the k of products of few tiles into parts.

    With `gpu_only` only products placed on a GPU.
    """
    chosen = set(ops_of(module, gpu_only=gpu_only))
    for function in [op for op in module.walk() if isinstance(op, func.Func)]:
        for op in [op for op in function.walk() if op in chosen]:
            if isinstance(op, Gemm | Conv) and not op.outs and op.schedule is None:
                parts = _parts_of(op, function.bounds, context)
                if parts > 1:
                    context.log.did("split k", op.results[0], parts=parts)
                    _split(op, parts)


def _parts_of(op: Gemm | Conv, bounds: Bounds, context: Context) -> int:
    """The number of parts of k; 1 where splitting does not pay, or the result has no bound on its size."""
    options = context.options
    gpu = gpu_of(options)
    occupancy = gpu.occupancy
    sizes = [high for size in op.domain if (high := interval(size, bounds)[1])]
    if len(sizes) < len(op.domain):
        context.log.refused("its rows and columns have no upper bound", op.results[0])
        return 1
    if min(sizes[-2:]) <= occupancy.vector_rows:
        context.log.refused("it has too few rows or columns for tiles", op.results[0])
        return 1
    if isinstance(op, Conv) and op.groups > 1:
        return 1
    *batch, rows, columns = sizes
    tiles = prod(batch) * -(-rows // TILE) * -(-columns // TILE)
    dtype = kernel.array_type(op.lhs).dtype
    by_matrices = gpu.has_matrix_instructions(dtype, options.matmul_precision)
    least_steps = occupancy.matrix_steps if by_matrices else occupancy.fma_steps
    length = _divided(op)
    steps = evaluate(length, dict.fromkeys(names(length), options.batch or USUAL))
    taps = prod(op.window) if isinstance(op, Conv) else 1
    parts = min(MOST, occupancy.blocks // tiles, steps * taps // least_steps, steps // WHOLE)
    if parts < 2 or (steps - steps // parts) * taps < WORTH * least_steps:
        context.log.refused(
            "splitting k would save too little",
            op.results[0],
            tiles=tiles,
            k_steps=steps * taps,
        )
        return 1
    # Fewer if the last part would be empty: parts have whole multiples of the steps.
    return -(-steps // (-(-steps // (parts * WHOLE)) * WHOLE))


def _divided(op: Gemm | Conv) -> Size:
    """The size that is split: k of a matrix product, the input channels of a convolution."""
    return op.inner if isinstance(op, Gemm) else kernel.array_type(op.lhs).shape[-1]


def _split(op: Gemm | Conv, parts: int) -> None:
    """Replace a product by the kernel of partial sums and the one that adds them up."""
    emit = Builder.before_op(op)
    part = ceil_divide(_divided(op), parts * WHOLE) * WHOLE
    sums = emit(_in_parts(op, (parts, *op.domain), SplitK(part)))
    whole = emit.all(_together(op, sums, parts))
    for old, new in zip(op.results, whole, strict=True):
        old.replace_by(new)
    op.erase()


def _in_parts(op: Gemm | Conv, domain: Shape, part: SplitK) -> Gemm | Conv:
    """The product with one partial sum for each part of k, and no epilogue."""
    epilogue = Block([*[INDEX] * len(domain), op.accumulator])
    Builder(epilogue, op.location).place(kernel.Yield([epilogue.arguments[-1]]))
    if isinstance(op, Gemm):
        flags = op.lhs_transposed, op.rhs_transposed, op.rhs_shared
        return Gemm(op.lhs, op.rhs, [], [], epilogue, domain, op.inner, *flags, schedule=part)
    return Conv(
        lhs=op.lhs,
        rhs=op.rhs,
        blank=op.blank,
        extras=[],
        outs=[],
        epilogue=epilogue,
        domain=domain,
        window=op.window,
        strides=op.strides,
        padding=op.padding,
        dilations=op.dilations,
        schedule=part,
    )


def _together(op: Gemm | Conv, sums: Value, parts: int) -> kernel.Generic:
    """The kernel that adds the partial sums up and applies the epilogue of the product."""
    inputs = [sums, *op.extras]
    body = Block([*[INDEX] * len(op.domain), *[value.type for value in inputs]])
    indices, arrays = body.arguments[: len(op.domain)], body.arguments[len(op.domain) :]
    inside = Builder(body, op.location)

    partials = Array(inside, arrays[0])

    def partial(part: list[Expr]) -> Expr:
        return partials[[*part, *exprs(inside, indices)]]

    total = reduce(inside, (parts,), "add", partial)
    results = clone_into(op.epilogue, inside, [*indices, total.value, *arrays[1:]])
    inside.place(kernel.Yield(list(results)))
    return kernel.Generic(inputs, [], body, op.domain)
