"""Embedding lookup: a product with one-hot rows, `one_hot(ids, n) @ table`, gathers the rows of the ids.

The rows of the product are rows of the table, or zeros for an id out of range. Only those rows are read,
so a NaN in another row no longer spoils the sum.
"""

from __future__ import annotations

from dlc.dialects import array
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.array.shape import reshape
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Size
from dlc.ir.rewrite import EQUAL, Rewriter
from dlc.ir.types import I64, TensorType

__all__ = ["onehot_to_gather"]


def onehot_to_gather(op: array.MatMul, rewriter: Rewriter) -> bool:
    """Replace a product with one-hot rows by a gather."""
    ids = _ids_of(op.lhs)
    if ids is None or tensor_type(op.lhs).rank != 2 or tensor_type(op.rhs).rank != 2:
        return False
    emit = rewriter.before(op)
    rows = reshape(emit, emit(array.Cast(ids, I64)), tensor_type(op.lhs).shape[:1])
    rewriter.replace(op, _rows(emit, op.rhs, rows), relation=EQUAL)
    return True


def _rows(emit: Builder, table: Value, ids: Value) -> Value:
    """The rows of the table at the ids, zeros for ids out of range."""
    zero = array.constant_like(emit, 0, ids)
    last = _filled(emit, tensor_type(table).shape[0] - 1, tensor_type(ids))
    clamped = emit(array.Maximum(zero, emit(array.Minimum(ids, last))))
    rows = emit(array.Gather(table, (clamped,), (0,)))
    is_valid = emit(array.Compare(ids, clamped, "eq"))
    shape = tensor_type(rows).shape
    mask = emit(array.Broadcast(is_valid, shape, (0,)))
    return emit(array.Select(mask, rows, array.constant_like(emit, 0, rows)))


def _filled(emit: Builder, size: Size, type: TensorType) -> Value:
    """A tensor of i64 filled with a size."""
    if isinstance(size, int):
        return array.fill(emit, size, type)
    return emit(array.Broadcast(emit(array.Extent(size)), type.shape, ()))


def _ids_of(rows: Value) -> Value | None:
    """The ids of which a matrix has the one-hot rows; None if it is not such a matrix."""
    value = _without(rows, array.Reshape)
    match value.op:
        case array.Cast(source=Value(op=array.Compare(predicate="eq", lhs=lhs, rhs=rhs))):
            for ids_side, counter in ((lhs, rhs), (rhs, lhs)):
                ids = _repeated(ids_side)
                if ids is not None and _counts_last(counter) and _keeps_rows(rows, counter):
                    return ids
        case _:
            pass
    return None


def _without(value: Value, kind: type[array.Reshape | array.Cast]) -> Value:
    return value.op.source if isinstance(value.op, kind) else value


def _keeps_rows(rows: Value, counted: Value) -> bool:
    """Whether a reshape in between keeps the last axis."""
    return tensor_type(rows).shape[-1] == tensor_type(counted).shape[-1]


def _counts_last(value: Value) -> bool:
    """Whether each element is its index along the last axis."""
    axis = tensor_type(value).rank - 1
    return isinstance(value.op, array.Iota) and value.op.axis == axis


def _repeated(value: Value) -> Value | None:
    """The integers, of any dtype, that a tensor broadcasts along its last axis."""
    wide = _without(value, array.Cast)
    if not isinstance(wide.op, array.Broadcast):
        return None
    ids = wide.op.source
    type_of_ids = tensor_type(ids)
    keeps_axes = wide.op.axes == tuple(range(tensor_type(wide).rank - 1))
    if (
        not keeps_axes
        or type_of_ids.shape != tensor_type(wide).shape[:-1]
        or not type_of_ids.dtype.is_integer
    ):
        return None
    return ids
