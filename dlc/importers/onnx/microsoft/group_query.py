"""Attention whose queries share keys and values in groups, with a cache, and rotary embeddings.

Shapes: batch b, heads n, heads of keys and values g, queries s, keys t, numbers of a head d.
"""

from __future__ import annotations

import math

from dlc.dialects import array, nn
from dlc.dialects.array.arithmetic import plus, times
from dlc.dialects.array.index import take_along
from dlc.dialects.array.linear import swap_last
from dlc.dialects.array.pieces import slice_axis
from dlc.dialects.array.shape import reshape
from dlc.dialects.nn.rows import in_dtype, numbers, widened
from dlc.importers.onnx.microsoft.heads import masked, merged, split
from dlc.importers.onnx.node_context import Constant, NodeContext, NodeResults, stretched
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Size
from dlc.ir.types import I32, I64, TensorType

# Rotary embeddings --------------------------------------------------------------------------------


def rotary_embedding(context: NodeContext) -> NodeResults:
    """Operands: x [b, s, n * d] or [b, n, s, d], places [1] or [b, s], cosines and sines [t, d / 2]."""
    emit, x = context.emit, context.value(0)
    if context.number("scale", 1.0) != 1:
        raise context.unsupported("with a scale is not imported")
    if context.flag("is_packed_batching"):
        raise context.unsupported("of packed batches is not imported")
    is_flat = array.tensor_type(x).rank == 3
    if is_flat:
        x = split(context, x, _heads(context, x))
    b, _, s, _ = array.tensor_type(x).shape
    places = context.value(1)
    if array.tensor_type(places).rank < 2:
        counted = array.iota(emit, TensorType(I64, (b, s)), 1)
        first = in_dtype(emit, reshape(emit, places, ()), I64)
        places = emit(array.Add(counted, stretched(emit, first, (b, s))))
    turned = _rotated(context, x, places, 2, interleaved=context.flag("interleaved"))
    return merged(emit, turned) if is_flat else turned


def _heads(context: NodeContext, x: Value) -> int:
    """The number of heads, which follows from the cosines where the whole of each head is turned."""
    heads = context.integer("num_heads", 0)
    width, half = array.tensor_type(x).shape[-1], context.type(2).shape[-1]
    if not heads and isinstance(width, int) and isinstance(half, int):
        heads = width // (2 * half)
    return heads


def _rotated(
    context: NodeContext, x: Value, places: Value, index: int, *, interleaved: bool
) -> Value:
    """Pairs of the first numbers of each head, turned by the angles of their places [b, s].

    Operands `index` and `index + 1` have the cosines and sines of each place. The pairs are neighbours if
    `interleaved`, else those of two halves.
    """
    emit = context.emit
    b, n, s, d = array.tensor_type(x).shape
    tables = (context.value(index), context.value(index + 1))
    half = array.tensor_type(tables[0]).shape[1]
    whole = 2 * half
    cosine, sine = (
        emit(
            array.Broadcast(emit(array.Gather(table, (places,), (0,))), (b, n, s, half), (0, 2, 3))
        )
        for table in tables
    )
    part = x if whole == d else slice_axis(emit, x, 3, 0, whole)
    axis = 4 if interleaved else 3
    pairs = reshape(emit, part, (b, n, s, half, 2) if interleaved else (b, n, s, 2, half))
    one, other = (
        reshape(emit, slice_axis(emit, pairs, axis, k, k + 1), (b, n, s, half)) for k in (0, 1)
    )

    def turned(x: Value, y: Value, kind: type[array.Add | array.Subtract]) -> Value:
        by_cosine, by_sine = emit(array.Multiply(x, cosine)), emit(array.Multiply(y, sine))
        single = (b, n, s, half, 1) if interleaved else (b, n, s, 1, half)
        return reshape(emit, emit(kind(by_cosine, by_sine)), single)

    both = (turned(one, other, array.Subtract), turned(other, one, array.Add))
    y = reshape(emit, emit(array.Concatenate(both, axis)), (b, n, s, whole))
    if whole == d:
        return y
    return emit(array.Concatenate((y, slice_axis(emit, x, 3, whole, d)), 3))


# Attention ----------------------------------------------------------------------------------------

REFUSED_OPERANDS = {
    11: "with a sink",
    12: "with a quantised cache",
    14: "with normalised queries",
    16: "with padded queries",
}
REFUSED_FLAGS = ("sliding_window_cache", "smooth_softmax", "qk_output")


def group_query_attention(context: NodeContext) -> NodeResults:
    """Operands: query [b, s, n * d] (or all three side by side), key and value [b, s, g * d], past keys and
    values [b, g, p, d], the last place of each row [b], the number of keys, cosines, sines, places [b, s],
    scores' bias [b, n, s, t].

    Row b has `last[b] + 1 - s` keys from the cache, and none before a first prompt; the new ones follow
    them. What the results have behind the last place is not stated.
    """
    _check_group_query(context)
    emit = context.emit
    query, keys, values = _three(context)
    b, _, s, _ = array.tensor_type(query).shape
    last = in_dtype(emit, reshape(emit, context.value(5), (b,)), I32)
    behind = emit(array.Subtract(plus(emit, last, 1), numbers(emit, s, TensorType(I32, (b,)))))
    past = emit(array.Maximum(behind, array.constant_like(emit, 0, behind)))
    if context.flag("do_rotary"):
        places = _places(context, past, s)
        interleaved = context.flag("rotary_interleaved")
        query, keys = (
            _rotated(context, part, places, 7, interleaved=interleaved) for part in (query, keys)
        )
    if context.operand(3) is not None:
        total = _total(context, s)
        keys = _behind(emit, context.value(3), keys, past, total)
        values = _behind(emit, context.value(4), values, past, total)
    y = _attended(context, query, keys, values, past)
    return [merged(emit, y), keys, values][: max(1, len(context.node.outputs))]


