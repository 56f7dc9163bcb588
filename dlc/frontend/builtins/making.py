"""Functions that make tensors of numbers."""

from __future__ import annotations

from typing import Final

from dlc.dialects import array
from dlc.dialects.array import show
from dlc.frontend.builtins.registry import builtin
from dlc.frontend.elaboration.tensors import as_tensor, broadcast_to, dtype_of, literal, tensor_type
from dlc.frontend.elaboration.trace import Trace
from dlc.frontend.elaboration.values import Datum, describe, is_number
from dlc.ir.core import Value
from dlc.ir.dims import Dim, Shape, Size
from dlc.ir.types import BOOL, I32, I64, DType, TensorType

GROUP: Final = "making tensors"


@builtin(
    "zeros(shape: shape, dtype: dtype = f32)",
    GROUP,
    "A tensor of zeros.",
    "zeros([2, 2])",
    "[[0.0, 0.0], [0.0, 0.0]]",
)
def zeros(at: Trace, shape: Shape, dtype: DType) -> Datum:
    return array.fill(at, 0, TensorType(dtype, shape))


@builtin(
    "ones(shape: shape, dtype: dtype = f32)", GROUP, "A tensor of ones.", "ones([2])", "[1.0, 1.0]"
)
def ones(at: Trace, shape: Shape, dtype: DType) -> Datum:
    return array.fill(at, 1, TensorType(dtype, shape))


@builtin(
    "full(shape: shape, value: any, dtype: dtype = none)",
    GROUP,
    "A tensor with one number everywhere.",
    "full([2], 7)",
    "[7, 7]",
)
def full(at: Trace, shape: Shape, value: Datum, dtype: DType | None) -> Datum:
    scalar = as_tensor(at, value, dtype)
    if tensor_type(scalar).rank:
        raise at.fail("D0320", f"value of full is one number, found {describe(value)}")
    if isinstance(value, int | float):
        kind = dtype_of(scalar)
        return at(array.Fill(literal(at, value, kind), TensorType(kind, shape)))
    return broadcast_to(at, scalar, shape)


@builtin(
    "arange(n: size, dtype: dtype = i32)", GROUP, "0, 1, 2 up to n - 1.", "arange(3)", "[0, 1, 2]"
)
def arange(at: Trace, n: Size, dtype: DType) -> Datum:
    return at(array.Iota((n,), 0, dtype))


@builtin(
    "iota(shape: shape, axis: axis, dtype: dtype = i32)",
    GROUP,
    "The index along an axis, in every place of a shape.",
    "iota([2, 2], 1)",
    "[[0, 1], [0, 1]]",
)
def iota(at: Trace, shape: Shape, axis: int, dtype: DType) -> Datum:
    if not -len(shape) <= axis < len(shape):
        raise at.fail("D0305", f"a shape of {len(shape)} sizes has no axis {axis}")
    return at(array.Iota(shape, axis % len(shape), dtype))


@builtin(
    "eye(n: size, m: size = none, dtype: dtype = f32)",
    GROUP,
    "A matrix with ones on the diagonal.",
    "eye(2)",
    "[[1.0, 0.0], [0.0, 1.0]]",
)
def eye(at: Trace, n: Size, m: Size | None, dtype: DType) -> Datum:
    mask = _compared(at, (n, n if m is None else m), "eq", 0)
    return mask if dtype is BOOL else at(array.Cast(mask, dtype))


def _compared(at: Trace, shape: Shape, predicate: str, diagonal: int) -> Value:
    """The mask of `column PREDICATE row + diagonal`, for the last two axes."""
    rank = len(shape)
    row = at(array.Iota(shape, rank - 2, I32))
    if diagonal:
        row = at(array.Add(row, array.constant_like(at, diagonal, row)))
    return at(array.Compare(at(array.Iota(shape, rank - 1, I32)), row, predicate))


def _triangle(at: Trace, x: Datum, predicate: str, diagonal: int) -> Value:
    """A mask for a size; for a tensor, the tensor with zeros outside of the triangle."""
    if isinstance(x, int | Dim) and not isinstance(x, bool):
        return _compared(at, (x, x), predicate, diagonal)
    if is_number(x):
        raise at.fail("D0320", f"a triangle has a whole number of rows, found {describe(x)}")
    value = as_tensor(at, x)
    type = tensor_type(value)
    if type.rank < 2:
        raise at.fail("D0305", f"{show(value)} is not a matrix")
    mask = _compared(at, type.shape, predicate, diagonal)
    if type.dtype is BOOL:
        return at(array.And(value, mask))
    return at(array.Select(mask, value, array.constant_like(at, 0, value)))


@builtin(
    "tril(x: any, diagonal: int = 0)",
    GROUP,
    "The lower triangle of the last two axes, other elements 0; for a size n the mask bool[n, n].",
    "tril(2)",
    "[[true, false], [true, true]]",
)
def tril(at: Trace, x: Datum, diagonal: int) -> Datum:
    return _triangle(at, x, "le", diagonal)


@builtin(
    "triu(x: any, diagonal: int = 0)",
    GROUP,
    "The upper triangle of the last two axes, other elements 0; for a size n the mask bool[n, n].",
    "triu([[1, 2], [3, 4]])",
    "[[1, 2], [0, 4]]",
)
def triu(at: Trace, x: Datum, diagonal: int) -> Datum:
    return _triangle(at, x, "ge", diagonal)


@builtin(
    "one_hot(ids: tensor, n: size, dtype: dtype = f32)",
    GROUP,
    "For each id a row of n numbers: 1 at the place of the id, else 0.",
    "one_hot([2, 0], 3)",
    "[[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]",
)
def one_hot(at: Trace, ids: Value, n: Size, dtype: DType) -> Datum:
    type = tensor_type(ids)
    if not type.dtype.is_integer:
        raise at.fail("D0302", f"ids are whole numbers, found {type.text}")
    shape = (*type.shape, n)
    wide = at(array.Broadcast(ids, shape, tuple(range(type.rank))))
    # An id that does not fit the dtype of the ids cannot occur; counting in i64 keeps n from wrapping.
    places = at(array.Iota(shape, type.rank, I64))
    mask = at(array.Compare(at(array.Cast(wide, I64)), places, "eq"))
    return mask if dtype is BOOL else at(array.Cast(mask, dtype))
