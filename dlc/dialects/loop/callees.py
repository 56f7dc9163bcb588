"""External functions that kernels call, BLAS products, as NumPy evaluates them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dlc.dialects.loop.memory import EvaluationMachine
from dlc.ir.core import Array, Op
from dlc.ir.types import F32, F64, I32, U8, DType
from dlc.runtime.abi import COLLECTIVES, COORDINATE

Callee = Callable[..., None]
"""A function of the machine, the calling operation, and the arguments of the call."""

_START = np.asarray(0, np.int64)


def _gemm(dtype: DType) -> Callee:
    """BLAS `gemm`: `c = alpha * op(a) @ op(b) + beta * c` in column-major order."""

    def call(at: EvaluationMachine, op: Op, *arguments: Array) -> None:
        transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc = arguments
        rows, columns, inner = (_read(at, op, size, I32) for size in (m, n, k))
        lhs = _matrix(at, op, a, lda, (rows, inner), dtype, transpose_a)
        rhs = _matrix(at, op, b, ldb, (inner, columns), dtype, transpose_b)
        scale, keep = (at.read(op, x, _START, dtype, 1)[0] for x in (alpha, beta))
        product = scale * np.matmul(lhs, rhs)
        stride = _read(at, op, ldc, I32)
        for column in range(columns):
            start = np.asarray(column * stride)
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
    transpose: Array,
) -> Array:
    """A column-major matrix of this shape; where `transpose` is "T", what is stored is its transpose."""
    swap = _read(at, op, transpose, U8) == ord("T")
    rows, columns = reversed(shape) if swap else shape
    stride = _read(at, op, leading, I32)
    stored_columns = [
        at.read(op, pointer, np.asarray(k * stride), dtype, rows) for k in range(columns)
    ]
    stored = (
        np.stack(stored_columns, axis=1)
        if stored_columns
        else np.zeros((rows, columns), dtype.numpy)
    )
    return stored.T if swap else stored


def _read(at: EvaluationMachine, op: Op, pointer: Array, dtype: DType) -> int:
    return int(at.read(op, pointer, _START, dtype, 1)[0])


def imported(at: EvaluationMachine, symbol: str) -> Array:
    """A word of the table of imports: handles are known by their names, so that only numbers matter."""
    if symbol.startswith(COORDINATE) and at.ranks is not None:
        return np.asarray(at.ranks.coordinate(symbol.removeprefix(COORDINATE)), np.int64)
    return np.asarray(0, np.int64)


def _collective(at: EvaluationMachine, op: Op, *arguments: Array) -> None:
    """Collectives are evaluated as kernels, among ranks; the code of a rank alone has no partners."""
    raise op.fail("a collective cannot be evaluated by one rank alone", code="D0380")


CALLEES: dict[str, Callee] = {
    "sgemm_": _gemm(F32),
    "dgemm_": _gemm(F64),
    **dict.fromkeys((*COLLECTIVES, "memcpy"), _collective),
}
"""External functions by name."""
