"""`kernel.gemm` as calls of BLAS: one call for each tile, then the epilogue over the tile while it is hot.

BLAS is column-major: a row-major product `C = A B` is `C' = B' A'` there, so the operands change places
and nothing is copied. The tiles depend on the shape only, so the bits do not depend on the threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, loop, scalar
from dlc.dialects.kernel_products import Gemm
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.dims import Size, maximum, minimum, product
from dlc.ir.passes import Context
from dlc.ir.types import F32, F64, I32, U8, DType
from dlc.lowering.body import lanes_of
from dlc.lowering.epilogue import epilogue_body, is_identity, write_epilogue
from dlc.lowering.loop_words import add, for_each, index, times, unravel
from dlc.lowering.loop_words import minimum as smaller
from dlc.lowering.loop_words import known as known_stride
from dlc.lowering.loop_writer import Lowered, Writer
from dlc.lowering.work import ceil_divide, nanoseconds

ROUTINES = {F32: "sgemm_", F64: "dgemm_"}

MAX_CUTS = 8
"""A product is cut into at most this many tiles along each axis: BLAS packs its operands per call."""
MIN_ROWS = 64
MIN_COLUMNS = 128


def lower_gemm(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for one product in destination form."""
    assert isinstance(op, Gemm)
    return _BlasGemm(op, context.options.vector_bytes).lower()


def cut(size: Size, least: int) -> Size:
    """The length of a tile along an axis: an eighth of it, but not less than `least`."""
    return minimum(
        maximum(ceil_divide(ceil_divide(size, MAX_CUTS), 16) * 16, least), maximum(size, 1)
    )


class _BlasGemm:
    def __init__(self, op: Gemm, vector_bytes: int) -> None:
        self.op = op
        self.writer = Writer(op)
        self.lanes = lanes_of(op.epilogue, vector_bytes)

    def lower(self) -> Lowered:
        op, writer = self.op, self.writer
        *batch, m, n = op.domain
        rows, columns = cut(m, MIN_ROWS), cut(n, MIN_COLUMNS)
        across, down = ceil_divide(n, columns), ceil_divide(m, rows)
        counts = [*[writer.size(size, "batch", k).value for k, size in enumerate(batch)]]
        counts += [writer.size(down, "down").value, writer.size(across, "across").value]

        def tile(emit: Builder, number: Value, _: list[Value]) -> Sequence[Value]:
            *where, i, j = unravel(emit, number, counts)
            self._tile(emit, where, i, j, rows, columns)
            return ()

        for_each(writer.emit, writer.first.value, writer.last.value, 1, (), tile)
        work = rows * columns * op.inner * 20 + rows * columns * 500
        return writer.finish(product(batch) * down * across, nanoseconds(work))

    def _tile(
        self, emit: Builder, batch: list[Value], i: Value, j: Value, rows: Size, columns: Size
    ) -> None:
        op, writer = self.op, self.writer
        *_, m, n = op.domain
        row = emit(scalar.Multiply(i, writer.size(rows, "rows").value))
        column = emit(scalar.Multiply(j, writer.size(columns, "columns").value))
        height = smaller(
            emit, writer.size(rows, "rows").value, emit(scalar.Subtract(writer.size(m, "m").value, row))
        )
        width = smaller(
            emit,
            writer.size(columns, "columns").value,
            emit(scalar.Subtract(writer.size(n, "n").value, column)),
        )
        lhs = self._operand(emit, 0, batch, row, None, op.lhs_transposed)
        rhs = self._operand(
            emit, 1, () if op.rhs_shared else batch, None, column, op.rhs_transposed
        )
        out_view = len(op.operands) - len(op.outs)
        target = self._at(emit, out_view, [*batch, row, column])
        self._call(emit, height, width, lhs, rhs, target, out_view)
        if not is_identity(op):
            self._epilogue(emit, [*batch, row], column, height, width, target)

    def _epilogue(
        self,
        emit: Builder,
        leading: list[Value],
        column: Value,
        height: Value,
        width: Value,
        target: Value,
    ) -> None:
        """The epilogue over a finished tile, whose sums stand where the results go."""
        op, dtype = self.op, self.op.accumulator
        body = epilogue_body(op, self.writer, self.lanes)
        stride = known_stride(self.writer.stride(len(op.operands) - 1, len(op.domain) - 2))
        *batch, first = leading

        def row(inside: Builder, i: Value, _: list[Value]) -> Sequence[Value]:
            place = inside(loop.Offset(target, times(inside, i, stride), dtype))
            where = [*batch, inside(scalar.Add(first, i))]
            write_epilogue(op, body, inside, where, column, width, place, [place])
            return ()

        for_each(emit, index(emit, 0), height, 1, (), row)

    def _at(self, emit: Builder, view: int, indices: Sequence[Value]) -> Value:
        """The address of an element of a view."""
        offset: Value | None = None
        for axis, position in enumerate(indices):
            offset = add(emit, offset, times(emit, position, self.writer.stride(view, axis)))
        pointer = self.writer.pointers[view]
        if offset is None:
            return pointer
        return emit(loop.Offset(pointer, offset, self.writer.views[view].dtype))

    def _operand(
        self,
        emit: Builder,
        view: int,
        batch: Sequence[Value],
        row: Value | None,
        column: Value | None,
        transposed: bool,
    ) -> Value:
        """Where the part of an operand begins that a tile needs."""
        zero = index(emit, 0)
        place = [zero if row is None else row, zero if column is None else column]
        return self._at(emit, view, [*batch, *(reversed(place) if transposed else place)])

    def _leading(self, emit: Builder, view: int) -> Value:
        """The distance between rows of a stored operand, at least 1 as BLAS demands."""
        stride = known_stride(self.writer.stride(view, len(self.writer.views[view].shape) - 2))
        one = index(emit, 1)
        return one if stride is None else emit(scalar.Maximum(stride, one))

    def _call(
        self,
        emit: Builder,
        height: Value,
        width: Value,
        lhs: Value,
        rhs: Value,
        target: Value,
        out_view: int,
    ) -> None:
        op, writer = self.op, self.writer
        dtype = op.accumulator
        inner = writer.size(op.inner, "inner").value
        ints = [height, width, inner]
        leads = [self._leading(emit, view) for view in (1, 0, out_view)]
        m, n, k, ldb, lda, ldc = [_by_address(emit, value) for value in [*ints, *leads]]
        one, zero = (_number(emit, value, dtype) for value in (1.0, 0.0))
        emit.place(
            loop.Call(
                [
                    _letter(emit, op.rhs_transposed),
                    _letter(emit, op.lhs_transposed),
                    *(n, m, k, one, rhs, ldb, lhs, lda, zero, target, ldc),
                ],
                ROUTINES[dtype],
            )
        )


def _by_address(emit: Builder, value: Value) -> Value:
    """A Fortran integer argument: the address of its 32 bits."""
    room = emit(loop.Buffer(1, I32))
    emit.place(loop.Store(emit(scalar.Cast(value, I32)), room, index(emit, 0)))
    return room


def _number(emit: Builder, value: float, dtype: DType) -> Value:
    room = emit(loop.Buffer(1, dtype))
    emit.place(loop.Store(emit(scalar.Constant(value, dtype)), room, index(emit, 0)))
    return room


def _letter(emit: Builder, transposed: bool) -> Value:
    """Fortran's way to say whether an operand is transposed."""
    room = emit(loop.Buffer(1, U8))
    letter = emit(scalar.Constant(ord("T" if transposed else "N"), U8))
    emit.place(loop.Store(letter, room, index(emit, 0)))
    return room
