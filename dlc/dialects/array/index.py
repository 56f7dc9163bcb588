"""Gather and scatter: reading and writing elements of a tensor at computed indices.

A call with an index outside its axis fails; this includes negative indices, since counting from the end is
a separate computation. Several updates of the same element take effect in row-major order of the index
tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.dialects import numeric
from dlc.dialects.array.arithmetic import And, Minimum, Multiply, Not
from dlc.dialects.array.checks import DECIDED, check_places
from dlc.dialects.array.elementwise import (
    Cast,
    Compare,
    Select,
    constant_like,
    fill,
    show,
    tensor_type,
)
from dlc.dialects.array.reduce import Broadcast
from dlc.dialects.array.shape import Reshape, check_axes, iota
from dlc.ir.core import Array, Builder, Evaluation, Op, Value
from dlc.ir.define import attribute, op, operand, operands
from dlc.ir.dims import Shape
from dlc.ir.types import I64, U64, TensorType

__all__ = ["Gather", "Scatter", "put_along", "take_along", "wide_index"]


def gathered(
    op: Op, source: TensorType, indices: Sequence[Value], axes: tuple[int, ...]
) -> TensorType:
    """The type of a gather from a tensor by index tensors. Raises D0305, D0308."""
    check_axes(op, axes, source)
    first = indices[0].type if indices else None
    if (
        len(indices) != len(axes)
        or not isinstance(first, TensorType)
        or not first.dtype.is_integer
        or any(index.type is not first for index in indices)
    ):
        found = ", ".join(map(show, indices))
        raise op.fail(
            f"{op.name} at the axes {list(axes)} takes an index tensor for each, all of one "
            f"integer dtype and one shape; found ({found})",
            code="D0308",
        )
    rest = [size for axis, size in enumerate(source.shape) if axis not in axes]
    return source.with_shape((*first.shape, *rest))


def check_range(
    op: Op, indices: Sequence[Array], axes: Sequence[int], shape: Sequence[int]
) -> None:
    """Raise CallError for the first index that is outside its axis."""
    for axis, index in zip(axes, indices, strict=True):
        check_places(op, index, shape[axis])


def in_front(array: Array, axes: tuple[int, ...]) -> Array:
    """A view with these axes first, the others after them in order."""
    return array.transpose([*axes, *[axis for axis in range(array.ndim) if axis not in axes]])


@op("array.gather")
class Gather(Op):
    """The elements of the source at the indices of index tensors, one tensor for each of `axes`.

    With axes (0,): `y[i.., r..] = x[index[i..], r..]`. The result has the shape of the index tensors,
    then the other axes of the source in order.
    """

    source: Value = operand()
    indices: Sequence[Value] = operands(doc="tensors of one integer type")
    axes: tuple[int, ...] = attribute()
    decided: bool = attribute(default=False, doc=DECIDED)

    def infer(self) -> TensorType:
        return gathered(self, tensor_type(self.source), self.operands[1:], self.axes)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        source, *indices = inputs
        check_range(self, indices, self.axes, source.shape)
        return in_front(source, self.axes)[tuple([index.astype(np.int64) for index in indices])]

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        zero = constant_like(emit, 0, self.source)
        dx = emit(Scatter(zero, cotangents[0], self.indices, self.axes, "add"))
        return dx, *[None] * len(self.indices)


Places: TypeAlias = NDArray[np.int64]
MODES = ("set", "add", "multiply", "max", "min")
"""How a scatter combines an update with the element that it updates."""


@op("array.scatter")
class Scatter(Op):
    """The target with updates written to, or combined with, the elements at the indices of index tensors.

    The updates have the type of an `array.gather` at these indices. With the mode `set`, the last update
    of an element counts. `unique` promises that no index occurs twice.
    """

    target: Value = operand()
    updates: Value = operand()
    indices: Sequence[Value] = operands(doc="tensors of one integer type")
    axes: tuple[int, ...] = attribute()
    mode: str = attribute(default="set", doc="set, add, multiply, max or min")
    unique: bool = attribute(default=False)
    decided: bool = attribute(default=False, doc=DECIDED)

    def infer(self) -> TensorType:
        type = tensor_type(self.target)
        wanted = gathered(self, type, self.operands[2:], self.axes)
        if self.updates.type is not wanted:
            raise self.fail(
                f"the updates are {show(self.updates)}, the indexed places {wanted.text}",
                code="D0308",
            )
        if self.mode not in MODES:
            raise self.fail(f"{self.mode!r} is not a mode; use set, add, multiply, max or min")
        if type.dtype.kind == "bool" and self.mode in ("add", "multiply"):
            raise self.fail(f"a bool has no {self.mode}", code="D0302")
        return type

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        target, updates, *indices = inputs
        check_range(self, indices, self.axes, target.shape)
        places = tuple([index.astype(np.int64) for index in indices])

        def scattered(target: Array, updates: Array) -> Array:
            result = target.copy()
            in_order(self.mode, in_front(result, self.axes), places, updates)
            return result

        return numeric.in_single(scattered, tensor_type(self.target).dtype, target, updates)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        (dy,) = cotangents
        target, updates = GRADIENTS[self.mode](self, emit, dy)
        return target, updates, *[None] * len(self.indices)


COMBINE = {"add": np.add, "multiply": np.multiply, "max": np.maximum, "min": np.minimum}


def in_order(mode: str, view: Array, places: tuple[Places, ...], updates: Array) -> None:
    """Apply updates to the elements of a view in order, as `mode` states."""
    with np.errstate(all="ignore"):
        if mode == "set":
            _set_in_order(view, places, updates)
        else:
            COMBINE[mode].at(view, places, updates)


def _set_in_order(view: Array, places: tuple[Places, ...], updates: Array) -> None:
    """Write the last update of each element: NumPy does not specify which of several counts."""
    count = places[0].size
    if count == 0:
        return
    flat = np.ravel_multi_index([place.ravel() for place in places], view.shape[: len(places)])
    _, backwards = np.unique(flat[::-1], return_index=True)
    last = count - 1 - backwards
    rows = updates.reshape(count, *view.shape[len(places) :])
    view[tuple([place.ravel()[last] for place in places])] = rows[last]


def _again(scatter: Scatter, target: Value, updates: Value, mode: str) -> Scatter:
    return Scatter(target, updates, scatter.indices, scatter.axes, mode, scatter.unique)


def _read(scatter: Scatter, emit: Builder, source: Value) -> Value:
    return emit(Gather(source, scatter.indices, scatter.axes))


def _gradient_add(scatter: Scatter, emit: Builder, dy: Value) -> tuple[Value, Value]:
    return dy, _read(scatter, emit, dy)


def _gradient_set(scatter: Scatter, emit: Builder, dy: Value) -> tuple[Value, Value]:
    zero = constant_like(emit, 0, scatter.updates)
    dtarget = emit(_again(scatter, dy, zero, "set"))
    dupdates = _read(scatter, emit, dy)
    if not scatter.unique:
        wins = _extreme(scatter.indices, scatter.axes, emit, scatter.target, None, "max")
        # The gradient is chosen for indices of the indexed axes: broadcast it along the other axes.
        type = tensor_type(dupdates)
        mask = emit(Broadcast(wins, type.shape, tuple(range(tensor_type(wins).rank))))
        dupdates = emit(Select(mask, dupdates, zero))
    return dtarget, dupdates


def _gradient_multiply(scatter: Scatter, emit: Builder, dy: Value) -> tuple[Value, Value]:
    if not scatter.unique:
        raise scatter.fail(
            "no derivative of a scatter that multiplies places that may be named twice",
            code="D0405",
            help="if they are not, say unique=true",
        )
    dtarget = emit(_again(scatter, dy, scatter.updates, "multiply"))
    both = emit(Multiply(dy, scatter.target))
    return dtarget, _read(scatter, emit, both)


def _gradient_choice(scatter: Scatter, emit: Builder, dy: Value) -> tuple[Value, Value]:
    """The derivative goes to the chosen element: of equal ones, the target's, then the first update's."""
    zero = constant_like(emit, 0, dy)
    kept = emit(Compare(scatter.target, scatter.result, "eq"))
    dtarget = emit(Select(kept, dy, zero))
    left = _read(scatter, emit, emit(Select(kept, zero, dy)))
    replaced = emit(Not(_read(scatter, emit, kept)))
    equal = emit(Compare(scatter.updates, _read(scatter, emit, scatter.result), "eq"))
    chosen = emit(And(equal, replaced))
    if not scatter.unique:
        indices, axes = _all_places(scatter, emit)
        first = _extreme(indices, axes, emit, scatter.target, chosen, "min")
        chosen = emit(And(chosen, first))
    return dtarget, emit(Select(chosen, left, constant_like(emit, 0, left)))


GRADIENTS = {
    "add": _gradient_add,
    "set": _gradient_set,
    "multiply": _gradient_multiply,
    "max": _gradient_choice,
    "min": _gradient_choice,
}


def _all_places(scatter: Scatter, emit: Builder) -> tuple[tuple[Value, ...], tuple[int, ...]]:
    """Index tensors of the updates' shape for every axis of the target."""
    type, target = tensor_type(scatter.updates), tensor_type(scatter.target)
    front = tensor_type(scatter.indices[0])
    rest = [axis for axis in range(target.rank) if axis not in scatter.axes]
    indices: list[Value] = []
    for axis in range(target.rank):
        if axis in scatter.axes:
            index = scatter.indices[scatter.axes.index(axis)]
            indices.append(
                emit(Broadcast(wide_index(emit, index), type.shape, tuple(range(front.rank))))
            )
        else:
            indices.append(iota(emit, type, front.rank + rest.index(axis)))
    return tuple(indices), tuple(range(target.rank))


