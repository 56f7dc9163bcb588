"""Pooling: reducing windows that slide over a tensor, and the derivatives."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from dlc.dialects import numeric, scalar
from dlc.dialects.array.elementwise import (
    Compare,
    Select,
    constant_like,
    fill,
    tensor_type,
)
from dlc.dialects.array.index import Scatter
from dlc.dialects.array.pieces import Pad, Slice, is_negative, spread
from dlc.dialects.array.shape import Reshape
from dlc.dialects.decomposed import Decomposed
from dlc.dialects.interface import bounds_around
from dlc.errors import CallError
from dlc.ir.attributes import decode
from dlc.ir.bounded import never_negative
from dlc.ir.core import Array, Builder, Evaluation, Op, Value
from dlc.ir.define import attribute, op, operand
from dlc.ir.dims import Size, maximum
from dlc.ir.needs import Need
from dlc.ir.types import I64, DType, TensorType

__all__ = ["ReduceWindow", "SelectAndScatter", "WindowIndex", "Windowed"]

FUNCTIONS = {"max": scalar.Maximum, "min": scalar.Minimum, "sum": scalar.Add}


class Windowed(Op):
    """A window of `window` elements, `dilations` apart, that slides by `strides` along each axis.

    The padding is the number of elements before and after the tensor that a window may cover.
    """

    source: Value = operand()
    function: str = attribute(doc="max, min or, for reduce_window, sum")
    window: tuple[int, ...] = attribute()
    strides: tuple[int, ...] = attribute()
    padding: tuple[tuple[Size, Size], ...] = attribute(doc="(low, high) for each axis")
    dilations: tuple[int, ...] = attribute()

    @property
    def reach(self) -> tuple[int, ...]:
        """The distance from the first element of a window to the last, along each axis."""
        pairs = zip(self.window, self.dilations, strict=True)
        return tuple([(size - 1) * dilation for size, dilation in pairs])

    def places(self, functions: Sequence[str]) -> TensorType:
        """The type of the source with one element for each position of the window."""
        type = tensor_type(self.source)
        self._check(type, functions)
        shape: list[Size] = []
        for size, (low, high), reach, stride in zip(
            type.shape, self.padding, self.reach, self.strides, strict=True
        ):
            if reach == low == high == 0 and stride == 1:
                shape.append(size)
                continue
            need = _fitting(type, size, (low, high), reach)
            if reach and is_negative(need.size):  # one element fits an empty axis, at no position
                raise self.fail(need.told, code="D0312")
            shape.append(need.size // stride + 1)
        return type.with_shape(tuple(shape))

    def needs(self) -> Iterator[Need]:
        type = tensor_type(self.source)
        for size, padding, reach in zip(type.shape, self.padding, self.reach, strict=True):
            if reach:
                yield _fitting(type, size, padding, reach)

    def _check(self, type: TensorType, functions: Sequence[str]) -> None:
        if self.function not in functions:
            raise self.fail(f"{self.function!r} is not a function of a window; use {functions}")
        if type.dtype.kind not in FUNCTIONS[self.function].kinds:
            raise self.fail(
                f"a window {self.function} has no meaning for {type.dtype.name}", code="D0302"
            )
        lists = (self.window, self.strides, self.padding, self.dilations)
        if {*map(len, lists)} != {type.rank}:
            raise self.fail(
                f"a window on {type.text} says {type.rank} numbers of each kind", code="D0312"
            )
        if min((*self.window, *self.strides, *self.dilations), default=1) < 1:
            raise self.fail("sizes, strides and dilations of a window are at least 1", code="D0312")
        for (low, high), reach in zip(self.padding, self.reach, strict=True):
            if low == high == 0:
                continue
            if any(is_negative(number) for number in (low, high, reach - low, reach - high)):
                raise self.fail(
                    f"the padding {low}, {high} is not less than the window, which is {reach + 1} long",
                    code="D0312",
                )

    def windows(self, at: Evaluation, array: Array, outside: float) -> Array:
        """A view whose first axes are the positions of the window, the last ones its elements."""
        shape = at.shape(self.places(tuple(FUNCTIONS)).shape)
        if 0 in shape:
            return np.zeros((*shape, *self.window), array.dtype)
        pairs = [at.shape(pair) for pair in self.padding]
        padded = np.pad(array, pairs, constant_values=outside)
        reach = [distance + 1 for distance in self.reach]
        if any(size < needed for size, needed in zip(padded.shape, reach, strict=True)):
            raise CallError(
                f"a window over {reach} elements does not fit into {list(padded.shape)}",
                code="D0804",
                place=self.location.place,
            )
        every = np.lib.stride_tricks.sliding_window_view(padded, reach)
        return every[tuple(slice(None, None, step) for step in (*self.strides, *self.dilations))]

    def behind(self) -> tuple[int, ...]:
        """The axes of `windows` that index the elements of a window."""
        return tuple(range(len(self.window), 2 * len(self.window)))


def _fitting(type: TensorType, size: Size, padding: tuple[Size, Size], reach: int) -> Need:
    """The condition that a window fits: the elements left after its first position."""
    low, high = padding
    told = f"a window over {reach + 1} elements does not fit into an axis of {size} of {type.text}"
    padded = "" if low == high == 0 else f" padded by {low} and {high}"
    return Need(size + low + high - reach - 1, told + padded)


@op("array.reduce_window")
class ReduceWindow(Windowed):
    """The maximum, minimum or sum of each window; elements of the padding are left out.

    f16 and bf16 accumulate in f32 and round once. The derivative of a maximum or minimum goes to the
    element that `array.window_index` names.
    """

    def infer(self) -> TensorType:
        return self.places(("max", "min", "sum"))

    def identity(self, dtype: DType) -> float | int | bool:
        """The identity of the function."""
        match self.function:
            case "max":
                return numeric.lowest(dtype)
            case "min":
                return numeric.highest(dtype)
            case _:
                return 0

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        dtype = tensor_type(self.source).dtype
        combine = {"max": np.maximum, "min": np.minimum, "sum": np.add}[self.function]

        def reduced(array: Array) -> Array:
            windows = self.windows(at, array, self.identity(dtype))
            with np.errstate(all="ignore"):
                return np.asarray(combine.reduce(windows, axis=self.behind(), dtype=array.dtype))

        return numeric.in_single(reduced, dtype, inputs[0])

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        (dy,) = cotangents
        if self.function == "sum":
            return (self._spread_sum(emit, dy),)
        dx = SelectAndScatter(
            self.source,
            updates=dy,
            function=self.function,
            window=self.window,
            strides=self.strides,
            padding=self.padding,
            dilations=self.dilations,
        )
        return (emit(dx),)

    def _spread_sum(self, emit: Builder, dy: Value) -> Value:
        """The derivative of a sum: each element receives the sum over the windows that contain it."""
        interior = tuple([stride - 1 for stride in self.strides])
        low = tuple([reach - pair[0] for reach, pair in zip(self.reach, self.padding, strict=True)])
        high = tuple(
            [
                size + pair[0] - spread(places, between)
                for size, pair, places, between in zip(
                    tensor_type(self.source).shape,
                    self.padding,
                    tensor_type(dy).shape,
                    interior,
                    strict=True,
                )
            ]
        )
        zero = fill(emit, 0, tensor_type(dy).with_shape(()))
        apart = emit(Pad(dy, zero, low, high, interior))
        rank = len(self.window)
        return emit(
            ReduceWindow(apart, "sum", self.window, (1,) * rank, ((0, 0),) * rank, self.dilations)
        )


@op("array.window_index")
class WindowIndex(Windowed):
    """The row-major index in the source of the maximum or minimum of each window.

    The first NaN, or else the first of equal elements in the order of the window; -1 for a window that
    covers no element.
    """

    not_differentiable = "its result is an index"

    def infer(self) -> TensorType:
        return self.places(("max", "min")).with_dtype(I64)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        dtype = tensor_type(self.source).dtype
        array = decode(inputs[0], dtype)
        worst = numeric.lowest(dtype) if self.function == "max" else numeric.highest(dtype)
        values: numeric.Array = self.windows(at, array, worst)
        origin: numeric.Array = self.windows(at, np.arange(array.size).reshape(array.shape), -1)
        places = values.shape[: array.ndim]
        values, origin = (
            windows.reshape(*places, math.prod(self.window)) for windows in (values, origin)
        )
        # With a NaN the extreme is NaN, which equals nothing: then the NaNs are the candidates.
        best = (values.max if self.function == "max" else values.min)(-1, keepdims=True)
        candidate = (origin >= 0) & ((values == best) | (values != values))
        first = np.argmax(candidate, -1)[..., None]
        return np.take_along_axis(np.where(candidate, origin, -1), first, -1)[..., 0]


@op("array.select_and_scatter")
class SelectAndScatter(Decomposed, Windowed):
    """Zeros, with the update of each window added to the element that `array.window_index` names.

    The derivative of a window maximum or minimum.
    """

    updates: Value = operand()

    def infer(self) -> TensorType:
        wanted = self.places(("max", "min"))
        if self.updates.type is not wanted:
            raise self.fail(f"the updates are {self.updates.type}, the windows {wanted}")
        return tensor_type(self.source)

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        type = tensor_type(self.source)
        window = (self.function, self.window, self.strides, self.padding, self.dilations)
        index = emit(WindowIndex(self.source, *window))
        none = constant_like(emit, 0, index)
        exists = emit(Compare(index, none, "ge"))
        safe = emit(Select(exists, index, none))
        zero = constant_like(emit, 0, self.updates)
        updates = emit(Select(exists, self.updates, zero))
        # Windows of nothing but padding add 0 to the first element; where there may be none, one is spare.
        has_first = never_negative(type.size - 1, bounds_around(self))
        room = type.size if has_first else maximum(type.size, 1)
        flat = fill(emit, 0, type.with_shape((room,)))
        added = emit(Scatter(flat, updates, (safe,), (0,), "add"))
        if room is not type.size:
            added = emit(Slice(added, (0,), (type.size,), (1,)))
        return (emit(Reshape(added, type.shape)),)
