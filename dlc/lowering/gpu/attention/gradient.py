"""`kernel.attention_gradient` for a GPU in f32: scores in registers, their factors in shared memory.

A block of 128 threads has 32 rows and 32 columns at a time, 16 where heads have more than 64 elements.
Each thread computes a few scores, the weights go to shared memory, and each thread adds up its elements of
what the rows receive. f16 and bf16, and f32 that may be rounded to tf32, are computed by matrix
instructions (`dlc.lowering.gpu.attention.tensor_core_gradient`).
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, Pointer, constant, fma, minimum
from dlc.dialects.kernel.attention import AttentionGradient
from dlc.ir.passes import Context
from dlc.ir.types import F32
from dlc.lowering.gpu.attention.gradient_tiles import TiledAttentionGradient, elements_of
from dlc.lowering.gpu.attention.tensor_core_gradient import MatrixAttentionGradient
from dlc.lowering.gpu.attention.warp_matrices import by_matrices, lines_of, load_rows
from dlc.lowering.gpu.product.shared_layout import Lines
from dlc.lowering.gpu.writer import load_several
from dlc.lowering.kernel_code.words import iterate, unravel
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target import gpu_of
from dlc.target.gpu import GpuTarget

DOWN, ACROSS = 8, 16
"""The threads of a block, as rows and columns of scores."""
UNIT = 4
"""Numbers that are read at once."""
FEW = 64
"""Elements of a head up to which more columns at a time have room in shared memory."""


def lower_attention_gradient(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for one gradient in destination form."""
    assert isinstance(op, AttentionGradient)
    way = MatrixAttentionGradient if by_matrices(op, context.options) else _Gradient
    return way(op, gpu_of(context.options)).lower()


