"""Steps that the attentions of com.microsoft share: heads, caches, masked scores."""

from __future__ import annotations

import math

from dlc.dialects import array, nn
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.nn.rows import numbers
from dlc.importers.onnx.node_context import NodeContext
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Size
from dlc.ir.types import I32, TensorType


def split(context: NodeContext, x: Value, heads: int) -> Value:
    """Rows [b, s, n * d] by head, [b, n, s, d]."""
    b, s, width = array.tensor_type(x).shape
    if heads < 1 or width != heads * (width // heads):
        raise context.wrong(f"has {heads} heads for rows of {width} numbers")
    rows = reshape(context.emit, x, (b, s, heads, width // heads))
    return transpose(context.emit, rows, (0, 2, 1, 3))


def merged(emit: Builder, x: Value) -> Value:
    """[b, n, s, d] as rows [b, s, n * d]."""
    b, n, s, d = array.tensor_type(x).shape
    return reshape(emit, transpose(emit, x, (0, 2, 1, 3)), (b, s, n * d))


def cached(emit: Builder, past: Value, new: Value) -> Value:
    """Keys or values [b, n, p, d] of a cache, and the new ones behind them."""
    return emit(array.Concatenate((past, new), 2))


def attend(
    context: NodeContext,
    query: Value,
    keys: Value,
    values: Value,
    added: Value | None,
    scale: float,
    past: Size,
) -> Value:
    """Attention by head; `added` is added to the scores.

    With the attribute `unidirectional`, query i sees the keys up to `past + i`.
    """
    emit = context.emit
    causal: Size | None = None
    if context.flag("unidirectional"):
        if past == 0:
            causal = 0
        else:
            added = _causally(emit, query, keys, added, past)
    masks = () if added is None else (added,)
    return emit(nn.Attention(query, keys, values, masks, scale, causal))


def _causally(emit: Builder, query: Value, keys: Value, added: Value | None, past: Size) -> Value:
    """What is added to the scores, with minus infinity for the keys after `past + i`."""
    query_type = array.tensor_type(query)
    scores = query_type.with_shape((*query_type.shape[:3], array.tensor_type(keys).shape[2]))
    places = scores.with_dtype(I32)
    last = emit(array.Add(array.iota(emit, places, 2, I32), numbers(emit, past, places)))
    seen = emit(array.Compare(array.iota(emit, places, 3, I32), last, "le"))
    return masked(emit, seen, added, scores)


def masked(emit: Builder, seen: Value, added: Value | None, scores: TensorType) -> Value:
    """What is added to scores of this type, with minus infinity where a key is not seen."""
    if added is None:
        added = array.fill(emit, 0, scores)
    hidden = array.fill(emit, -math.inf, scores)
    return emit(array.Select(seen, added, hidden))
