"""Matrix products and convolution."""

from __future__ import annotations

import numpy as np

from dlc.dialects.array.elementwise import show, tensor_type
from dlc.dialects.array.shape import Transpose
from dlc.ir.attributes import decode, encode
from dlc.ir.builder import Builder
from dlc.ir.core import Op, Value
from dlc.ir.define import op, operand
from dlc.ir.evaluation import Array, Evaluation
from dlc.ir.types import BF16, F16, TensorType

__all__ = ["MatMul", "swap_last"]


def swap_last(emit: Builder, value: Value) -> Value:
    """The value with its last two axes swapped."""
    rank = tensor_type(value).rank
    return emit(Transpose(value, (*range(rank - 2), rank - 1, rank - 2)))


@op("array.matmul")
class MatMul(Op):
    """`y[.., m, n] = sum over k of lhs[.., m, k] * rhs[.., k, n]`; the leading axes are equal.

    f16 and bf16 accumulate in f32 and round once at the end.
    """

    lhs: Value = operand()
    rhs: Value = operand()

    def infer(self) -> TensorType:
        match self.lhs.type, self.rhs.type:
            case (
                TensorType(dtype, (*batch, m, k)),
                TensorType(other, (*batch2, k2, n)),
            ) if (dtype, batch) == (other, batch2):
                if k == k2 and dtype.kind != "bool":
                    return TensorType(dtype, (*batch, m, n))
                raise self.fail(
                    f"cannot multiply {show(self.lhs)} by {show(self.rhs)}: "
                    f"the inner sizes {k} and {k2} differ"
                )
            case _:
                raise self.fail(
                    f"cannot multiply {show(self.lhs)} by {show(self.rhs)}; "
                    "the dtypes and the leading axes must agree"
                )

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        dtype = tensor_type(self.lhs).dtype
        if dtype in (F16, BF16):
            lhs, rhs = (decode(array, dtype).astype(np.float32) for array in inputs)
            return encode(np.matmul(lhs, rhs), dtype)
        return np.matmul(inputs[0], inputs[1], dtype=inputs[0].dtype)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        (dy,) = cotangents
        dlhs = emit(MatMul(dy, swap_last(emit, self.rhs)))
        return dlhs, emit(MatMul(swap_last(emit, self.lhs), dy))