def wide_index(emit: Builder, index: Value) -> Value:
    """Indices in i64, which can index every axis.

    One of u64 that i64 does not hold becomes the largest i64, which is outside as well, not a negative one.
    """
    dtype = tensor_type(index).dtype
    if dtype is U64:
        index = emit(Minimum(index, constant_like(emit, numeric.highest(I64), index)))
    return index if dtype is I64 else emit(Cast(index, I64))


def _extreme(
    indices: Sequence[Value],
    axes: tuple[int, ...],
    emit: Builder,
    target: Value,
    among: Value | None,
    mode: str,
) -> Value:
    """A mask of the updates in `among` that are the last (`max`) or first (`min`) of their element."""
    type = tensor_type(indices[0]).with_dtype(I64)
    shape: Shape = tuple([tensor_type(target).shape[axis] for axis in axes])
    worst = numeric.lowest(I64) if mode == "max" else numeric.highest(I64)
    flat = iota(emit, type.with_shape((type.size,)), 0)
    order = emit(Reshape(flat, type.shape))
    if among is not None:
        order = emit(Select(among, order, constant_like(emit, worst, order)))
    every = tuple(range(len(axes)))
    start = fill(emit, worst, type.with_shape(shape))
    best = emit(Gather(emit(Scatter(start, order, indices, every, mode)), indices, every))
    return emit(Compare(best, order, "eq"))


def take_along(emit: Builder, source: Value, index: Value, axis: int) -> Value:
    """`y[.., i, ..] = x[.., index[.., i, ..], ..]`: a gather along one axis."""
    indices, axes = _along(emit, index, axis)
    return emit(Gather(source, indices, axes))


def put_along(
    emit: Builder,
    target: Value,
    updates: Value,
    index: Value,
    axis: int,
    mode: str,
    *,
    unique: bool,
) -> Value:
    """The target with updates scattered to `index` along one axis."""
    indices, axes = _along(emit, index, axis)
    return emit(Scatter(target, updates, indices, axes, mode, unique))


def _along(emit: Builder, index: Value, axis: int) -> tuple[tuple[Value, ...], tuple[int, ...]]:
    index = wide_index(emit, index)
    type = tensor_type(index)
    axes = tuple(range(type.rank))
    return tuple([index if other == axis else iota(emit, type, other) for other in axes]), axes
