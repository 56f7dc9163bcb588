"""Products of few tiles and a long k become two kernels for a GPU: parts of the sums, then these together.

The gradient of a weight is such a product: its rows and columns are few, and k goes over the batch. A block
computes a tile, and a few blocks leave most of a GPU idle; so the first kernel has a tile for each part of
k, and the second one adds the parts up, in order, and applies the epilogue. How many parts there are
follows from the sizes, so the bits are the same in every run.
"""

from __future__ import annotations

from math import prod

from dlc.dialects import kernel
from dlc.dialects.kernel_products import Gemm
from dlc.ir.builder import Builder
from dlc.ir.clone import clone_into
from dlc.ir.core import Block, Op, Value
from dlc.ir.dims import evaluate, names
from dlc.ir.passes import Context, define_pass
from dlc.ir.types import INDEX
from dlc.lowering.formula import fold
from dlc.lowering.split_folds import USUAL
from dlc.lowering.vector_product import FEW
from dlc.lowering.work import ceil_divide

TILE = 64
"""Rows and columns of the tiles of a small product."""
BLOCKS = 128
"""Blocks that fill a GPU."""
MOST = 32
"""Parts that one thread adds up."""
STEPS = {True: 1024, False: 256}
"""Steps of a part, at least: by whether matrix instructions multiply, which are sooner done with them."""
WORTH = 2
"""So many times as many steps are to be saved: a second launch takes time, too."""
WHOLE = 64
"""What the steps of a part are a multiple of: a strip of a product is of one part."""


@define_pass("split_products")
def split_products(module: Op, context: Context) -> None:
    """Compute products of few tiles in parts of their sums."""
    usual = context.options.batch or USUAL
    tf32 = context.options.matmul_precision == "tf32"
    for op in list(module.walk()):
        if isinstance(op, Gemm) and not op.outs and not op.part:
            parts = _parts_of(op, usual, tf32)
            if parts > 1:
                context.log.did("add up in parts first", op.results[0])
                _split(op, parts)


def _parts_of(op: Gemm, usual: int, tf32: bool) -> int:
    """In how many parts k is divided; 1 where that is not worth it, or the result may be of any size."""
    sizes = [size for size in op.domain if isinstance(size, int)]
    dtype = kernel.array_type(op.lhs).dtype
    if len(sizes) < len(op.domain) or min(sizes) == 0 or min(sizes[-2:]) <= FEW:
        return 1
    *batch, rows, columns = sizes
    tiles = prod(batch) * -(-rows // TILE) * -(-columns // TILE)
    steps = STEPS[dtype.is_float and (dtype.bits == 16 or tf32)]
    length = evaluate(op.inner, dict.fromkeys(names(op.inner), usual))
    parts = min(MOST, BLOCKS // tiles, length // steps)
    if parts < 2 or length - length // parts < WORTH * steps:
        return 1
    # As many as there are when all are whole.
    return -(-length // (-(-length // (parts * WHOLE)) * WHOLE))


def _split(op: Gemm, parts: int) -> None:
    """Add up in parts in a kernel before this one, and make of this one the sum of them."""
    emit = Builder.before_op(op)
    part = ceil_divide(op.inner, parts * WHOLE) * WHOLE
    sums = emit(
        Gemm(
            op.lhs,
            op.rhs,
            [],
            [],
            _as_they_are(op),
            (parts, *op.domain),
            op.inner,
            op.lhs_transposed,
            op.rhs_transposed,
            op.rhs_shared,
            part=part,
        )
    )
    whole = emit.all(_together(op, sums, parts))
    for old, new in zip(op.results, whole, strict=True):
        old.replace_by(new)
    op.erase()


def _as_they_are(op: Gemm) -> Block:
    """The epilogue of the parts: it hands the sums on."""
    body = Block([*[INDEX] * (1 + len(op.domain)), op.accumulator])
    Builder(body, op.location).place(kernel.Yield([body.arguments[-1]]))
    return body


def _together(op: Gemm, sums: Value, parts: int) -> kernel.Generic:
    """The kernel that adds the parts up, and applies the epilogue of the product."""
    inputs = [sums, *op.extras]
    body = Block([*[INDEX] * len(op.domain), *[value.type for value in inputs]])
    indices, arrays = body.arguments[: len(op.domain)], body.arguments[len(op.domain) :]
    inside = Builder(body, op.location)

    def part(deep: Builder, folded: list[Value]) -> Value:
        return deep(kernel.Load(arrays[0], [*folded, *indices]))

    total = fold(inside, (parts,), "add", part)
    results = clone_into(op.epilogue, inside, [*indices, total, *arrays[1:]])
    inside.place(kernel.Yield(list(results)))
    return kernel.Generic(inputs, [], body, op.domain)
