"""From one placement to another: the operations that bring a value there."""

from __future__ import annotations

from dlc.dialects import array
from dlc.dialects.array.elementwise import is_number, tensor_type
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.comm import AllGather, AllReduce, AllToAll, Rank, ReduceScatter
from dlc.dialects.nn.rows import in_dtype, widened
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Size, floor_divide
from dlc.ir.types import I64, TensorType
from dlc.passes.sharding.placement import (
    PARTIAL,
    Placement,
    Shard,
    Whole,
    local_type,
)


def reshard(
    emit: Builder, value: Value, whole: TensorType, have: Placement, want: Placement, mesh: Axis
) -> Value:
    """What a rank has of a value of type `whole` in the placement wanted, from what it has now."""
    source = value.op
    if isinstance(source, array.Fill) and have is not PARTIAL:
        # Equal elements need not be sent; zeros are their own partial sums.
        assert want is not PARTIAL or is_number(value, 0)
        return emit(array.Fill(source.value, local_type(whole, want, mesh.ranks)))
    match have, want:
        case Shard(one), Shard(other):
            return mesh.exchanged(emit, value, one, other)
        case Shard(axis), Whole.REPLICATED:
            return mesh.gathered(emit, value, axis)
        case Whole.PARTIAL, Whole.REPLICATED:
            return mesh.summed(emit, value)
        case Whole.PARTIAL, Shard(axis):
            return mesh.scattered(emit, value, axis)
        case Whole.REPLICATED, Shard(axis):
            return mesh.part(emit, value, axis)
        case _:
            raise AssertionError(f"{whole.text} cannot go from {have} to {want}")


def collective_of(have: Placement, want: Placement) -> str | None:
    """The name of the collective that brings a value from one placement to another; None without one."""
    match have, want:
        case Shard(), Shard():
            return "all_to_all"
        case Shard(), _:
            return "all_gather"
        case Whole.PARTIAL, Shard():
            return "reduce_scatter"
        case Whole.PARTIAL, _:
            return "all_reduce"
        case _:
            return None


class Axis:
    """An axis of the mesh, and the operations of its ranks."""

    def __init__(self, name: str, ranks: int) -> None:
        self.name, self.ranks = name, ranks

    def summed(self, emit: Builder, value: Value) -> Value:
        """The sum over ranks; in f32, rounded once, for 16 bits, in which MPI adds nothing."""
        total = emit(AllReduce([widened(emit, value)], [], self.name, self.ranks))
        return in_dtype(emit, total, tensor_type(value).dtype)

    def gathered(self, emit: Builder, value: Value, axis: int) -> Value:
        """The whole of a value that is split along an axis."""
        parts = emit(AllGather([value], [], self.name, self.ranks))
        return _merged(emit, parts, axis)

    def scattered(self, emit: Builder, value: Value, axis: int) -> Value:
        """This rank's part along an axis of the sum over ranks."""
        parts = _divided(emit, widened(emit, value), axis, self.ranks)
        own = emit(ReduceScatter([parts], [], self.name, self.ranks))
        return in_dtype(emit, own, tensor_type(value).dtype)

    def exchanged(self, emit: Builder, value: Value, one: int, other: int) -> Value:
        """The same value, split along another axis."""
        parts = _divided(emit, value, other, self.ranks)
        return _merged(emit, emit(AllToAll([parts], [], self.name, self.ranks)), one)

    def part(self, emit: Builder, value: Value, axis: int) -> Value:
        """This rank's part along an axis of a value that it has whole."""
        shape = list(tensor_type(value).shape)
        size = shape[axis] = floor_divide(shape[axis], self.ranks)
        zero = array.fill(emit, 0, TensorType(I64))
        first = emit(array.Multiply(emit(Rank([], [], self.name, self.ranks)), number(emit, size)))
        starts = [first if k == axis else zero for k in range(len(shape))]
        return emit(array.DynamicSlice(value, starts, tuple(shape)))


def number(emit: Builder, size: Size) -> Value:
    """A size as an i64."""
    if isinstance(size, int):
        return array.fill(emit, size, TensorType(I64))
    return emit(array.Extent(size, I64))


def _divided(emit: Builder, value: Value, axis: int, ranks: int) -> Value:
    """The parts along an axis, one after the other along a new first axis."""
    shape = tensor_type(value).shape
    parts = (*shape[:axis], ranks, floor_divide(shape[axis], ranks), *shape[axis + 1 :])
    split = reshape(emit, value, parts)
    others = [k for k in range(len(parts)) if k != axis]
    return transpose(emit, split, (axis, *others))


def _merged(emit: Builder, parts: Value, axis: int) -> Value:
    """The inverse of `_divided`."""
    shape = tensor_type(parts).shape
    order = (*range(1, axis + 1), 0, *range(axis + 1, len(shape)))
    together = transpose(emit, parts, order)
    whole = (*shape[1 : axis + 1], shape[0] * shape[axis + 1], *shape[axis + 2 :])
    return reshape(emit, together, whole)
