"""Sorting along an axis, and the k largest or smallest elements.

The order is numeric, with NaN above all numbers and -0 equal to 0. Sorting is stable: elements with equal
keys keep their order, also in descending order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dlc.dialects.array.elementwise import constant_like, show, tensor_type
from dlc.dialects.array.index import put_along
from dlc.dialects.array.pieces import is_negative
from dlc.dialects.array.shape import check_axis, check_numbered, iota, numbered
from dlc.ir.attributes import decode
from dlc.ir.core import Array, Builder, Evaluation, Op, Value
from dlc.ir.define import attribute, op, operand, operands
from dlc.ir.dims import Size
from dlc.ir.needs import Need
from dlc.ir.types import I32, DType, TensorType
from dlc.runtime.abi import Status
from dlc.runtime.calling.status import failure

__all__ = ["Sort", "TopK"]


LONGEST = (1 << 32) - 1
"""The most elements of a row that is sorted: a place in it is a part of a 64-bit word."""


def sorting(array: Array, dtype: DType, axis: int, *, descending: bool) -> NDArray[np.int64]:
    """The indices that sort an array stably along an axis, NaN as the largest."""
    values = decode(array, dtype)
    if not descending:
        return np.argsort(values, axis, kind="stable")
    # Reversing both the input and the result keeps the order of equal elements.
    backwards = np.argsort(np.flip(values, axis), axis, kind="stable")
    return np.flip(array.shape[axis] - 1 - backwards, axis)


@op("array.sort")
class Sort(Op):
    """The keys in ascending (or `descending`) order along the axis, and all values in the same order."""

    keys: Value = operand()
    values: Sequence[Value] = operands(doc="tensors of the shape of the keys")
    axis: int = attribute()
    descending: bool = attribute(default=False)

    def infer(self) -> tuple[TensorType, ...]:
        keys = tensor_type(self.keys)
        check_axis(self, self.axis, keys)
        for value in self.values:
            if tensor_type(value).shape != keys.shape:
                raise self.fail(f"cannot bring {show(value)} into the order of {keys.text}")
        return tuple([tensor_type(value) for value in self.operands])

    def needs(self) -> Iterator[Need]:
        type = tensor_type(self.keys)
        told = f"axis {self.axis} of {type.text} is too long to be sorted: the most is {LONGEST}"
        yield Need(LONGEST - type.shape[self.axis], told)

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        dtype = tensor_type(self.keys).dtype
        order = sorting(inputs[0], dtype, self.axis, descending=self.descending)
        return tuple([np.take_along_axis(array, order, self.axis) for array in inputs])

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        places = iota(emit, tensor_type(self.keys), self.axis)
        again = emit.all(Sort(self.keys, (places,), self.axis, self.descending))
        received: list[Value | None] = []
        for source, dy in zip(self.operands, cotangents, strict=True):
            if not tensor_type(source).dtype.is_float:
                received.append(None)
                continue
            zero = constant_like(emit, 0, source)
            received.append(put_along(emit, zero, dy, again[1], self.axis, "set", unique=True))
        return tuple(received)


@op("array.top_k")
class TopK(Op):
    """The k largest (or smallest) elements along the axis, best first, and their indices as i32.

    Equal elements keep their order.
    """

    source: Value = operand()
    axis: int = attribute()
    k: Size = attribute()
    largest: bool = attribute(default=True)

    def infer(self) -> tuple[TensorType, ...]:
        type = tensor_type(self.source)
        axis, k = self.axis, self.k
        check_axis(self, axis, type)
        if is_negative(k) or is_negative(type.shape[axis] - k):
            raise self.fail(
                f"cannot take the best {k} of {type.shape[axis]} along axis {axis} of {type.text}",
                code="D0306",
                help=f"k is 0 to {type.shape[axis]} there; axis= names another axis",
            )
        check_numbered(self, axis, type)
        best = type.with_shape((*type.shape[:axis], k, *type.shape[axis + 1 :]))
        return best, best.with_dtype(I32)

    def needs(self) -> Iterator[Need]:
        type = tensor_type(self.source)
        extent = type.shape[self.axis]
        told = f"cannot take the best {self.k} of {extent}"
        yield Need(extent - self.k, told, "D0807")
        yield numbered(self.axis, type)

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        dtype = tensor_type(self.source).dtype
        k, extent = at.size(self.k), inputs[0].shape[self.axis]
        if k > extent:
            raise failure(Status.INDEX, extent, extent, self.location.own.place)
        order = sorting(inputs[0], dtype, self.axis, descending=self.largest)
        best = order.take(range(k), self.axis)
        return np.take_along_axis(inputs[0], best, self.axis), best.astype(np.int32)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        zero = constant_like(emit, 0, self.source)
        index = self.results[1]
        return (put_along(emit, zero, cotangents[0], index, self.axis, "set", unique=True),)
