"""`kernel.attention_gradient` for a GPU in f32: scores in registers, their operands in shared memory.

A block of 128 threads has a tile of 32 rows and 32 columns, 16 where heads have more than 64 elements.
Each thread computes a few scores, the weights go to shared memory, and each thread adds up its elements of
the rows' gradients. f16 and bf16, and f32 that may be rounded to tf32, are computed by matrix
instructions (`dlc.lowering.gpu.attention.tensor_core_gradient`).
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.expr import Expr, Pointer, constant, fma, minimum
from dlc.dialects.kernel.attention import AttentionGradient
from dlc.ir.passes import Context
from dlc.ir.types import F32
from dlc.lowering.gpu.attention.gradient_tiles import TiledAttentionGradient, elements_of
from dlc.lowering.gpu.attention.tensor_core_gradient import MatrixAttentionGradient
from dlc.lowering.gpu.attention.warp_matrices import by_matrices, layout_of, load_rows
from dlc.lowering.gpu.product.shared_layout import SharedLayout
from dlc.lowering.gpu.writer import load_several
from dlc.lowering.kernel_code.words import iterate, unravel
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target import gpu_of
from dlc.target.gpu import GpuTarget

DOWN, ACROSS = 8, 16
"""The threads of a block, as rows and columns of scores."""
UNIT = 4
"""Elements of a vector load."""
FEW = 64
"""Elements of a head up to which shared memory has room for tiles of 32 x 32."""


def lower_attention_gradient(op: AttentionGradient, context: Context) -> Lowered:
    """The function for one gradient in destination form."""
    cls = MatrixAttentionGradient if by_matrices(op, context.options) else _Gradient
    return cls(op, gpu_of(context.options)).lower()


class _Gradient(TiledAttentionGradient):
    def __init__(self, op: AttentionGradient, gpu: GpuTarget) -> None:
        side = 32 if max(elements_of(op)) <= FEW else 16
        super().__init__(op, DOWN * ACROSS, (side, side), gpu.costs.attention_gradient)
        self.layout = [layout_of(F32, side, elements) for elements in self.elements]
        """The shared-memory layouts of queries or keys, and of output gradients or values."""
        self.weights = layout_of(F32, side, side)
        self.down, self.across = unravel(self.writer.thread, [ACROSS] * 2)
        self.results = range(2 if op.by_keys else 1)
        """The gradients that are written: of queries; or of keys and of values."""

    def write(self, batch: Sequence[Expr], first: Expr) -> None:
        own, walked = ([self._buffer(layout) for layout in self.layout] for _ in range(2))
        weights = [self._buffer(self.weights) for _ in self.results]
        self._load(batch, self.own, (first, self.count_of_rows()), own)
        rows = [first + self.down + DOWN * k for k in range(self._tall)]

        def walk_step(start: Expr, sums: list[Expr]) -> list[Expr]:
            return self._add_tile(batch, rows, start, (own, walked, weights), sums)

        emit = self.writer.emit
        zeros = [constant(emit, 0, F32)] * sum(map(self._sums, self.results))
        begin, end = self.range(first)
        sums = iterate(emit, begin, end, zeros, walk_step, self.columns)
        for which, own_sums in zip(self.results, self._by_result(sums), strict=True):
            self._write_results(batch, rows, which, own_sums)

    def _add_tile(
        self,
        batch: Sequence[Expr],
        rows: Sequence[Expr],
        start: Expr,
        buffers: tuple[Sequence[Pointer], Sequence[Pointer], Sequence[Pointer]],
        sums: Sequence[Expr],
    ) -> list[Expr]:
        """The sums with the contributions of the columns from `start` on."""
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
        """Start to copy rows of two operands; `rows` are the first one and the limit."""
        for view, layout, buffer in zip(views, self.layout, buffers, strict=True):
            load_rows(self.writer, view, batch, rows, layout, buffer)

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
        """Units of a row's gradient that a thread adds up."""
        return -(-self.layout[which].units // ACROSS)

    def _sums(self, which: int) -> int:
        return self._tall * self._units(which) * UNIT

    def _buffer(self, layout: SharedLayout) -> Pointer:
        return self.writer.shared(layout.bytes // F32.bytes, F32)

    # One tile of columns.

    def _products(self, which: int, own: Pointer, walked: Pointer) -> list[Expr]:
        """The products of the thread's rows and columns, row by row."""
        layout, emit = self.layout[which], self.writer.emit

        def unit(k: Expr, sums: list[Expr]) -> list[Expr]:
            down = [self._row(layout, own, r, k) for r in range(self._tall)]
            across = [self._column(layout, walked, c, k) for c in range(self._wide)]
            pairs = [(one, other) for one in down for other in across]
            return [_dot(*pair, sum) for pair, sum in zip(pairs, sums, strict=True)]

        zeros = [constant(emit, 0, F32)] * (self._tall * self._wide)
        return iterate(emit, 0, layout.units, zeros, unit)

    def _row(self, layout: SharedLayout, buffer: Pointer, which: int, unit: Expr) -> list[Expr]:
        """A unit of one of the thread's rows."""
        line = self.down + DOWN * which
        return load_several(buffer, layout.offset(line, unit, self.down), UNIT)

    def _column(self, layout: SharedLayout, buffer: Pointer, which: int, unit: Expr) -> list[Expr]:
        """A unit of one of the thread's columns."""
        line = self.across + ACROSS * which
        return load_several(buffer, layout.offset(line, unit, line), UNIT)

    def _weigh(
        self,
        batch: Sequence[Expr],
        rows: Sequence[Expr],
        start: Expr,
        products: Sequence[Sequence[Expr]],
        buffers: Sequence[Pointer],
    ) -> None:
        """Store the gradients of the thread's scores in shared memory, and `by_keys` their weights."""
        own = [self.across + ACROSS * c for c in range(self._wide)]
        columns = [start + column for column in own]
        queries = columns if self.op.by_keys else rows
        of_queries = [self.statistics(batch, query) for query in queries]
        for position, pair in enumerate(zip(*products, strict=True)):
            r, c = divmod(position, self._wide)
            statistics = of_queries[c if self.op.by_keys else r]
            p, ds = self.weigh(batch, (rows[r], columns[c]), pair, statistics)
            line = self.down + DOWN * r
            unit, rest = unravel(own[c], [UNIT] * 2)
            offset = self.weights.offset(line, unit, self.down) + rest
            for buffer, value in zip(buffers, (ds, p), strict=False):
                buffer[offset] = value

    def _added(
        self, which: int, weights: Pointer, walked: Pointer, sums: Sequence[Expr]
    ) -> list[Expr]:
        """Add the columns, weighted, to the thread's elements of its rows' gradients."""
        layout = self.layout[which]
        units = [minimum(unit, layout.units - 1) for unit in self._own(which)]

        def walk_step(k: Expr, sums: list[Expr]) -> list[Expr]:
            factors = [self._row(self.weights, weights, r, k) for r in range(self._tall)]
            for step in range(UNIT):
                line = k * UNIT + step
                elements = [
                    element
                    for unit in units
                    for element in load_several(walked, layout.offset(line, unit, line), UNIT)
                ]
                pairs = [(factor[step], element) for factor in factors for element in elements]
                sums = [fma(*pair, sum) for pair, sum in zip(pairs, sums, strict=True)]
            return sums

        return iterate(self.writer.emit, 0, self.columns // UNIT, sums, walk_step)

    def _own(self, which: int) -> list[Expr]:
        """The thread's units of a row's gradient; some may be beyond the last."""
        return [self.across + ACROSS * k for k in range(self._units(which))]

    def _write_results(
        self, batch: Sequence[Expr], rows: Sequence[Expr], which: int, sums: Sequence[Expr]
    ) -> None:
        along = [unit * UNIT + k for unit in self._own(which) for k in range(UNIT)]
        positions = [(row, element) for row in rows for element in along]
        for position, sum in zip(positions, sums, strict=True):
            self.store(batch, which, position, sum)


def _dot(one: Sequence[Expr], other: Sequence[Expr], sum: Expr) -> Expr:
    for pair in zip(one, other, strict=True):
        sum = fma(*pair, sum)
    return sum
