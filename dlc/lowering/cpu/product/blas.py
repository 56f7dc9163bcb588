"""`kernel.gemm` as calls of BLAS: one call for each tile, then the epilogue over the tile while it is hot.

BLAS is column-major: a row-major product `C = A B` is `C' = B' A'` there, so the operands change places
and nothing is copied. The tiles depend on the shape only, so the bits do not depend on the threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, loop
from dlc.dialects.expr import Expr, Index, Pointer, constant, index
from dlc.dialects.expr import maximum as larger
from dlc.dialects.expr import minimum as smaller
from dlc.dialects.kernel.products import Gemm
from dlc.ir.dims import Size, ceil_divide, maximum, minimum, product
from dlc.ir.passes import Context
from dlc.ir.types import F32, F64, I32, U8, DType
from dlc.lowering.kernel_code.body import lanes_of
from dlc.lowering.kernel_code.epilogue import epilogue_body, is_identity, write_epilogue
from dlc.lowering.kernel_code.words import for_each, unravel
from dlc.lowering.kernel_code.writer import Lowered, Writer
from dlc.target import cpu_of
from dlc.target.cpu import CpuTarget
from dlc.target.work import nanoseconds

ROUTINES = {F32: "sgemm_", F64: "dgemm_"}

MAX_CUTS = 8
"""A product is cut into at most this many tiles along each axis: BLAS packs its operands per call."""
MIN_ROWS = 64
MIN_COLUMNS = 128


def lower_blas_gemm(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for one product in destination form."""
    assert isinstance(op, Gemm)
    return _BlasGemm(op, cpu_of(context.options)).lower()


def cut(size: Size, least: int) -> Size:
    """The length of a tile along an axis: an eighth of it, but not less than `least`."""
    return minimum(
        maximum(ceil_divide(ceil_divide(size, MAX_CUTS), 16) * 16, least), maximum(size, 1)
    )


class _BlasGemm:
    def __init__(self, op: Gemm, cpu: CpuTarget) -> None:
        self.op = op
        self.writer = Writer(op)
        self.lanes = lanes_of(op.epilogue, cpu.vector_bytes)
        self.costs = cpu.costs

    def lower(self) -> Lowered:
        op, writer = self.op, self.writer
        *batch, m, n = op.domain
        rows, columns = cut(m, MIN_ROWS), cut(n, MIN_COLUMNS)
        across, down = ceil_divide(n, columns), ceil_divide(m, rows)
        counts = [writer.size(size, "batch", k) for k, size in enumerate(batch)]
        counts += [writer.size(down, "down"), writer.size(across, "across")]
        with for_each(writer.emit, writer.first, writer.last) as number:
            *batch_index, i, j = unravel(number, counts)
            self._tile(batch_index, i, j, rows, columns)
        costs = self.costs
        work = rows * columns * (op.inner * costs.blas_product + costs.blas_element)
        return writer.finish(product(batch) * down * across, nanoseconds(work))

    def _tile(self, batch: list[Expr], i: Expr, j: Expr, rows: Size, columns: Size) -> None:
        op, writer = self.op, self.writer
        *_, m, n = op.domain
        tall, wide = writer.size(rows, "rows"), writer.size(columns, "columns")
        row, column = i * tall, j * wide
        height = smaller(tall, writer.size(m, "m") - row)
        width = smaller(wide, writer.size(n, "n") - column)
        lhs = self._operand(0, batch, (row, 0), op.lhs_transposed)
        rhs = self._operand(1, () if op.rhs_shared else batch, (0, column), op.rhs_transposed)
        out_view = len(op.operands) - len(op.outs)
        target = writer.part(out_view, [*batch, row, column])
        self._call(height, width, lhs, rhs, target, out_view)
        if not is_identity(op):
            self._epilogue([*batch, row], column, height, width, target)

    def _epilogue(
        self, leading: list[Expr], column: Expr, height: Expr, width: Expr, target: Pointer
    ) -> None:
        """The epilogue over a finished tile, whose sums are in the memory of the results."""
        op, writer = self.op, self.writer
        body = epilogue_body(op, writer, self.lanes)
        stride = writer.stride(len(op.operands) - 1, len(op.domain) - 2)
        sums = target.of(op.accumulator)
        *batch, first = leading
        with for_each(writer.emit, 0, height) as i:
            row = sums + i * stride
            write_epilogue(op, body, [*batch, first + i], column, width, row, [row])

    def _operand(
        self, view: int, batch: Sequence[Expr], position: tuple[Index, Index], transposed: bool
    ) -> Pointer:
        """The first element of an operand that a tile reads."""
        matrix_index = [index(self.writer.emit, axis) for axis in position]
        if transposed:
            matrix_index.reverse()
        return self.writer.part(view, [*batch, *matrix_index])

    def _leading(self, view: int) -> Index:
        """The distance between rows of a stored operand, at least 1 as BLAS demands."""
        stride = self.writer.stride(view, len(self.writer.views[view].shape) - 2)
        return larger(stride, 1) if isinstance(stride, Expr) else stride

    def _call(
        self,
        height: Expr,
        width: Expr,
        lhs: Pointer,
        rhs: Pointer,
        target: Pointer,
        out_view: int,
    ) -> None:
        op, writer = self.op, self.writer
        emit, dtype = writer.emit, op.accumulator
        inner = writer.size(op.inner, "inner")
        sizes = [height, width, inner, *(self._leading(view) for view in (1, 0, out_view))]
        m, n, k, ldb, lda, ldc = [self._by_address(index(emit, size), I32) for size in sizes]
        one, zero = (self._by_address(constant(emit, value, dtype), dtype) for value in (1.0, 0.0))
        letters = [
            # Fortran's way to say whether an operand is transposed.
            self._by_address(constant(emit, ord("T" if transposed else "N"), U8), U8)
            for transposed in (op.rhs_transposed, op.lhs_transposed)
        ]
        pointers = [*letters, n, m, k, one, rhs, ldb, lhs, lda, zero, target, ldc]
        emit.place(loop.Call([pointer.value for pointer in pointers], ROUTINES[dtype]))

    def _by_address(self, value: Expr, dtype: DType) -> Pointer:
        """A Fortran argument: the address of a number."""
        buffer = self.writer.buffer(1, dtype)
        buffer[0] = value.cast(dtype)
        return buffer