class _Gradient(TiledAttentionGradient):
    def __init__(self, op: AttentionGradient, gpu: GpuTarget) -> None:
        side = 32 if max(elements_of(op)) <= FEW else 16
        super().__init__(op, DOWN * ACROSS, (side, side), gpu.costs.attention_gradient)
        self.lines = [lines_of(F32, side, elements) for elements in self.elements]
        """Of queries or keys, and of what belongs to them."""
        self.weights = lines_of(F32, side, side)
        self.down, self.across = unravel(self.writer.thread, [ACROSS] * 2)
        self.results = range(2 if op.by_keys else 1)
        """Of queries; of keys and of values."""

    def write(self, batch: Sequence[Expr], first: Expr) -> None:
        own, walked = ([self._buffer(lines) for lines in self.lines] for _ in range(2))
        weights = [self._buffer(self.weights) for _ in self.results]
        self._load(batch, self.own, (first, self.count_of_rows()), own)
        rows = [first + self.down + DOWN * k for k in range(self._tall)]

        def some(start: Expr, sums: list[Expr]) -> list[Expr]:
            return self._some_columns(batch, rows, start, (own, walked, weights), sums)

        emit = self.writer.emit
        zeros = [constant(emit, 0, F32)] * sum(map(self._sums, self.results))
        begin, end = self.range(first)
        sums = iterate(emit, begin, end, zeros, some, self.columns)
        for which, own_sums in zip(self.results, self._by_result(sums), strict=True):
            self._finish(batch, rows, which, own_sums)

    def _some_columns(
        self,
        batch: Sequence[Expr],
        rows: Sequence[Expr],
        start: Expr,
        buffers: tuple[Sequence[Pointer], Sequence[Pointer], Sequence[Pointer]],
        sums: Sequence[Expr],
    ) -> list[Expr]:
        """The sums with what the columns from `start` on add to them."""
        writer = self.writer
        own, walked, weights = buffers
        self._load(batch, self.walked, (start, self.count_of_columns()), walked)
        writer.commit()
        writer.wait()
        writer.barrier()
        products = [self._products(k, own[k], walked[k]) for k in range(2)]
        self._weigh(batch, rows, start, products, weights)
        writer.barrier()
        added = list[Expr]()
        for which, own_sums in zip(self.results, self._by_result(sums), strict=True):
            added += self._added(which, weights[which], walked[which], own_sums)
        writer.barrier()
        return added

    def _load(
        self,
        batch: Sequence[Expr],
        views: Sequence[int],
        rows: tuple[Expr, Expr],
        buffers: Sequence[Pointer],
    ) -> None:
        """Start to copy the rows of two operands from one on, up to a limit."""
        for view, lines, buffer in zip(views, self.lines, buffers, strict=True):
            load_rows(self.writer, view, batch, rows, lines, buffer)

    def _by_result(self, sums: Sequence[Expr]) -> list[Sequence[Expr]]:
        """The thread's sums of each result."""
        first = self._sums(0)
        return [sums[:first], sums[first:]][: len(self.results)]

    @property
    def _tall(self) -> int:
        """Rows of a thread."""
        return self.rows // DOWN

    @property
    def _wide(self) -> int:
        """Columns of a thread."""
        return self.columns // ACROSS

    def _units(self, which: int) -> int:
        """Units of a row's elements that a thread adds up."""
        return -(-self.lines[which].units // ACROSS)

    def _sums(self, which: int) -> int:
        return self._tall * self._units(which) * UNIT

    def _buffer(self, lines: Lines) -> Pointer:
        return self.writer.shared(lines.bytes // F32.bytes, F32)

    # The steps for some columns.

    def _products(self, which: int, own: Pointer, walked: Pointer) -> list[Expr]:
        """The products of the thread's rows and columns, row by row."""
        lines, emit = self.lines[which], self.writer.emit

        def unit(k: Expr, sums: list[Expr]) -> list[Expr]:
            down = [self._row(lines, own, r, k) for r in range(self._tall)]
            across = [self._column(lines, walked, c, k) for c in range(self._wide)]
            pairs = [(one, other) for one in down for other in across]
            return [_dot(*pair, sum) for pair, sum in zip(pairs, sums, strict=True)]

        zeros = [constant(emit, 0, F32)] * (self._tall * self._wide)
        return iterate(emit, 0, lines.units, zeros, unit)

    def _row(self, lines: Lines, buffer: Pointer, which: int, unit: Expr) -> list[Expr]:
        """A unit of one of the thread's rows."""
        line = self.down + DOWN * which
        return load_several(buffer, lines.place(line, unit, self.down), UNIT)

    def _column(self, lines: Lines, buffer: Pointer, which: int, unit: Expr) -> list[Expr]:
        """A unit of one of the thread's columns."""
        line = self.across + ACROSS * which
        return load_several(buffer, lines.place(line, unit, line), UNIT)

    def _weigh(
        self,
        batch: Sequence[Expr],
        rows: Sequence[Expr],
        start: Expr,
        products: Sequence[Sequence[Expr]],
        buffers: Sequence[Pointer],
    ) -> None:
        """Put what the thread's scores receive into shared memory, and `by_keys` their weights."""
        own = [self.across + ACROSS * c for c in range(self._wide)]
        columns = [start + column for column in own]
        queries = columns if self.op.by_keys else rows
        of_queries = [self.statistics(batch, query) for query in queries]
        for place, pair in enumerate(zip(*products, strict=True)):
            r, c = divmod(place, self._wide)
            statistics = of_queries[c if self.op.by_keys else r]
            p, ds = self.weigh(batch, (rows[r], columns[c]), pair, statistics)
            line = self.down + DOWN * r
            unit, rest = unravel(own[c], [UNIT] * 2)
            there = self.weights.place(line, unit, self.down) + rest
            for buffer, value in zip(buffers, (ds, p), strict=False):
                buffer[there] = value

    def _added(
        self, which: int, weights: Pointer, walked: Pointer, sums: Sequence[Expr]
    ) -> list[Expr]:
        """Add the columns, weighted, to the thread's elements of what its rows receive."""
        lines = self.lines[which]
        units = [minimum(unit, lines.units - 1) for unit in self._own(which)]

        def some(k: Expr, sums: list[Expr]) -> list[Expr]:
            factors = [self._row(self.weights, weights, r, k) for r in range(self._tall)]
            for step in range(UNIT):
                line = k * UNIT + step
                elements = [
                    element
                    for unit in units
                    for element in load_several(walked, lines.place(line, unit, line), UNIT)
                ]
                pairs = [(factor[step], element) for factor in factors for element in elements]
                sums = [fma(*pair, sum) for pair, sum in zip(pairs, sums, strict=True)]
            return sums

        return iterate(self.writer.emit, 0, self.columns // UNIT, sums, some)

    def _own(self, which: int) -> list[Expr]:
        """The units of a row's elements that are the thread's; some may be beyond the last."""
        return [self.across + ACROSS * k for k in range(self._units(which))]

    def _finish(
        self, batch: Sequence[Expr], rows: Sequence[Expr], which: int, sums: Sequence[Expr]
    ) -> None:
        along = [unit * UNIT + k for unit in self._own(which) for k in range(UNIT)]
        places = [(row, element) for row in rows for element in along]
        for place, sum in zip(places, sums, strict=True):
            self.store(batch, which, place, sum)


def _dot(one: Sequence[Expr], other: Sequence[Expr], sum: Expr) -> Expr:
    for pair in zip(one, other, strict=True):
        sum = fma(*pair, sum)
    return sum
