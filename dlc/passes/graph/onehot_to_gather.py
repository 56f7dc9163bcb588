"""A product with one-hot rows is a look-up: `one_hot(ids, n) @ table` reads the rows that the ids name.

The rows of the product are those of the table, or zeros where an id names none. Only rows that are
looked up are read, so a NaN in another one no longer spoils the sum.
"""

from __future__ import annotations

from dlc.dialects import array
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.array.shape import reshape
from dlc.ir.core import Builder, Op, Value
from dlc.ir.dims import Size
from dlc.ir.rewrite import EQUAL, Rewriter
from dlc.ir.types import I64, TensorType

__all__ = ["onehot_to_gather"]


def onehot_to_gather(op: Op, rewriter: Rewriter) -> bool:
    """Turn the product into a gather."""
    assert isinstance(op, array.MatMul)
    ids = _ids_of(op.lhs)
    if ids is None or tensor_type(op.lhs).rank != 2 or tensor_type(op.rhs).rank != 2:
        return False
    emit = rewriter.before(op)
    rows = reshape(emit, emit(array.Cast(ids, I64)), tensor_type(op.lhs).shape[:1])
    rewriter.replace(op, _rows(emit, op.rhs, rows), relation=EQUAL)
    return True


def _rows(emit: Builder, table: Value, ids: Value) -> Value:
    """The rows of the table that the ids name, zeros for ids that name none."""
    zero = array.constant_like(emit, 0, ids)
    last = _filled(emit, tensor_type(table).shape[0] - 1, tensor_type(ids))
    inside = emit(array.Maximum(zero, emit(array.Minimum(ids, last))))
    found = emit(array.Gather(table, (inside,), (0,)))
    known = emit(array.Compare(ids, inside, "eq"))
    shape = tensor_type(found).shape
    mask = emit(array.Broadcast(known, shape, (0,)))
    return emit(array.Select(mask, found, array.constant_like(emit, 0, found)))


def _filled(emit: Builder, size: Size, type: TensorType) -> Value:
    """A tensor of i64 with the size everywhere."""
    if isinstance(size, int):
        return array.fill(emit, size, type)
    return emit(array.Broadcast(emit(array.Extent(size)), type.shape, ()))


def _ids_of(rows: Value) -> Value | None:
    """The ids whose one-hot rows a matrix has; None if it has others."""
    value = _without(rows, array.Reshape)
    match value.op:
        case array.Cast(source=Value(op=array.Compare(predicate="eq", lhs=lhs, rhs=rhs))):
            for one, other in ((lhs, rhs), (rhs, lhs)):
                ids = _repeated(one)
                if ids is not None and _counts_last(other) and _keeps_rows(rows, other):
                    return ids
        case _:
            pass
    return None


def _without(value: Value, kind: type[array.Reshape | array.Cast]) -> Value:
    return value.op.source if isinstance(value.op, kind) else value


def _keeps_rows(rows: Value, counted: Value) -> bool:
    """Whether a reshape in between has left the last axis as it was."""
    return tensor_type(rows).shape[-1] == tensor_type(counted).shape[-1]


def _counts_last(value: Value) -> bool:
    """Whether each element is the number of its place along the last axis."""
    axis = tensor_type(value).rank - 1
    return isinstance(value.op, array.Iota) and value.op.axis == axis


def _repeated(value: Value) -> Value | None:
    """The integers that a tensor repeats along its last axis, whatever their dtype."""
    wide = _without(value, array.Cast)
    if not isinstance(wide.op, array.Broadcast):
        return None
    ids = wide.op.source
    narrow = tensor_type(ids)
    whole = wide.op.axes == tuple(range(tensor_type(wide).rank - 1))
    if not whole or narrow.shape != tensor_type(wide).shape[:-1] or not narrow.dtype.is_integer:
        return None
    return ids
