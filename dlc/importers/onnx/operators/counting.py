"""`NonZero`, and what a mask counts: equal counts are one size wherever they are counted.

Exporters write `x[mask] = y` by places of the mask, places of the mask repeated along the other axes of
`x`, and the sum of the mask as a number of rows: all three belong together only where that is seen.
"""

from __future__ import annotations

import numpy as np

from dlc.dialects import array
from dlc.dialects.array.shape import reshape, transpose, without_reshapes
from dlc.importers.onnx.node_context import Constant, NodeContext, NodeResults, Operand
from dlc.ir.attributes import decode
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Shape, Size, product, symbol
from dlc.ir.types import BOOL, I64, TensorType

MOST = 1 << 20
"""Elements of a constant in which `NonZero` and `Compress` look for the places while importing."""


def is_counted_now(constant: Constant) -> bool:
    """Whether what is not 0 in a constant is looked for while importing."""
    return not constant.is_symbolic and constant.array.size <= MOST


def nonzero(context: NodeContext) -> NodeResults:
    """One row for each axis, one column for each element."""
    constant = context.operand(0)
    if isinstance(constant, Constant) and is_counted_now(constant):
        positions = np.argwhere(decode(constant.array, constant.dtype)).astype(np.int64)
        return Constant(np.ascontiguousarray(positions.T), I64)
    emit = context.emit
    mask, repeated = _unrepeated(context.value(0))
    counted = _counted(emit, mask)
    if counted is None:
        dim = context.regions.fresh_dim(context.node.line)
        counted = array.NonZero(mask, dim)
        emit.all(counted)
    places = _repeated(emit, counted.results[0], array.tensor_type(mask).rank, repeated)
    return transpose(emit, places, (1, 0))


def known_count(emit: Builder, total: Operand | None) -> Size | None:
    """The number of true elements of a mask that was cast to numbers, if they were counted before."""
    if not isinstance(total, Value) or array.tensor_type(total).dtype is not I64:
        return None
    cast = without_reshapes(total).op
    if not isinstance(cast, array.Cast):
        return None
    mask = without_reshapes(cast.source)
    counted = _counted(emit, mask) if array.tensor_type(mask).dtype is BOOL else None
    return None if counted is None else symbol(counted.dim)


def _counted(emit: Builder, mask: Value) -> array.NonZero | None:
    """What counts a mask already, in the block that is built."""
    for user in mask.uses:
        if isinstance(user, array.NonZero) and user.parent is emit.block and user.bound is None:
            return user
    return None


def _unrepeated(mask: Value) -> tuple[Value, Shape]:
    """A mask before it was repeated along new last axes, and the sizes of these."""
    op = mask.op
    if not isinstance(op, array.Broadcast) or op.axes != tuple(range(len(op.axes))):
        return mask, ()
    source = op.source
    before = without_reshapes(source)
    # A reshape that puts axes of size 1 behind it, and one that removes them, leave it what it is.
    return (before if before.type is source.type else source), op.shape[len(op.axes) :]


def _repeated(emit: Builder, places: Value, rank: int, sizes: Shape) -> Value:
    """The places `[n, rank]` of a mask, each with all places of the last axes of these sizes."""
    if not sizes:
        return places
    every = TensorType(I64, (array.tensor_type(places).shape[0], *sizes))
    columns = [
        emit(array.Broadcast(_column(emit, places, k), every.shape, (0,))) for k in range(rank)
    ]
    columns += [array.iota(emit, every, 1 + k) for k in range(len(sizes))]
    flat = [reshape(emit, column, (product(every.shape), 1)) for column in columns]
    return emit(array.Concatenate(tuple(flat), 1))


def _column(emit: Builder, places: Value, k: int) -> Value:
    part = array.slice_axis(emit, places, 1, k, k + 1)
    return reshape(emit, part, array.tensor_type(part).shape[:1])
