"""`kernel.cached_attention` on a CPU: a tile is one query, which walks the keys up to its own place.

Keys and values are read where they lie, some keys at a time (online softmax, Milakov & Gimelshein 2018):
their scores, relative to the running maximum, weigh their values, and what was summed before is rescaled.
So the work follows the position and not the capacity of the cache, and needs no memory but a few numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects import kernel
from dlc.dialects.expr import (
    Expr,
    Index,
    Pointer,
    broadcast,
    constant,
    fma,
    maximum,
    minimum,
    reduce_lanes,
)
from dlc.dialects.kernel.attention import CachedAttention
from dlc.ir.dims import minimum as smaller
from dlc.ir.dims import product
from dlc.ir.passes import Context
from dlc.ir.types import INDEX, wide
from dlc.lowering.cpu.attention import MINUS_INFINITY, softmax_base
from dlc.lowering.kernel_code.register_rows import reduce_row
from dlc.lowering.kernel_code.words import for_each, iterate, unravel
from dlc.lowering.kernel_code.writer import Lowered, Writer
from dlc.target import cpu_of
from dlc.target.work import nanoseconds

BLOCK = 64
"""Keys whose scores are computed before their values are added."""
EXPECTED = 512
"""Keys that a query is assumed to see where work is shared: only the call knows its position."""
SUMS = 8
"""Registers of sums of values, which stay in registers through a block."""


def lower_cached_attention(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for an attention over a cache in destination form."""
    assert isinstance(op, CachedAttention)
    return _CachedAttention(op, context).lower()


@dataclass(frozen=True, slots=True)
class _Row:
    """A query in registers, the keys and values that it may see, and the memory of its block."""

    query: list[Expr]
    keys: Pointer
    values: Pointer
    scores: Pointer
    sums: Pointer


