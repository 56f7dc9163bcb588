"""Attention of com.microsoft, with its projections, masks and caches of keys and values.

A mask of integers adds `mask_filter_value` (-10000) to the scores that it hides; a row that hides all is a
softmax of what is left. Shapes: batch b, heads n, queries s, keys t, numbers of a head d.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlc.dialects import array
from dlc.dialects.array.pieces import slice_axis
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.nn.rows import in_dtype
from dlc.importers.onnx.microsoft import group_query
from dlc.importers.onnx.microsoft.heads import attend, cached, merged, split
from dlc.importers.onnx.microsoft.quantized import integer_product, real_sums
from dlc.importers.onnx.node_context import Importer, NodeContext, NodeResults, stretched
from dlc.importers.onnx.operators.products import matmul
from dlc.importers.onnx.operators.quantized import quantization
from dlc.ir.core import Value
from dlc.ir.dims import Shape, Size
from dlc.ir.types import I32


@dataclass(frozen=True, slots=True)
class _Projected:
    """Queries, keys and values by head, [b, n, s or t, d], the keys and values after those of the cache."""

    query: Value
    keys: Value
    values: Value
    past: Size
    """Keys that the cache had."""

    @property
    def scores(self) -> Shape:
        """The shape of the scores, [b, n, s, t]."""
        return (*array.tensor_type(self.query).shape[:3], array.tensor_type(self.keys).shape[2])


def _self_attention(context: NodeContext) -> NodeResults:
    """Operands: input [b, s, i], weights [i, q + k + v], bias, mask, past [2, b, n, p, d], scores' bias."""
    x = matmul(context, context.value(0), context.value(1))
    return _of_projection(context, x, context.optional(2), mask=3, past=4, bias=5)


def _quantized_self_attention(context: NodeContext) -> NodeResults:
    """The same, the projection a product of integers whose scales are operands 3 and 4."""
    rows = quantization(context, 3, context.type(0), zero=6)
    columns = quantization(context, 4, context.type(1), zero=7)
    sums, scale = integer_product(context, context.value(0), rows, context.value(1), columns)
    x = in_dtype(context.emit, real_sums(context, sums, scale, None), context.type(3).dtype)
    return _of_projection(context, x, context.optional(2), mask=5, past=8, bias=None)