def _check_group_query(context: NodeContext) -> None:
    for index, what in REFUSED_OPERANDS.items():
        if context.operand(index) is not None:
            raise context.unsupported(f"{what} is not imported")
    for flag in REFUSED_FLAGS:
        if context.flag(flag):
            raise context.unsupported(f"with {flag} is not imported")


def _three(context: NodeContext) -> list[Value]:
    """Queries [b, n, s, d], keys and values [b, g, s, d]."""
    query, key = context.value(0), context.optional(1)
    n, g = context.integer("num_heads"), context.integer("kv_num_heads")
    if g < 1 or n % g:
        raise context.wrong(f"shares {g} heads of keys among {n} of queries")
    if key is not None:
        parts = ((query, n), (key, g), (context.value(2), g))
        return [split(context, part, heads) for part, heads in parts]
    d = array.tensor_type(query).shape[2] // (n + 2 * g)
    found: list[Value] = []
    start: Size = 0
    for heads in (n, g, g):
        part = slice_axis(context.emit, query, 2, start, start + d * heads)
        found.append(split(context, part, heads))
        start = start + d * heads
    return found


def _places(context: NodeContext, past: Value, s: Size) -> Value:
    """The place of each new token [b, s]."""
    emit = context.emit
    given = context.optional(9)
    shape = (*array.tensor_type(past).shape, s)
    if given is not None:
        return stretched(emit, given, shape)
    counted = array.iota(emit, TensorType(I32, shape), 1, I32)
    return emit(array.Add(counted, emit(array.Broadcast(past, shape, (0,)))))


def _total(context: NodeContext, s: Size) -> Size:
    """The number of keys: that of the cache and the new ones where a call decides it."""
    operand = context.needed(6)
    if isinstance(operand, Constant):
        return context.sizes(6)[0]
    return context.type(3).shape[2] + s


def _behind(emit: Builder, cache: Value, new: Value, past: Value, total: Size) -> Value:
    """Keys or values [b, g, total, d]: `past[b]` of the cache, then the new ones."""
    both = emit(array.Concatenate((cache, new), 2))
    b, g, length, d = array.tensor_type(both).shape
    capacity = array.tensor_type(cache).shape[2]
    shape = TensorType(I32, (b, g, total, d))
    place = array.iota(emit, shape, 2, I32)
    kept = emit(array.Broadcast(past, shape.shape, (0,)))
    skipped = emit(array.Subtract(numbers(emit, capacity, shape), kept))
    later = emit(array.Add(place, skipped))
    index = emit(array.Select(emit(array.Compare(place, kept, "lt")), place, later))
    end = numbers(emit, length - 1, shape)
    return take_along(emit, both, emit(array.Minimum(index, end)), 2)


def _attended(context: NodeContext, query: Value, keys: Value, values: Value, past: Value) -> Value:
    """The result [b, n, s, d]."""
    emit = context.emit
    b, n, s, d = array.tensor_type(query).shape
    if not isinstance(d, int):
        raise context.unsupported("takes heads whose size is a number")
    keys, values = (_repeated(emit, part, n) for part in (keys, values))
    scores = array.tensor_type(query).with_shape((b, n, s, array.tensor_type(keys).shape[2]))
    added = context.optional(10)
    if added is not None:
        added = stretched(emit, added, scores.shape)
    if context.flag("causal", default=True):
        added = masked(emit, _seen(context, scores, past), added, scores)
    scale = context.number("scale", 0.0) or 1 / math.sqrt(d)
    cap = context.number("softcap", 0.0)
    if cap:
        return _capped(emit, (query, keys, values), added, scale, cap)
    return emit(nn.Attention(query, keys, values, () if added is None else (added,), scale))


def _repeated(emit: Builder, part: Value, heads: Size) -> Value:
    """Keys or values [b, g, t, d] for each head of the queries, [b, n, t, d]."""
    b, g, t, d = array.tensor_type(part).shape
    if g == heads:
        return part
    wide = emit(array.Broadcast(part, (b, g, heads // g, t, d), (0, 1, 3, 4)))
    return reshape(emit, wide, (b, heads, t, d))


def _seen(context: NodeContext, scores: TensorType, past: Value) -> Value:
    """Where key j is one of those up to `past + i` of query i, and of the last `local_window_size`."""
    emit = context.emit
    type = scores.with_dtype(I32)
    place = array.iota(emit, type, 3, I32)
    first = emit(array.Broadcast(past, type.shape, (0,)))
    last = emit(array.Add(array.iota(emit, type, 2, I32), first))
    seen = emit(array.Compare(place, last, "le"))
    window = context.integer("local_window_size", -1)
    if window < 0:
        return seen
    oldest = plus(emit, last, -window)
    return emit(array.And(seen, emit(array.Compare(place, oldest, "gt"))))


def _capped(
    emit: Builder,
    three: tuple[Value, Value, Value],
    added: Value | None,
    scale: float,
    cap: float,
) -> Value:
    """Attention whose scores are `cap * tanh(score / cap)` before anything is added to them."""
    query, keys, values = (widened(emit, part) for part in three)
    scores = times(emit, emit(array.MatMul(query, swap_last(emit, keys))), scale / cap)
    scores = times(emit, emit(array.Tanh(scores)), cap)
    if added is not None:
        scores = emit(array.Add(scores, widened(emit, added)))
    y = emit(array.MatMul(emit(nn.Softmax(scores, 3)), values))
    return in_dtype(emit, y, array.tensor_type(three[0]).dtype)
