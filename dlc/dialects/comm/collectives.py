"""Collectives: operations that the ranks along an axis of a mesh do together.

Every rank runs the same program on its own arrays (single program, multiple data), so each meets the same
collectives in the same order. A mesh has named axes; `mesh_axis` names the axis, `ranks` is its size.

Derivatives are those of the sum over all ranks of what each rank computes, the convention of JAX's
`shard_map`: the cotangent of a sum over ranks is the sum of the cotangents, and `all_gather` and
`reduce_scatter` are each other's transposes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from dlc.dialects import array, numeric, scalar
from dlc.dialects.kernel.generic import Access, Kernel, array_type
from dlc.ir.core import Array, Builder, Evaluation, Value
from dlc.ir.define import attribute, op, operands
from dlc.ir.types import I64, TensorType

__all__ = [
    "AllGather", "AllReduce", "AllToAll", "Collective", "CollectiveBroadcast", "Permute", "Rank",
    "ReduceScatter",
]  # fmt: skip

COMBINERS = {"sum": scalar.Add, "max": scalar.Maximum, "min": scalar.Minimum}
"""What an `all_reduce` may do with the arrays of two ranks."""


@op("comm.rank")
class Rank(Kernel):
    """This rank's coordinate along an axis of the mesh, an i64."""

    inputs: Sequence[Value] = operands(doc="none")
    outs: Sequence[Value] = operands()
    mesh_axis: str = attribute()
    ranks: int = attribute(doc="the size of the axis")

    def result_types(self) -> tuple[TensorType, ...]:
        return (TensorType(I64),)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return np.asarray(at.ranks_of(self).coordinate(self.mesh_axis), np.int64)


class Collective(Kernel):
    """One array of each rank becomes one array of each rank."""

    inputs: Sequence[Value] = operands(doc="one array")
    outs: Sequence[Value] = operands()
    mesh_axis: str = attribute()
    ranks: int = attribute(doc="the size of the axis")

    writes = Access.CONTIGUOUS

    def result_types(self) -> tuple[TensorType, ...]:
        if len(self.inputs) != 1:
            raise self.fail(f"{self.name} takes one array, found {len(self.inputs)}")
        if self.ranks < 1:
            raise self.fail(f"a mesh has at least one rank along {self.mesh_axis}")
        return (self.result_type(array_type(self.inputs[0])),)

    def result_type(self, type: TensorType) -> TensorType:
        """The type of the result for the type of the operand."""
        return type

    def _leads(self, type: TensorType) -> TensorType:
        """A part of an array whose first axis has an entry for each rank. Raises D0301."""
        if not type.rank or type.shape[0] != self.ranks:
            raise self.fail(
                f"the first axis of what {self.name} takes has an entry for each of "
                f"{self.ranks} ranks, found {type.text}"
            )
        return type.with_shape(type.shape[1:])

    def _exchanged(self, at: Evaluation, array: Array) -> list[Array]:
        return at.ranks_of(self).exchange(self.mesh_axis, array)

    def _coordinate(self, at: Evaluation) -> int:
        return at.ranks_of(self).coordinate(self.mesh_axis)


@op("comm.all_reduce")
class AllReduce(Collective):
    """The arrays of all ranks combined element by element, in the order of the ranks; each has the result.

    f16 and bf16 are added in f32 and rounded once.
    """

    combine: str = attribute(default="sum", doc="sum, max or min")

    def result_type(self, type: TensorType) -> TensorType:
        if self.combine not in COMBINERS:
            raise self.fail(f"{self.name} knows sum, max and min, found {self.combine!r}")
        return type

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return combined(self, self._exchanged(at, inputs[0]), self.combine)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        if self.combine != "sum":
            raise self.fail(f"{self.name} of a {self.combine} has no derivative", code="D0421")
        return (emit(AllReduce(cotangents, (), self.mesh_axis, self.ranks)),)


@op("comm.all_gather")
class AllGather(Collective):
    """The arrays of all ranks, one after the other along a new first axis."""

    def result_type(self, type: TensorType) -> TensorType:
        return type.with_shape((self.ranks, *type.shape))

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return np.stack(self._exchanged(at, inputs[0]))

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        return (emit(ReduceScatter(cotangents, (), self.mesh_axis, self.ranks)),)


@op("comm.reduce_scatter")
class ReduceScatter(Collective):
    """Entry r of the sum over ranks of arrays with one entry for each rank, on rank r."""

    def result_type(self, type: TensorType) -> TensorType:
        return self._leads(type)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        own = self._coordinate(at)
        return combined(self, [array[own] for array in self._exchanged(at, inputs[0])], "sum")

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        return (emit(AllGather(cotangents, (), self.mesh_axis, self.ranks)),)


@op("comm.all_to_all")
class AllToAll(Collective):
    """Entry s of rank r becomes entry r of rank s; the first axis has an entry for each rank."""

    def result_type(self, type: TensorType) -> TensorType:
        self._leads(type)
        return type

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        own = self._coordinate(at)
        return np.stack([array[own] for array in self._exchanged(at, inputs[0])])

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        return (emit(AllToAll(cotangents, (), self.mesh_axis, self.ranks)),)


@op("comm.broadcast")
class CollectiveBroadcast(Collective):
    """The array of the rank `root`, on every rank."""

    root: int = attribute(default=0)

    def result_type(self, type: TensorType) -> TensorType:
        if not 0 <= self.root < self.ranks:
            raise self.fail(f"there is no rank {self.root} among {self.ranks}")
        return type

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return self._exchanged(at, inputs[0])[self.root]

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        total = emit(AllReduce(cotangents, (), self.mesh_axis, self.ranks))
        rank = emit(Rank([], [], self.mesh_axis, self.ranks))
        is_root = emit(array.Compare(rank, array.constant_like(emit, self.root, rank), "eq"))
        condition = emit(array.Broadcast(is_root, array_type(total).shape, ()))
        return (emit(array.Select(condition, total, array.constant_like(emit, 0, total))),)


@op("comm.permute")
class Permute(Collective):
    """The array of the rank `shift` places before this one, round the axis: each sends and receives one."""

    shift: int = attribute(default=1)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return self._exchanged(at, inputs[0])[(self._coordinate(at) - self.shift) % self.ranks]

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        return (emit(Permute(cotangents, (), self.mesh_axis, self.ranks, -self.shift)),)


def combined(op: Collective, arrays: Sequence[Array], how: str) -> Array:
    """Arrays of one type combined element by element, the first first."""
    function = COMBINERS[how].function

    def fold(*wide: Array) -> Array:
        return reduce(function, wide)

    with np.errstate(all="ignore"):
        return numeric.in_single(fold, array_type(op.inputs[0]).dtype, *arrays)
