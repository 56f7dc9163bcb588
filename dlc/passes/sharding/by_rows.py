"""Tables whose rows are split: each rank reads, or adds to, the rows that it has.

A rank does not have most of the rows that indices ask for. It reads zeros for these, so that what the
ranks read adds up to what is asked for; and it adds zeros to a row of its own, which changes nothing. An
index that no rank has a row for stays as it is, and fails on all of them. (Compare the embedding of Shoeybi
et al., "Megatron-LM", 2019.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlc.dialects import array
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.comm import Rank
from dlc.ir.core import Builder, Op, Value
from dlc.ir.dims import Size, floor_divide
from dlc.ir.types import I64, TensorType
from dlc.passes.sharding.placement import PARTIAL, REPLICATED, Shard
from dlc.passes.sharding.reshard import Axis, number
from dlc.passes.sharding.rule import Strategy


def row_strategies(op: Op) -> Iterator[Strategy]:
    """The ways to compute an operation from a table whose rows are split."""
    match op:
        case array.Gather(axes=(axis,)):
            yield Strategy((Shard(axis), REPLICATED), (PARTIAL,), False)
        case array.Scatter(axes=(axis,), mode="add"):
            yield Strategy((Shard(axis), REPLICATED, REPLICATED), (Shard(axis),), False)
        case _:
            return


def made_by_rows(
    emit: Builder, op: Op, operands: Sequence[Value], strategy: Strategy, mesh: Axis
) -> Op | None:
    """What a rank does with the rows that it has; None where rows are not split."""
    if strategy not in row_strategies(op):
        return None
    match op:
        case array.Gather(axes=(axis,)):
            index, inside = _local(emit, operands[1], tensor_type(op.source), axis, mesh)
            rows = emit(array.Gather(operands[0], (index,), op.axes))
            return array.Select(*_masked(emit, inside, rows))
        case array.Scatter(axes=(axis,)):
            target, updates, indices = operands
            index, inside = _local(emit, indices, tensor_type(op.target), axis, mesh)
            own = emit(array.Select(*_masked(emit, inside, updates)))
            return array.Scatter(target, own, (index,), op.axes, op.mode)
        case _:
            raise AssertionError(op)


def _local(
    emit: Builder, indices: Value, table: TensorType, axis: int, mesh: Axis
) -> tuple[Value, Value]:
    """The indices among the rows of this rank, 0 for those of others; and whether each is of this rank."""
    wide = emit(array.Cast(indices, I64))
    whole = table.shape[axis]
    part = floor_divide(whole, mesh.ranks)
    rank = emit(Rank([], [], mesh.name, mesh.ranks))
    begin = emit(array.Multiply(rank, number(emit, part)))
    here = emit(array.Subtract(wide, _like(emit, begin, wide)))
    inside, anywhere = _within(emit, here, part), _within(emit, wide, whole)
    zero = array.constant_like(emit, 0, wide)
    other = emit(array.Select(anywhere, zero, wide))
    return emit(array.Select(inside, here, other)), inside


def _within(emit: Builder, value: Value, size: Size) -> Value:
    """Whether integers are from 0 on and below a size."""
    low = emit(array.Compare(value, array.constant_like(emit, 0, value), "ge"))
    high = emit(array.Compare(value, _like(emit, number(emit, size), value), "lt"))
    return emit(array.And(low, high))


def _like(emit: Builder, scalar: Value, value: Value) -> Value:
    shape = tensor_type(value).shape
    return emit(array.Broadcast(scalar, shape, ())) if shape else scalar


def _masked(emit: Builder, inside: Value, rows: Value) -> tuple[Value, Value, Value]:
    """The operands of the choice of rows of this rank, and of zeros."""
    shape, rank = tensor_type(rows).shape, tensor_type(inside).rank
    mask = emit(array.Broadcast(inside, shape, tuple(range(rank)))) if len(shape) > rank else inside
    return mask, rows, array.constant_like(emit, 0, rows)
