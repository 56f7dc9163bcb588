"""Ordered computations as kernels: running totals, sorting, scattered updates, places."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array, kernel
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.formulas import generic
from dlc.dialects.interface import bounds_around
from dlc.ir.bounded import never_negative
from dlc.ir.core import Builder, Value
from dlc.ir.types import BOOL, I32, wide
from dlc.lowering.graph_to_kernel.arrays import cast_all, lowers
from dlc.lowering.graph_to_kernel.pieces import take_slice


@lowers(array.Cumulative)
def _cumulative(op: array.Cumulative, emit: Builder) -> Sequence[Value]:
    dtype = tensor_type(op.source).dtype
    combine = op.scalar.name.removeprefix("scalar.")
    source = cast_all(emit, op.source, wide(dtype))
    made = kernel.PrefixScan((source,), (), combine, op.axis, op.reverse, op.exclusive)
    return (cast_all(emit, emit(made), dtype),)


@lowers(array.Sort)
def _sort(op: array.Sort, emit: Builder) -> Sequence[Value]:
    count = tensor_type(op.keys).shape[op.axis]
    return emit.all(kernel.Sort(op.operands, (), op.axis, count, op.descending))


@lowers(array.TopK)
def _top_k(op: array.TopK, emit: Builder) -> Sequence[Value]:
    shape, bounds = tensor_type(op.source).shape, bounds_around(op)
    extent = shape[op.axis]
    places = generic(emit, (), shape, lambda at, _: at[op.axis].cast(I32))
    pair = (op.source, places)
    if never_negative(extent - op.k, bounds):
        return emit.all(kernel.Sort(pair, (), op.axis, op.k, op.largest))
    # A call where there are fewer than k fails when they are taken.
    ordered = emit.all(kernel.Sort(pair, (), op.axis, extent, op.largest))
    zeros, ones = (0,) * len(shape), (1,) * len(shape)
    limits = (*shape[: op.axis], op.k, *shape[op.axis + 1 :])
    return [take_slice(emit, each, zeros, limits, ones, bounds) for each in ordered]


@lowers(array.Scatter)
def _scatter(op: array.Scatter, emit: Builder) -> Sequence[Value]:
    dtype = tensor_type(op.target).dtype
    # 16-bit floats meet in f32 and are rounded once; those that are only put are not touched.
    meeting = dtype if op.mode == "set" else wide(dtype)
    target, updates = (cast_all(emit, value, meeting) for value in (op.target, op.updates))
    made = kernel.Scatter((target, updates, *op.indices), (), op.axes, op.mode, op.decided)
    return (cast_all(emit, emit(made), dtype),)


@lowers(array.NonZero)
def _nonzero(op: array.NonZero, emit: Builder) -> Sequence[Value]:
    chosen = cast_all(emit, op.source, BOOL)
    return emit.all(kernel.NonZero((chosen,), (), op.dim, op.limit))
