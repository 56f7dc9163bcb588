"""Products that sum over axes: of matrices, and of tensors along any axes."""

from __future__ import annotations

import numpy as np

from dlc.dialects import numeric
from dlc.dialects.array.elementwise import folded, show, tensor_type
from dlc.dialects.array.shape import Transpose, inverse, reshape, transpose
from dlc.dialects.decomposed import Decomposed
from dlc.ir.attributes import Dense
from dlc.ir.core import Array, Builder, Evaluation, Op, Value
from dlc.ir.define import attribute, op, operand
from dlc.ir.dims import product
from dlc.ir.types import TensorType

__all__ = ["DotGeneral", "MatMul", "swap_last"]


def swap_last(emit: Builder, value: Value) -> Value:
    """The value with its last two axes swapped."""
    rank = tensor_type(value).rank
    return emit(Transpose(value, (*range(rank - 2), rank - 1, rank - 2)))


def _matmul(lhs: Array, rhs: Array) -> Array:
    return np.matmul(lhs, rhs, dtype=lhs.dtype)


@op("array.matmul")
class MatMul(Op):
    """`y[.., m, n] = sum over k of lhs[.., m, k] * rhs[.., k, n]`; the leading axes are equal.

    f16 and bf16 accumulate in f32 and round once at the end.
    """

    is_product = True

    lhs: Value = operand()
    rhs: Value = operand()

    def infer(self) -> TensorType:
        lhs, rhs = tensor_type(self.lhs), tensor_type(self.rhs)
        dtype, batch = lhs.dtype, lhs.shape[:-2]
        if (
            len(lhs.shape) < 2
            or len(rhs.shape) < 2
            or dtype is not rhs.dtype
            or batch != rhs.shape[:-2]
        ):
            raise self.fail(
                f"cannot multiply {show(self.lhs)} by {show(self.rhs)}; "
                "the dtypes and the leading axes must agree"
            )
        if dtype.kind == "bool":
            raise self.fail(f"{self.name} has no meaning for bool", code="D0302")
        (m, k), (inner, n) = lhs.shape[-2:], rhs.shape[-2:]
        if k != inner:
            raise self.fail(
                f"cannot multiply {show(self.lhs)} by {show(self.rhs)}: "
                f"the inner sizes {k} and {inner} differ"
            )
        return TensorType(dtype, (*batch, m, n))

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        dtype = tensor_type(self.lhs).dtype
        with np.errstate(all="ignore"):
            return numeric.in_single(_matmul, dtype, *inputs)

    def fold(self) -> Dense | None:
        return None if tensor_type(self.lhs).dtype.is_float else folded(self)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        (dy,) = cotangents
        dlhs = emit(MatMul(dy, swap_last(emit, self.rhs)))
        return dlhs, emit(MatMul(swap_last(emit, self.lhs), dy))


@op("array.dot_general")
class DotGeneral(Decomposed):
    """The sum over the contracted axes of the product, for each index of the batch axes.

    The result has the batch axes in the order given, then the other axes of lhs, then those of rhs, each
    in their order. f16 and bf16 accumulate in f32 and round once at the end.
    """

    is_product = True

    lhs: Value = operand()
    rhs: Value = operand()
    lhs_batch: tuple[int, ...] = attribute()
    rhs_batch: tuple[int, ...] = attribute()
    lhs_contract: tuple[int, ...] = attribute()
    rhs_contract: tuple[int, ...] = attribute()

    def infer(self) -> TensorType:
        lhs, rhs = tensor_type(self.lhs), tensor_type(self.rhs)
        self._check(lhs, self.lhs_batch + self.lhs_contract)
        self._check(rhs, self.rhs_batch + self.rhs_contract)
        if lhs.dtype is not rhs.dtype or lhs.dtype.kind == "bool":
            raise self.fail(f"cannot multiply {lhs.text} by {rhs.text}; the dtypes must agree")
        batch = [lhs.shape[axis] for axis in self.lhs_batch]
        summed = [lhs.shape[axis] for axis in self.lhs_contract]
        if batch != [rhs.shape[axis] for axis in self.rhs_batch] or summed != [
            rhs.shape[axis] for axis in self.rhs_contract
        ]:
            raise self.fail(
                f"cannot multiply {lhs.text} by {rhs.text}: the sizes of the axes "
                f"{list(self.lhs_batch + self.lhs_contract)} of the one and "
                f"{list(self.rhs_batch + self.rhs_contract)} of the other differ"
            )
        free = [lhs.shape[axis] for axis in self.lhs_free]
        return lhs.with_shape((*batch, *free, *[rhs.shape[axis] for axis in self.rhs_free]))

    def _check(self, type: TensorType, axes: tuple[int, ...]) -> None:
        if len(set(axes)) != len(axes) or any(not 0 <= axis < type.rank for axis in axes):
            raise self.fail(f"{list(axes)} are not axes of {type.text}, each once", code="D0305")

    @property
    def lhs_free(self) -> tuple[int, ...]:
        """The axes of lhs that are neither batch nor contracted."""
        return _others(self.lhs, self.lhs_batch + self.lhs_contract)

    @property
    def rhs_free(self) -> tuple[int, ...]:
        """The axes of rhs that are neither batch nor contracted."""
        return _others(self.rhs, self.rhs_batch + self.rhs_contract)

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        lhs, rhs = tensor_type(self.lhs).shape, tensor_type(self.rhs).shape
        batch = [lhs[axis] for axis in self.lhs_batch]
        m = product(lhs[axis] for axis in self.lhs_free)
        k = product(lhs[axis] for axis in self.lhs_contract)
        n = product(rhs[axis] for axis in self.rhs_free)
        left = transpose(emit, self.lhs, self.lhs_batch + self.lhs_free + self.lhs_contract)
        right = transpose(emit, self.rhs, self.rhs_batch + self.rhs_contract + self.rhs_free)
        result = emit(
            MatMul(
                reshape(emit, left, (*batch, m, k)),
                reshape(emit, right, (*batch, k, n)),
            )
        )
        return (reshape(emit, result, tensor_type(self.result).shape),)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        (dy,) = cotangents
        count = len(self.lhs_batch)
        batch = tuple(range(count))
        middle = count + len(self.lhs_free)
        of_lhs = tuple(range(count, middle))
        of_rhs = tuple(range(middle, tensor_type(dy).rank))
        dlhs = emit(DotGeneral(dy, self.rhs, batch, self.rhs_batch, of_rhs, self.rhs_free))
        drhs = emit(DotGeneral(dy, self.lhs, batch, self.lhs_batch, of_lhs, self.lhs_free))
        # The contracted axes come last, in the order of the other operand.
        lhs_last = _matching(self.rhs_contract, self.lhs_contract)
        rhs_last = _matching(self.lhs_contract, self.rhs_contract)
        return (
            transpose(emit, dlhs, inverse(self.lhs_batch + self.lhs_free + lhs_last)),
            transpose(emit, drhs, inverse(self.rhs_batch + self.rhs_free + rhs_last)),
        )


def _others(value: Value, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([axis for axis in range(tensor_type(value).rank) if axis not in axes])


def _matching(present: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
    """The axes in `wanted` that correspond to those in `present`, in ascending order of the latter."""
    return tuple([partner for _, partner in sorted(zip(present, wanted, strict=True))])
