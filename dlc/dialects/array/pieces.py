"""Slices, padding, concatenation, and dynamic slices.

Slices and pads are each other's derivatives. Positions that are known at compile time are attributes and
may be symbolic sizes; computed positions are operands, and a call with one outside the tensor fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from dlc.dialects.array.checks import DECIDED, check_places
from dlc.dialects.array.elementwise import (
    Select,
    constant_like,
    fill,
    folded,
    show,
    tensor_type,
)
from dlc.dialects.array.reduce import ReduceSum
from dlc.dialects.array.shape import check_axis
from dlc.errors import CallError
from dlc.ir.attributes import Dense
from dlc.ir.core import Array, Builder, Evaluation, Op, Value
from dlc.ir.define import attribute, op, operand, operands
from dlc.ir.dims import Dim, Shape, Size, maximum
from dlc.ir.intervals import interval
from dlc.ir.needs import Need
from dlc.ir.types import BOOL, I64, TensorType
from dlc.ir.value_map import Slice as Part
from dlc.runtime.abi import Status
from dlc.runtime.calling.status import failure

__all__ = ["Concatenate", "DynamicSlice", "DynamicUpdateSlice", "Pad", "Slice", "slice_axis"]


def is_negative(size: Size) -> bool:
    """Whether a size is below 0 whatever the dims are."""
    return size < 0 if isinstance(size, int) else _is_always_negative(size)


@lru_cache(maxsize=4096)
def _is_always_negative(size: Dim) -> bool:
    highest = interval(size, {})[1]
    return highest is not None and highest < 0


def spread(extent: Size, interior: int) -> Size:
    """The length of `extent` elements with `interior` others between each two neighbours."""
    return extent if interior == 0 else extent + maximum(extent - 1, 0) * interior


@op("array.slice")
class Slice(Op):
    """Every `steps`-th element from `starts` up to, not including, `limits`, along each axis.

    That is `(limit - start + step - 1) // step` elements, at least 0. Steps are positive; a slice with a
    negative step is a slice and a `reverse`.
    """

    source: Value = operand()
    starts: Shape = attribute()
    limits: Shape = attribute()
    steps: tuple[int, ...] = attribute()

    def infer(self) -> TensorType:
        type = tensor_type(self.source)
        starts, limits, steps = self.starts, self.limits, self.steps
        if not len(starts) == len(limits) == len(steps) == len(type.shape):
            raise self.fail(f"a slice of {type.text} needs {type.rank} starts, limits and steps")
        shape: list[Size] = []
        for size, start, limit, step in zip(type.shape, starts, limits, steps, strict=True):
            if start == 0 and step == 1 and limit is size:
                shape.append(size)
                continue
            if step == 1:
                extent = limit - start
            elif step > 1:
                extent = (limit - start + (step - 1)) // step
            else:
                raise self.fail(f"the step of a slice is positive, found {step}", code="D0306")
            if is_negative(start) or is_negative(extent) or is_negative(size - limit):
                raise self.fail(
                    f"cannot take {start} to {limit} of an axis of size {size} of {type.text}",
                    code="D0306",
                )
            shape.append(extent)
        return type.with_shape(tuple(shape))

    def needs(self) -> Iterator[Need]:
        for size, start, limit in zip(
            tensor_type(self.source).shape, self.starts, self.limits, strict=True
        ):
            if start == 0 and limit is size:
                continue
            if limit - start == 1:
                told = f"the index {start} is out of range for an axis of size {size}"
            else:
                told = f"the slice {start}:{limit} leaves an axis of size {size}"
            yield Need(start, told, "D0807")
            yield Need(size - limit, told, "D0807")

    def fold(self) -> Value | Dense | None:
        return self.source if self.result.type is self.source.type else folded(self)

    def relation(self) -> Part | None:
        """What the source is to the result; None where it leaves out elements in between."""
        ones = all(step == 1 for step in self.steps)
        return Part(self.starts, tensor_type(self.result).shape) if ones else None

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        index: list[slice] = []
        for size, start, limit, step in zip(
            inputs[0].shape, at.shape(self.starts), at.shape(self.limits), self.steps, strict=True
        ):
            if not 0 <= start <= size or limit > size:
                inside = 0 <= start < size
                first = start - (start - size) // step * step if inside else start
                raise failure(Status.INDEX, first, size, self.location.own.place)
            if not start - step < limit:
                raise CallError(
                    f"cannot take {start} to {limit} of an axis of size {size}",
                    code="D0807",
                    place=self.location.place,
                )
            index.append(slice(start, max(start, limit), step))
        return inputs[0][tuple(index)]

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        (dy,) = cotangents
        interior = tuple([step - 1 for step in self.steps])
        sizes, taken = tensor_type(self.source).shape, tensor_type(dy).shape
        high = tuple(
            [
                size - start - spread(extent, between)
                for size, start, extent, between in zip(
                    sizes, self.starts, taken, interior, strict=True
                )
            ]
        )
        zero = fill(emit, 0, tensor_type(dy).with_shape(()))
        return (emit(Pad(dy, zero, self.starts, high, interior)),)


def slice_axis(emit: Builder, source: Value, axis: int, start: Size, limit: Size) -> Value:
    """The part of a tensor from `start` to `limit` along one axis."""
    shape = tensor_type(source).shape
    starts, limits = [0] * len(shape), list(shape)
    return emit(
        Slice(
            source,
            (*starts[:axis], start, *starts[axis + 1 :]),
            (*limits[:axis], limit, *limits[axis + 1 :]),
            (1,) * len(shape),
        )
    )


@op("array.pad")
class Pad(Op):
    """The source padded with the scalar `value` along each axis.

    `low` copies stand before the elements, `high` after them, and `interior` between each two.
    """

    source: Value = operand()
    value: Value = operand()
    low: Shape = attribute()
    high: Shape = attribute()
    interior: tuple[int, ...] = attribute()

    def infer(self) -> TensorType:
        type = tensor_type(self.source)
        low, high, interior = self.low, self.high, self.interior
        if not len(low) == len(high) == len(interior) == len(type.shape):
            raise self.fail(f"a pad of {type.text} needs {type.rank} of low, high and interior")
        if self.value.type is not type.with_shape(()):
            raise self.fail(
                f"{type.text} is padded with one {type.dtype.name}, found {show(self.value)}"
            )
        shape: list[Size] = []
        for size, before, after, between in zip(type.shape, low, high, interior, strict=True):
            if is_negative(before) or is_negative(after) or between < 0:
                raise self.fail(
                    f"cannot pad {type.text} by {before}, {after} and {between} elements",
                    code="D0306",
                    help="take elements away with a slice",
                )
            shape.append(before + spread(size, between) + after)
        return type.with_shape(tuple(shape))

    def needs(self) -> Iterator[Need]:
        for count in (*self.low, *self.high):
            yield Need(count, f"an axis is padded by {count} elements, which is {{n}}", "D0807")

    def fold(self) -> Value | Dense | None:
        return self.source if self.result.type is self.source.type else folded(self)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        source, value = inputs
        low, high = at.shape(self.low), at.shape(self.high)
        if min((*low, *high), default=0) < 0:
            raise CallError(
                f"cannot pad by {list(low)} and {list(high)} elements",
                code="D0807",
                place=self.location.place,
            )
        shape = [
            before + size + max(size - 1, 0) * between + after
            for size, before, between, after in zip(
                source.shape, low, self.interior, high, strict=True
            )
        ]
        padded = np.full(shape, value)
        padded[
            tuple(
                slice(before, length - after, between + 1)
                for before, length, after, between in zip(
                    low, shape, high, self.interior, strict=True
                )
            )
        ] = source
        return padded

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        (dy,) = cotangents
        steps = tuple([between + 1 for between in self.interior])
        limits = tuple(
            [
                before + (size - 1) * step + 1
                for before, size, step in zip(
                    self.low, tensor_type(self.source).shape, steps, strict=True
                )
            ]
        )
        dx = emit(Slice(dy, self.low, limits, steps))
        inside = fill(emit, True, tensor_type(self.source).with_dtype(BOOL))
        outside = fill(emit, False, TensorType(BOOL))
        mask = emit(Pad(inside, outside, self.low, self.high, self.interior))
        zero = constant_like(emit, 0, dy)
        dvalue = emit(ReduceSum(emit(Select(mask, zero, dy)), tuple(range(len(steps)))))
        return dx, dvalue


@op("array.concatenate")
class Concatenate(Op):
    """The sources one after the other along an axis; all other sizes are equal."""

    sources: Sequence[Value] = operands()
    axis: int = attribute()

    def infer(self) -> TensorType:
        sources, axis = self.operands, self.axis
        if not sources:
            raise self.fail("nothing to concatenate", code="D0307")
        first = tensor_type(sources[0])
        check_axis(self, axis, first)
        shape = first.shape
        before, after = shape[:axis], shape[axis + 1 :]
        total: Size = 0
        for source in sources:
            match source.type:
                case TensorType(dtype, other) if (
                    dtype is first.dtype
                    and len(other) == len(shape)
                    and other[:axis] == before
                    and other[axis + 1 :] == after
                ):
                    total = total + other[axis]
                case _:
                    raise self.fail(
                        f"cannot concatenate {first.text} and {show(source)} along axis {axis}; "
                        "the dtypes and all other sizes must agree",
                        code="D0307",
                    )
        return first.with_shape((*before, total, *after))

    def fold(self) -> Value | Dense | None:
        return self.operands[0] if len(self.operands) == 1 else folded(self)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return np.concatenate(inputs, self.axis)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        (dy,) = cotangents
        parts: list[Value] = []
        start: Size = 0
        for source in self.operands:
            limit = start + tensor_type(source).shape[self.axis]
            parts.append(slice_axis(emit, dy, self.axis, start, limit))
            start = limit
        return tuple(parts)


def check_starts(op: Op, starts: Sequence[Value], type: TensorType) -> None:
    """Raise D0309 unless there is one i64 start for each axis."""
    wanted = TensorType(I64)
    if len(starts) != type.rank or any(start.type is not wanted for start in starts):
        found = ", ".join(map(show, starts))
        raise op.fail(
            f"{op.name} of {type.text} takes {type.rank} starts, each an i64; found ({found})",
            code="D0309",
        )


def placed(
    op: Op, starts: Sequence[Array], sizes: Sequence[int], whole: Sequence[int]
) -> tuple[slice, ...]:
    """The NumPy index of a slice of a tensor. Raises CallError if it is not inside the tensor."""
    index: list[slice] = []
    for start, size, extent in zip(starts, sizes, whole, strict=True):
        check_places(op, start, extent, size)
        first = int(start)
        index.append(slice(first, first + size))
    return tuple(index)


@op("array.dynamic_slice")
class DynamicSlice(Op):
    """The slice of the source of the given sizes at computed starts, one for each axis.

    A call whose slice is not inside the source fails.
    """

    source: Value = operand()
    starts: Sequence[Value] = operands(doc="i64 scalars")
    sizes: Shape = attribute()
    decided: bool = attribute(default=False, doc=DECIDED)

    def infer(self) -> TensorType:
        type = tensor_type(self.source)
        check_starts(self, self.starts, type)
        sizes = self.sizes
        if len(sizes) != type.rank or any(
            is_negative(whole - part) for whole, part in zip(type.shape, sizes, strict=True)
        ):
            raise self.fail(
                f"cannot take a part of shape {type.with_shape(sizes).text} from {type.text}",
                code="D0306",
            )
        return type.with_shape(sizes)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        source, *starts = inputs
        return source[placed(self, starts, at.shape(self.sizes), source.shape)]

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        zero = constant_like(emit, 0, self.source)
        dx = emit(DynamicUpdateSlice(zero, cotangents[0], self.starts))
        return dx, *[None] * len(self.starts)


@op("array.dynamic_update_slice")
class DynamicUpdateSlice(Op):
    """The target with the slice at computed starts, one for each axis, replaced by `update`.

    A call whose slice is not inside the target fails.
    """

    target: Value = operand()
    update: Value = operand()
    starts: Sequence[Value] = operands(doc="i64 scalars")
    decided: bool = attribute(default=False, doc=DECIDED)

    def infer(self) -> TensorType:
        type, part = tensor_type(self.target), tensor_type(self.update)
        check_starts(self, self.starts, type)
        if (part.dtype, part.rank) != (type.dtype, type.rank) or any(
            is_negative(whole - size) for whole, size in zip(type.shape, part.shape, strict=True)
        ):
            raise self.fail(f"cannot put {part.text} into {type.text}", code="D0306")
        return type

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        target, update, *starts = inputs
        result = target.copy()
        result[placed(self, starts, update.shape, target.shape)] = update
        return result

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        (dy,) = cotangents
        zero = constant_like(emit, 0, self.update)
        dtarget = emit(DynamicUpdateSlice(dy, zero, self.starts))
        dupdate = emit(DynamicSlice(dy, self.starts, tensor_type(self.update).shape))
        return dtarget, dupdate, *[None] * len(self.starts)
