"""Attributes of ai.onnx.ml: lists of numbers as tensors, and labels of classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dlc.dialects import array
from dlc.dialects.array.shape import reshape
from dlc.errors import Unsupported
from dlc.importers.onnx.facts import Array
from dlc.importers.onnx.node_context import Constant, NodeContext
from dlc.ir.core import Value
from dlc.ir.types import BOOL, F32, F64, I32, I64, DType

DTYPES: dict[type[np.generic], DType] = {
    np.float32: F32, np.float64: F64, np.int32: I32, np.int64: I64, np.bool_: BOOL,
}  # fmt: skip


def table(context: NodeContext, numbers: Array, name: str) -> Value:
    """An array made of attributes as a value; `name` is what it is called if it is a weight."""
    dtype = DTYPES[numbers.dtype.type]
    return context.as_value(Constant(np.ascontiguousarray(numbers), dtype, name))


def numbers(context: NodeContext, name: str) -> NDArray[np.float32]:
    """A list of floats, f32; empty where it is left out."""
    given = context.numbers(name) if name in context.node.attributes else []
    return np.asarray(given, np.float32)


def integers(context: NodeContext, name: str) -> list[int]:
    """A list of integers; empty where it is left out."""
    return list(context.list(name) or ())


def columns(context: NodeContext, name: str, x: Value) -> Value:
    """A list of floats, one for each column of x or one for all, in the shape and dtype of x."""
    given = numbers(context, name)
    type = array.tensor_type(x)
    if given.size == 1:
        return array.constant_like(context.emit, float(given[0]), x)
    if not type.rank or type.shape[-1] != given.size:
        raise context.wrong(f"has {given.size} {name} for {type.text}")
    row = context.emit(array.Cast(table(context, given, name), type.dtype))
    return context.emit(array.Broadcast(row, type.shape, (type.rank - 1,)))


def matrix_of(context: NodeContext, x: Value) -> Value:
    """Rows of numbers in f32, or f64 if they are; a single row may lack its first axis."""
    type = array.tensor_type(x)
    if type.rank not in (1, 2):
        raise context.unsupported(f"takes rows of numbers, found {type.text}")
    dtype = F64 if type.dtype is F64 else F32
    x = x if type.dtype is dtype else context.emit(array.Cast(x, dtype))
    return x if type.rank == 2 else reshape(context.emit, x, (1, *type.shape))


def labels(context: NodeContext, *names: str) -> list[int]:
    """The labels of classes, integers under one of these names. Raises Unsupported for texts."""
    if context.node.attributes.get("classlabels_strings"):
        raise no_texts(context, "names its classes by texts")
    for name in names:
        if name in context.node.attributes:
            return integers(context, name)
    raise context.wrong(f"lacks its attribute {names[0]}")


def no_texts(context: NodeContext, what: str) -> Unsupported:
    """The error for texts, which dlc has no tensors of."""
    return Unsupported(
        f"{context.node.kind} {what}, and dlc has no tensors of texts",
        code="D0710",
        help="train with numbers in their place: sklearn.preprocessing.LabelEncoder makes them",
    )


def chosen(context: NodeContext, labels: Sequence[int], index: Value) -> Value:
    """The labels at an index, i64."""
    held = table(context, np.asarray(labels, np.int64), "labels")
    return context.emit(array.Gather(held, (index,), (0,)))