def _of_projection(
    context: NodeContext, x: Value, shift: Value | None, *, mask: int, past: int, bias: int | None
) -> NodeResults:
    """Attention of queries, keys and values that are one tensor [b, s, q + k + v]."""
    for flag in ("do_rotary", "past_present_share_buffer"):
        if context.flag(flag):
            raise context.unsupported(f"with {flag} is not imported")
    emit, type = context.emit, array.tensor_type(x)
    if shift is not None:
        x = emit(array.Add(x, stretched(emit, shift, type.shape)))
    heads, whole = context.integer("num_heads"), type.shape[-1]
    sizes = context.list("qkv_hidden_sizes") or (whole // 3,) * 3
    parts: list[Value] = []
    start: Size = 0
    for size in sizes:
        part = slice_axis(emit, x, 2, start, start + size)
        parts.append(split(context, part, heads))
        start = start + size
    query, keys, values = parts
    before: Size = 0
    state = context.optional(past)
    if state is not None:
        kept = [_one_of_two(context, state, which) for which in (0, 1)]
        before = array.tensor_type(state).shape[3]
        keys, values = cached(emit, kept[0], keys), cached(emit, kept[1], values)
    y = _attended(context, _Projected(query, keys, values, before), mask, bias)
    if len(context.node.outputs) < 2:
        return y
    both = [reshape(emit, one, (1, *array.tensor_type(one).shape)) for one in (keys, values)]
    return [y, emit(array.Concatenate(tuple(both), 0))]


def _one_of_two(context: NodeContext, state: Value, which: int) -> Value:
    part = slice_axis(context.emit, state, 0, which, which + 1)
    return reshape(context.emit, part, array.tensor_type(part).shape[1:])


def _multi_head_attention(context: NodeContext) -> NodeResults:
    """Operands: query [b, s, q], key [b, t, k], value [b, t, v], their bias, mask, bias of scores, past
    keys and values [b, n, p, d]. Or the query holds all three, [b, s, n, 3, d], or the key holds both,
    [b, t, n, 2, d]; or keys and values are by head already.
    """
    if context.operand(8) is not None or context.operand(9) is not None:
        raise context.unsupported("with a cache of a fixed length is not imported")
    if len(context.node.outputs) > 3 and context.node.outputs[3]:
        raise context.unsupported("with the weights as a result is not imported")
    emit = context.emit
    query, keys, values = _three(context)
    before: Size = 0
    past_keys, past_values = context.optional(6), context.optional(7)
    if past_keys is not None and past_values is not None:
        before = array.tensor_type(past_keys).shape[2]
        keys, values = cached(emit, past_keys, keys), cached(emit, past_values, values)
    y = _attended(context, _Projected(query, keys, values, before), mask=4, bias=5)
    return [y, keys, values][: max(1, len(context.node.outputs))]


def _three(context: NodeContext) -> list[Value]:
    """Queries, keys and values by head, with their bias."""
    heads = context.integer("num_heads")
    query, keys = context.value(0), context.optional(1)
    if keys is None:
        return [_biased(context, part, which) for which, part in enumerate(_packed(context, query))]
    if array.tensor_type(keys).rank == 5:
        pair = [
            _biased(context, part, which) for which, part in enumerate(_packed(context, keys), 1)
        ]
        return [_biased(context, split(context, query, heads), 0), *pair]
    if array.tensor_type(keys).rank == 4:
        return [_biased(context, split(context, query, heads), 0), keys, context.value(2)]
    parts = [split(context, part, heads) for part in (query, keys, context.value(2))]
    return [_biased(context, part, which) for which, part in enumerate(parts)]


def _packed(context: NodeContext, whole: Value) -> list[Value]:
    """The parts of [b, s, n, parts, d], by head."""
    emit = context.emit
    b, s, n, count, d = array.tensor_type(whole).shape
    assert isinstance(count, int)
    slices = [slice_axis(emit, whole, 3, which, which + 1) for which in range(count)]
    return [transpose(emit, reshape(emit, one, (b, s, n, d)), (0, 2, 1, 3)) for one in slices]


def _biased(context: NodeContext, part: Value, which: int) -> Value:
    """Queries, keys or values by head, with their part of operand 3."""
    bias, emit = context.optional(3), context.emit
    if bias is None:
        return part
    shape = array.tensor_type(part).shape
    whole, own = array.tensor_type(bias).shape[0], shape[1] * shape[3]
    # Those of queries and keys are equally long, and those of values are the last ones.
    start = whole - own if which == 2 else which * own
    row = reshape(emit, slice_axis(emit, bias, 0, start, start + own), (shape[1], shape[3]))
    return emit(array.Add(part, emit(array.Broadcast(row, shape, (1, 3)))))


def _attended(context: NodeContext, at: _Projected, mask: int, bias: int | None) -> Value:
    """The result [b, s, v]; `mask` and `bias` are the numbers of operands."""
    emit, shape = context.emit, at.scores
    added = [_hidden(context, mask, at)]
    if bias is not None and context.operand(bias) is not None:
        added.append(stretched(emit, context.value(bias), shape))
    whole: Value | None = None
    for one in added:
        if one is not None:
            whole = one if whole is None else emit(array.Add(whole, one))
    d = array.tensor_type(at.query).shape[3]
    scale = context.number("scale", 0.0) or 1 / math.sqrt(_number(context, d))
    return merged(emit, attend(context, at.query, at.keys, at.values, whole, scale, at.past))


def _number(context: NodeContext, size: Size) -> int:
    if not isinstance(size, int):
        raise context.unsupported("takes heads whose size is a number")
    return size


def _hidden(context: NodeContext, index: int, at: _Projected) -> Value | None:
    """What operand `index`, a mask, adds to the scores; None where there is no mask."""
    if context.operand(index) is None:
        return None
    emit, shape = context.emit, at.scores
    seen = _seen(context, in_dtype(emit, context.value(index), I32), shape)
    dtype = array.tensor_type(at.query).dtype
    zero = array.fill(emit, 0, array.tensor_type(seen).with_dtype(dtype))
    least = context.number("mask_filter_value", -10000.0)
    return emit(array.Select(seen, zero, array.constant_like(emit, least, zero)))


def _seen(context: NodeContext, mask: Value, shape: Shape) -> Value:
    """Where a mask [t], [b, t] or [b, s, t], or the ends of the rows [b], lets keys be seen."""
    emit = context.emit
    b, _, s, t = shape
    own = array.tensor_type(mask).shape
    if len(own) == 1:
        return _between(context, mask, shape)
    if own == (b, t):
        mask = emit(array.Broadcast(mask, shape, (0, 3)))
    elif own == (b, s, t):
        mask = emit(array.Broadcast(mask, shape, (0, 2, 3)))
    else:
        raise context.unsupported(f"with a mask of the shape {list(own)} is not imported")
    return emit(array.Compare(mask, array.constant_like(emit, 0, mask), "ne"))


def _between(context: NodeContext, ends: Value, shape: Shape) -> Value:
    """The keys before the end of each row; where 2b numbers are given, from the start that follows."""
    emit, b = context.emit, shape[0]
    count = array.tensor_type(ends).shape[0]
    place = array.iota(emit, array.tensor_type(ends).with_shape(shape), 3, I32)

    def compared(start: Size, predicate: str) -> Value:
        limit = emit(array.Broadcast(slice_axis(emit, ends, 0, start, start + b), shape, (0,)))
        return emit(array.Compare(place, limit, predicate))

    if count == b:
        return compared(0, "lt")
    if count == b * 2:
        return emit(array.And(compared(0, "lt"), compared(b, "ge")))
    raise context.unsupported(f"with a mask of {count} numbers is not imported")


IMPORTERS: dict[str, Importer] = {
    "Attention": _self_attention,
    "GroupQueryAttention": group_query.group_query_attention,
    "MultiHeadAttention": _multi_head_attention,
    "QAttention": _quantized_self_attention,
    "RotaryEmbedding": group_query.rotary_embedding,
}
