"""Split-K: products of few tiles and a long k become two kernels for a GPU: partial sums, reduction.

The gradient of a weight is such a product: its rows and columns are few, and k runs over the batch. So are
the last convolutions of a network on one picture, whose channels are divided. A block computes a tile, and
a few blocks leave most of a GPU idle; so the first kernel has a tile for each part of k, and the second one
adds the parts up, in order, and applies the epilogue. The number of parts follows from the sizes alone, so
the bits are the same in every run.
"""

from __future__ import annotations

from math import prod

from dlc.dialects import func, kernel
from dlc.dialects.expr import Expr, exprs
from dlc.dialects.kernel.formulas import Array, fold
from dlc.dialects.kernel.products import Conv, Gemm
from dlc.dialects.kernel.schedule import SplitK
from dlc.ir.clone import clone_into
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.dims import Bounds, Shape, Size, ceil_divide, evaluate, interval, names
from dlc.ir.passes import Context, define_pass
from dlc.ir.types import INDEX
from dlc.passes.graph.device_placement import ops_of
from dlc.passes.kernel.two_stage_reduction import USUAL
from dlc.target import gpu_of

TILE = 64
"""Rows and columns of the tiles of a small product."""
MOST = 32
"""Parts that one thread adds up."""
WORTH = 2
"""The steps saved must be this multiple of the least of a part: a second launch takes time, too."""
WHOLE = 64
"""The steps of a part are a multiple of this, so that no k-tile belongs to two parts."""


@define_pass("split_k")
def split_k(module: Op, context: Context, *, gpu_only: bool = False) -> None:
    """Divide k of products of few tiles.

    `gpu_only` skips kernels that are not placed on a GPU.
    """
    chosen = set(ops_of(module, gpu_only=gpu_only))
    for function in [op for op in module.walk() if isinstance(op, func.Func)]:
        for op in [op for op in function.walk() if op in chosen]:
            if isinstance(op, Gemm | Conv) and not op.outs and op.schedule is None:
                parts = _parts_of(op, function.bounds, context)
                if parts > 1:
                    context.log.did("add up in parts first", op.results[0])
                    _split(op, parts)


def _parts_of(op: Gemm | Conv, bounds: Bounds, context: Context) -> int:
    """The number of parts of k; 1 where that is not worth it, or the result may be of any size."""
    options = context.options
    gpu = gpu_of(options)
    occupancy = gpu.occupancy
    sizes = [most for size in op.domain if (most := interval(size, bounds)[1])]
    if len(sizes) < len(op.domain):
        context.log.refused("its rows and columns may be any number", op.results[0])
        return 1
    if min(sizes[-2:]) <= occupancy.vector_rows:
        context.log.refused("it has few rows or columns", op.results[0])
        return 1
    if isinstance(op, Conv) and op.groups > 1:
        return 1
    *batch, rows, columns = sizes
    tiles = prod(batch) * -(-rows // TILE) * -(-columns // TILE)
    dtype = kernel.array_type(op.lhs).dtype
    by_matrices = gpu.has_matrix_instructions(dtype, options.matmul_precision)
    least = occupancy.matrix_steps if by_matrices else occupancy.fma_steps
    length = _divided_length(op)
    steps = evaluate(length, dict.fromkeys(names(length), options.batch or USUAL))
    each = prod(op.window) if isinstance(op, Conv) else 1
    parts = min(MOST, occupancy.blocks // tiles, steps * each // least, steps // WHOLE)
    if parts < 2 or (steps - steps // parts) * each < WORTH * least:
        context.log.refused(
            "parts of its sums would save too little",
            op.results[0],
            tiles=tiles,
            steps=steps * each,
        )
        return 1
    # As many as there are when all are whole.
    return -(-steps // (-(-steps // (parts * WHOLE)) * WHOLE))


def _divided_length(op: Gemm | Conv) -> Size:
    """The length that is divided: the steps along k, or the channels under each tap of a window."""
    return op.inner if isinstance(op, Gemm) else kernel.array_type(op.lhs).shape[-1]


def _split(op: Gemm | Conv, parts: int) -> None:
    """Compute the partial sums in a kernel before this one, and replace this one by their reduction."""
    emit = Builder.before_op(op)
    part = ceil_divide(_divided_length(op), parts * WHOLE) * WHOLE
    sums = emit(_partial_sums(op, (parts, *op.domain), SplitK(part)))
    whole = emit.all(_reduction(op, sums, parts))
    for old, new in zip(op.results, whole, strict=True):
        old.replace_by(new)
    op.erase()


def _partial_sums(op: Gemm | Conv, domain: Shape, part: SplitK) -> Gemm | Conv:
    """The product of partial sums, whose epilogue yields them as they are."""
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


def _reduction(op: Gemm | Conv, sums: Value, parts: int) -> kernel.Generic:
    """The kernel that adds up the partial sums and applies the epilogue of the product."""
    inputs = [sums, *op.extras]
    body = Block([*[INDEX] * len(op.domain), *[value.type for value in inputs]])
    indices, arrays = body.arguments[: len(op.domain)], body.arguments[len(op.domain) :]
    inside = Builder(body, op.location)

    partials = Array(inside, arrays[0])

    def partial(part: list[Expr]) -> Expr:
        return partials[[*part, *exprs(inside, indices)]]

    total = fold(inside, (parts,), "add", partial)
    results = clone_into(op.epilogue, inside, [*indices, total.value, *arrays[1:]])
    inside.place(kernel.Yield(list(results)))
    return kernel.Generic(inputs, [], body, op.domain)
