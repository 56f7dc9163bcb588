"""`TfIdfVectorizer`: how often each n-gram of a list occurs in rows of integers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlc.dialects import array
from dlc.dialects.array.shape import reshape
from dlc.dialects.nn.rows import along, in_dtype
from dlc.importers.onnx.node_context import Constant, Importer, NodeContext, NodeResults
from dlc.ir.core import Value
from dlc.ir.dims import Shape
from dlc.ir.types import BOOL, F32, I64, TensorType

MODES = ("TF", "IDF", "TFIDF")
MOST_SKIPPED = 256
"""Each number of skipped elements is counted by operations of its own."""


@dataclass(frozen=True, slots=True)
class _Grams:
    """The n-grams of one size, and the place of each in the result."""

    size: int
    items: tuple[tuple[int, ...], ...]
    places: tuple[int, ...]


def _vectorized(context: NodeContext) -> NodeResults:
    """Counts in f32: `[places]` for one row of integers, `[rows, places]` for several."""
    emit, type = context.emit, context.type(0)
    mode, places = context.text("mode", ""), context.list("ngram_indexes") or ()
    shortest = context.integer("min_gram_length")
    longest = context.integer("max_gram_length")
    if mode not in MODES or not places or min(places) < 0 or not 1 <= shortest <= longest:
        raise context.wrong(f"in mode {mode!r} counts grams of {shortest} to {longest} elements")
    if "pool_strings" in context.node.attributes or type.rank not in (1, 2):
        raise context.unsupported("of strings, or of more than two axes, is not imported")
    x = in_dtype(emit, context.value(0), I64)
    if type.rank == 1:
        x = reshape(emit, x, (1, *type.shape))
    width = max(places) + 1
    whole = array.fill(emit, 0, TensorType(F32, (array.tensor_type(x).shape[0], width)))
    for grams in _pool(context, places):
        if shortest <= grams.size <= longest and grams.items:
            counts = _counts(context, x, grams)
            whole = emit(array.Add(whole, _placed(context, counts, grams, width)))
    weighted = _weighted(context, whole, mode, places)
    return reshape(emit, weighted, (width,)) if type.rank == 1 else weighted


def _pool(context: NodeContext, places: tuple[int, ...]) -> list[_Grams]:
    """The n-grams by their size: `ngram_counts` says where those of each size begin in the pool."""
    pool, starts = context.list("pool_int64s") or (), context.list("ngram_counts") or ()
    ends = (*starts[1:], len(pool))
    found: list[_Grams] = []
    first = 0
    for size, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
        count, rest = divmod(end - start, size)
        if rest or not 0 <= start <= end or first + count > len(places):
            raise context.wrong(f"has no whole {size}-grams from {start} to {end} of its pool")
        items = [tuple(pool[start + k * size : start + (k + 1) * size]) for k in range(count)]
        # Of equal ones the last counts.
        last = dict(zip(items, places[first : first + count], strict=True))
        found.append(_Grams(size, tuple(last), tuple(last.values())))
        first += count
    return found


def _counts(context: NodeContext, x: Value, grams: _Grams) -> Value:
    """How often each n-gram occurs in each row, with up to `max_skip_count` elements between its own."""
    emit, (rows, length) = context.emit, array.tensor_type(x).shape
    if not isinstance(length, int):
        raise context.unsupported("of rows whose size is not a number is not imported")
    skips = context.integer("max_skip_count", 0) if grams.size > 1 else 0
    if not 0 <= skips <= MOST_SKIPPED:
        raise context.unsupported(
            f"with {skips} skipped elements; 0 to {MOST_SKIPPED} are imported"
        )
    counts = array.fill(emit, 0, TensorType(F32, (rows, len(grams.items))))
    elements = np.asarray(grams.items, np.int64)
    for step in range(1, skips + 2):
        starts = length - step * (grams.size - 1)
        if starts < 1:
            break
        shape: Shape = (rows, starts, len(grams.items))
        is_found = array.fill(emit, True, TensorType(BOOL, shape))
        for k in range(grams.size):
            part = array.slice_axis(emit, x, 1, k * step, k * step + starts)
            here = emit(array.Broadcast(part, shape, (0, 1)))
            wanted = context.as_value(Constant(np.ascontiguousarray(elements[:, k]), I64))
            same = emit(array.Compare(here, emit(array.Broadcast(wanted, shape, (2,))), "eq"))
            is_found = emit(array.And(is_found, same))
        number = emit(array.ReduceSum(in_dtype(emit, is_found, F32), (1,)))
        counts = emit(array.Add(counts, number))
    return counts


def _placed(context: NodeContext, counts: Value, grams: _Grams, width: int) -> Value:
    """The counts in the places of their n-grams: those of one place are added."""
    where = np.zeros((len(grams.items), width), np.float32)
    where[np.arange(len(grams.items)), grams.places] = 1
    return context.emit(array.MatMul(counts, context.as_value(Constant(where, F32))))


def _weighted(context: NodeContext, counts: Value, mode: str, places: tuple[int, ...]) -> Value:
    """The counts, their weights where there are any, or both multiplied."""
    emit = context.emit
    if mode == "IDF":
        zero = array.constant_like(emit, 0, counts)
        is_found = emit(array.Compare(counts, zero, "gt"))
        counts = in_dtype(emit, is_found, F32)
    if mode == "TF" or "weights" not in context.node.attributes:
        return counts
    weights = context.numbers("weights")
    if list(places) != list(range(len(weights))):
        # ONNX's text gives weights to n-grams, its evaluator to places.
        raise context.unsupported("with weights of n-grams that are not in the order of the pool")
    row = context.as_value(Constant(np.asarray(weights, np.float32), F32))
    return emit(array.Multiply(counts, along(emit, row, counts, (1,))))


IMPORTERS: dict[str, Importer] = {"TfIdfVectorizer": _vectorized}
