"""`kernel.attention_gradient` for a GPU in f32: scores in registers, their factors in shared memory.

A block of 128 threads has 32 rows and 32 columns at a time, 16 where heads have more than 64 elements.
Each thread computes a few scores, the weights go to shared memory, and each thread adds up its elements of
what the rows receive. f16 and bf16, and f32 that may be rounded to tf32, are computed by matrix
instructions (`dlc.lowering.matrix_attention_gradient`).
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, loop, scalar, simt
from dlc.dialects.kernel_attention import AttentionGradient
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.passes import Context
from dlc.ir.types import F32
from dlc.lowering.formula import number
from dlc.lowering.loop_words import for_each, index, minimum, unravel
from dlc.lowering.loop_writer import Lowered
from dlc.lowering.matrix_attention_gradient import MatrixAttentionGradient
from dlc.lowering.shared_lines import Lines, multiple, plus
from dlc.lowering.tiled_attention_gradient import TiledAttentionGradient, elements_of
from dlc.lowering.warp_matrices import bring_rows, by_matrices, lines_of
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
        emit = self.writer.emit
        self.down, self.across = unravel(emit, self.writer.thread, [index(emit, ACROSS)] * 2)

    def write(self, emit: Builder, batch: Sequence[Value], first: Value) -> None:
        own, walked = ([self._room(emit, lines) for lines in self.lines] for _ in range(2))
        sums_of = range(2 if self.op.by_keys else 1)
        weights = [self._room(emit, self.weights) for _ in sums_of]
        limit = self.count_of_rows()
        for view, lines, room in zip(self.own, self.lines, own, strict=True):
            bring_rows(self.writer, emit, view, batch, (first, limit), lines, room)
        rows = [plus(emit, plus(emit, first, self.down), DOWN * k) for k in range(self._tall)]

        def some(deep: Builder, start: Value, carried: list[Value]) -> Sequence[Value]:
            end = self.count_of_columns()
            for view, lines, room in zip(self.walked, self.lines, walked, strict=True):
                bring_rows(self.writer, deep, view, batch, (start, end), lines, room)
            deep.place(simt.Commit())
            deep.place(simt.Wait(0))
            deep.place(simt.Barrier())
            products = [self._products(deep, k, own[k], walked[k]) for k in range(2)]
            self._weigh(deep, batch, rows, start, products, weights)
            deep.place(simt.Barrier())
            found = list[Value]()
            for which in sums_of:
                count = self._sums(which)
                mine, carried = carried[:count], carried[count:]
                found += self._added(deep, which, weights[which], walked[which], mine)
            deep.place(simt.Barrier())
            return found

        nothing = [number(emit, 0, F32)] * sum(self._sums(which) for which in sums_of)
        begin, end = self.range(emit, first)
        found = list(for_each(emit, begin, end, self.columns, nothing, some))
        for which in sums_of:
            count = self._sums(which)
            self._finish(emit, batch, rows, which, found[:count])
            found = found[count:]

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

    def _room(self, emit: Builder, lines: Lines) -> Value:
        return emit(simt.Shared(lines.bytes // F32.bytes, F32))

    # The steps for some columns.

    def _products(self, emit: Builder, which: int, own: Value, walked: Value) -> Sequence[Value]:
        """The products of the thread's rows and columns, row by row."""
        lines = self.lines[which]

        def unit(deep: Builder, k: Value, sums: list[Value]) -> Sequence[Value]:
            down = [self._row(deep, lines, own, r, k) for r in range(self._tall)]
            across = [self._column(deep, lines, walked, c, k) for c in range(self._wide)]
            pairs = [(one, other) for one in down for other in across]
            return [_dot(deep, *pair, sum) for pair, sum in zip(pairs, sums, strict=True)]

        zeros = [number(emit, 0, F32)] * (self._tall * self._wide)
        return for_each(emit, index(emit, 0), index(emit, lines.units), 1, zeros, unit)

    def _row(
        self, emit: Builder, lines: Lines, room: Value, which: int, unit: Value
    ) -> Sequence[Value]:
        """A unit of one of the thread's rows."""
        line = plus(emit, self.down, DOWN * which)
        return _read(emit, room, lines.place(emit, line, unit, self.down))

    def _column(
        self, emit: Builder, lines: Lines, room: Value, which: int, unit: Value
    ) -> Sequence[Value]:
        """A unit of one of the thread's columns."""
        line = plus(emit, self.across, ACROSS * which)
        return _read(emit, room, lines.place(emit, line, unit, line))

    def _weigh(
        self,
        emit: Builder,
        batch: Sequence[Value],
        rows: Sequence[Value],
        start: Value,
        products: Sequence[Sequence[Value]],
        rooms: Sequence[Value],
    ) -> None:
        """Put what the thread's scores receive into shared memory, and `by_keys` their weights."""
        own = [plus(emit, self.across, ACROSS * c) for c in range(self._wide)]
        columns = [plus(emit, start, column) for column in own]
        queries = columns if self.op.by_keys else rows
        known = [self.statistics(emit, batch, query) for query in queries]
        for place, pair in enumerate(zip(*products, strict=True)):
            r, c = divmod(place, self._wide)
            statistics = known[c if self.op.by_keys else r]
            p, ds = self.weigh(emit, batch, (rows[r], columns[c]), pair, statistics)
            line = plus(emit, self.down, DOWN * r)
            unit, rest = unravel(emit, own[c], [index(emit, UNIT)] * 2)
            there = plus(emit, self.weights.place(emit, line, unit, self.down), rest)
            for room, value in zip(rooms, (ds, p), strict=False):
                emit.place(loop.Store(value, room, there))

    def _added(
        self, emit: Builder, which: int, weights: Value, walked: Value, sums: Sequence[Value]
    ) -> tuple[Value, ...]:
        """Add the columns, weighted, to the thread's elements of what its rows receive."""
        lines = self.lines[which]
        units = [
            minimum(emit, unit, index(emit, lines.units - 1)) for unit in self._own(emit, which)
        ]

        def some(deep: Builder, k: Value, carried: list[Value]) -> Sequence[Value]:
            factors = [self._row(deep, self.weights, weights, r, k) for r in range(self._tall)]
            found = carried
            for step in range(UNIT):
                line = plus(deep, multiple(deep, k, UNIT), step)
                there = [
                    one
                    for unit in units
                    for one in _read(deep, walked, lines.place(deep, line, unit, line))
                ]
                pairs = [(factor[step], one) for factor in factors for one in there]
                found = [
                    deep(scalar.Fma(*pair, sum)) for pair, sum in zip(pairs, found, strict=True)
                ]
            return found

        end = index(emit, self.columns // UNIT)
        return for_each(emit, index(emit, 0), end, 1, sums, some)

    def _own(self, emit: Builder, which: int) -> list[Value]:
        """The units of a row's elements that are the thread's; some may be beyond the last."""
        return [plus(emit, self.across, ACROSS * k) for k in range(self._units(which))]

    def _finish(
        self,
        emit: Builder,
        batch: Sequence[Value],
        rows: Sequence[Value],
        which: int,
        sums: Sequence[Value],
    ) -> None:
        along = [
            plus(emit, multiple(emit, unit, UNIT), k)
            for unit in self._own(emit, which)
            for k in range(UNIT)
        ]
        places = [(row, element) for row in rows for element in along]
        for place, sum in zip(places, sums, strict=True):
            self.store(emit, batch, which, place, sum)


def _read(emit: Builder, room: Value, place: Value) -> Sequence[Value]:
    return emit.all(simt.Load(room, place, F32, UNIT))


def _dot(emit: Builder, one: Sequence[Value], other: Sequence[Value], sum: Value) -> Value:
    for pair in zip(one, other, strict=True):
        sum = emit(scalar.Fma(*pair, sum))
    return sum