class _CachedAttention:
    def __init__(self, op: CachedAttention, context: Context) -> None:
        self.op = op
        self.writer = Writer(op)
        self.emit = self.writer.emit
        query, keys, values, _ = map(kernel.array_type, op.inputs)
        *self.batch, self.m, depth = query.shape
        self.n = keys.shape[-2]
        self.depth, self.width = _known(depth), _known(values.shape[-1])
        self.cpu = cpu_of(context.options)
        self.dtype = wide(query.dtype)
        self.lanes = self.cpu.lanes(self.dtype)

    def lower(self) -> Lowered:
        writer = self.writer
        counts = [writer.size(size, "count", k) for k, size in enumerate((*self.batch, self.m))]
        with for_each(self.emit, writer.first, writer.last) as number:
            self._query(unravel(number, counts))
        costs = self.cpu.costs
        each = (self.depth + self.width) * costs.attention_product
        each += costs.attention_exp // self.lanes
        work = smaller(self.n, EXPECTED) * each
        return writer.finish(product((*self.batch, self.m)), nanoseconds(work))

    def _query(self, place: list[Expr]) -> None:
        """The result of one query."""
        emit, zero = self.emit, constant(self.emit, 0, self.dtype)
        row = self._row(place)
        with for_each(emit, 0, self.width) as j:
            row.sums[j] = zero
        position = self.writer.load(3, []).cast(INDEX)
        seen = minimum(maximum(position + place[-1] + 1, 0), self.writer.size(self.n, "n"))

        def block(number: Expr, state: list[Expr]) -> list[Expr]:
            start = number * BLOCK
            return self._block(row, start, minimum(seen - start, BLOCK), *state)

        lowest = constant(emit, MINUS_INFINITY, self.dtype)
        blocks = (seen + (BLOCK - 1)) // BLOCK
        _, total = iterate(emit, 0, blocks, [lowest, zero], block)
        self._write(place, row, total)

    def _row(self, place: list[Expr]) -> _Row:
        query = self.writer.part(0, place)
        registers = [self._load(query, at, lanes) for at, lanes in self._segments(self.depth)]
        keys, values = (self._shared(view, place[:-1]) for view in (1, 2))
        scores, sums = (self.writer.buffer(size, self.dtype) for size in (BLOCK, self.width))
        return _Row(registers, keys, values, scores, sums)

    def _shared(self, view: int, batch: list[Expr]) -> Pointer:
        """The keys or values of a batch, which may be those of several."""
        shape = self.writer.views[view].shape
        indices: list[Index] = [0 if shape[k] == 1 else i for k, i in enumerate(batch)]
        return self.writer.part(view, indices)

    def _segments(self, length: int) -> list[tuple[int, int]]:
        """Registers that cover a row, and single elements at its end: each with its first element."""
        whole = length // self.lanes * self.lanes
        registers = [(at, self.lanes) for at in range(0, whole, self.lanes)]
        return [*registers, *[(at, 1) for at in range(whole, length)]]

    def _load(self, pointer: Pointer, at: Index, lanes: int) -> Expr:
        return pointer.load(at, lanes).cast(self.dtype)

    # A block of keys.

    def _block(self, row: _Row, start: Expr, count: Expr, largest: Expr, total: Expr) -> list[Expr]:
        """The largest score and the sum of exponentials, after a block of keys."""
        keys = row.keys + start * self._stride(1)
        with for_each(self.emit, 0, count) as j:
            row.scores[j] = self._score(row, keys + j * self._stride(1))
        most = reduce_row("maximum", MINUS_INFINITY, count, self.lanes, self.dtype, row.scores.load)
        new = maximum(largest, most)
        base = softmax_base(new)
        factor = (largest - base).exp()

        def exponential(j: Expr, lanes: int) -> Expr:
            value = (row.scores.load(j, lanes) - broadcast(base, lanes)).exp()
            row.scores.store(j, value)
            return value

        sum = reduce_row("add", 0, count, self.lanes, self.dtype, exponential)
        self._add_values(row, row.values + start * self._stride(2), count, factor)
        return [new, total * factor + sum]

    def _stride(self, view: int) -> Index:
        """Elements from one key or value to the next."""
        return self.writer.stride(view, len(self.writer.views[view].shape) - 2)

    def _score(self, row: _Row, key: Pointer) -> Expr:
        """The scaled product of the query and a key."""
        parts: dict[int, Expr] = {}
        for (at, lanes), query in zip(self._segments(self.depth), row.query, strict=True):
            element = self._load(key, at, lanes)
            before = parts.get(lanes)
            parts[lanes] = query * element if before is None else fma(query, element, before)
        sums = [reduce_lanes("add", x) if lanes > 1 else x for lanes, x in parts.items()]
        total = sums[0]
        for more in sums[1:]:
            total = total + more
        return total * self.op.scale

    def _add_values(self, row: _Row, values: Pointer, count: Expr, factor: Expr) -> None:
        """Scale what was summed before, and add the values, each weighted by its exponential."""
        segments = self._segments(self.width)
        for first in range(0, len(segments), SUMS):
            group = segments[first : first + SUMS]
            before = [row.sums.load(at, lanes) * broadcast(factor, lanes) for at, lanes in group]

            def add(j: Expr, sums: list[Expr], group: list[tuple[int, int]] = group) -> list[Expr]:
                weight, value = row.scores[j], values + j * self._stride(2)
                return [
                    fma(broadcast(weight, lanes), self._load(value, at, lanes), sum)
                    for (at, lanes), sum in zip(group, sums, strict=True)
                ]

            after = iterate(self.emit, 0, count, before, add)
            for (at, _), sum in zip(group, after, strict=True):
                row.sums.store(at, sum)

    def _write(self, place: list[Expr], row: _Row, total: Expr) -> None:
        """Divide the sums by the sum of exponentials."""
        result = self.writer.part(4, place)
        for at, lanes in self._segments(self.width):
            value = row.sums.load(at, lanes) / broadcast(total, lanes)
            result.store(at, value.cast(result.dtype))


def _known(size: object) -> int:
    assert isinstance(size, int), "rows of unknown length are decomposed"
    return size
