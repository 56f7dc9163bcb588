"""What the outside functions that kernels call do to memory, for evaluation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dlc.dialects.loop.memory import EvaluationMachine
from dlc.ir.core import Array, Op
from dlc.ir.types import F32, F64, I32, U8, DType

Callee = Callable[..., None]
"""Called with the machine, the operation that calls, and its arguments."""

_START = np.asarray(0, np.int64)


def _gemm(dtype: DType) -> Callee:
    """`c = alpha * op(a) @ op(b) + beta * c` in Fortran's order: columns are what is contiguous."""

    def call(at: EvaluationMachine, op: Op, *arguments: Array) -> None:
        turn_a, turn_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc = arguments
        rows, columns, inner = (_read(at, op, size, I32) for size in (m, n, k))
        lhs = _matrix(at, op, a, lda, (rows, inner), dtype, turn_a)
        rhs = _matrix(at, op, b, ldb, (inner, columns), dtype, turn_b)
        scale, keep = (at.read(op, x, _START, dtype, 1)[0] for x in (alpha, beta))
        product = scale * np.matmul(lhs, rhs)
        step = _read(at, op, ldc, I32)
        for column in range(columns):
            start = np.asarray(column * step)
            old = at.read(op, c, start, dtype, rows) if keep else 0
            at.write(op, c, start, (product[:, column] + keep * old).astype(dtype.numpy))

    return call


def _matrix(
    at: EvaluationMachine,
    op: Op,
    pointer: Array,
    leading: Array,
    shape: tuple[int, int],
    dtype: DType,
    turned: Array,
) -> Array:
    """A matrix of Fortran's, or with the letter T its transpose, of this shape."""
    swap = _read(at, op, turned, U8) == ord("T")
    rows, columns = reversed(shape) if swap else shape
    step = _read(at, op, leading, I32)
    parts = [at.read(op, pointer, np.asarray(k * step), dtype, rows) for k in range(columns)]
    stored = np.stack(parts, axis=1) if parts else np.zeros((rows, columns), dtype.numpy)
    return stored.T if swap else stored


def _read(at: EvaluationMachine, op: Op, pointer: Array, dtype: DType) -> int:
    return int(at.read(op, pointer, _START, dtype, 1)[0])


CALLEES: dict[str, Callee] = {"sgemm_": _gemm(F32), "dgemm_": _gemm(F64)}
"""By the name of the function."""
