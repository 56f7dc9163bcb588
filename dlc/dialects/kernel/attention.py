"""Attention and its gradient as kernels that never materialize the matrix of scores.

Lowerings use online softmax (Milakov & Gimelshein 2018; FlashAttention, Dao et al. 2022).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects.kernel.generic import Access, Kernel, array_type
from dlc.dialects.kernel.products import panel_count, unpanelled
from dlc.ir.attributes import decode, encode
from dlc.ir.core import Array, Evaluation, Value
from dlc.ir.define import attribute, op, operand, operands
from dlc.ir.dims import Size
from dlc.ir.types import BOOL, DType, TensorType, wide

MOST_NARROW = 128
"""The largest head size of f16 and bf16: the sums stay in registers."""


@op("kernel.attention")
class Attention(Kernel):
    """`softmax(scale * query @ keys.T + mask) @ values`, as defined by `nn.attention`.

    query is [.., m, d], keys [.., n, d], values [.., n, e], a mask [.., m, n] of bools or numbers. With
    `panel` columns to a panel, keys are `[.., p, d, panel]`, the transposed keys in panels, and values
    `[.., p, n, panel]`; then `count` and `width` are n and e. With `logarithms` the second
    result is the logarithm of each row's sum of exponentials, [.., m].
    """

    query: Value = operand()
    keys: Value = operand()
    values: Value = operand()
    mask: Sequence[Value] = operands(doc="one or none")
    outs: Sequence[Value] = operands()
    scale: float = attribute()
    count: Size = attribute()
    width: Size = attribute()
    causal: Size | None = attribute(default=None)
    panel: int = attribute(default=0)
    logarithms: bool = attribute(default=False)

    def result_types(self) -> tuple[TensorType, ...]:
        query = array_type(self.query)
        *batch, m, d = query.shape
        expected = (*batch, self.count, d), (*batch, self.count, self.width)
        if self.panel:
            keys, values = (panel_count(size, self.panel) for size in (self.count, self.width))
            expected = (
                (*batch, keys, d, self.panel),
                (*batch, values, self.count, self.panel),
            )
        shapes = array_type(self.keys).shape, array_type(self.values).shape
        if shapes != expected:
            raise self.fail(f"kernel.attention of {query.text} needs {expected}, found {shapes}")
        result = query.with_shape((*batch, m, self.width))
        row = TensorType(wide(query.dtype), (*batch, m))
        return (result, row) if self.logarithms else (result,)

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        dtype = array_type(self.query).dtype
        query, keys, values, *masks = (
            _wide(array, array_type(value).dtype)
            for array, value in zip(inputs, self.operands[: 3 + len(self.mask)], strict=False)
        )
        if self.panel:
            keys = unpanelled(keys, at.size(self.count))
            values = unpanelled(values, at.size(self.width))
        else:
            keys = np.swapaxes(keys, -1, -2)
        with np.errstate(all="ignore"):
            scores = _scores(self, at, query, keys, masks)
            largest = np.max(scores, -1, keepdims=True, initial=-np.inf)
            exponentials = np.exp(scores - largest)
            totals = np.sum(exponentials, -1, keepdims=True)
            result = encode(np.matmul(exponentials / totals, values), dtype)
            # Of a row that is masked entirely the sum is 0.
            logarithms = np.add(np.log(totals), largest)
            logarithms[largest == -np.inf] = -np.inf
        return (result, logarithms[..., 0]) if self.logarithms else (result,)


@op("kernel.cached_attention")
class CachedAttention(Kernel):
    """`nn.cached_attention`, which reads the keys and values that a query sees where they lie.

    query is [.., m, d], keys [.., n, d], values [.., n, e], with leading axes that are those of the query
    or 1; position is an i64 scalar.
    """

    inputs: Sequence[Value] = operands(doc="query, keys, values and position")
    outs: Sequence[Value] = operands()
    scale: float = attribute()

    def reads(self, number: int) -> Access:
        return Access.UNIT_STRIDE if number < 3 else Access.CONTIGUOUS

    def result_types(self) -> tuple[TensorType, ...]:
        query, _, values, _ = map(array_type, self.inputs)
        return (query.with_shape((*query.shape[:-1], values.shape[-1])),)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        dtype = array_type(self.inputs[0]).dtype
        query, keys, values = (_wide(array, dtype) for array in inputs[:3])
        m, n, position = query.shape[-2], keys.shape[-2], int(inputs[3])
        seen = np.tri(m, n, position) > 0
        used = max(0, min(n, position + m))
        with np.errstate(all="ignore"):
            scores = np.matmul(query, np.swapaxes(keys, -1, -2)) * np.asarray(
                self.scale, query.dtype
            )
            scores = np.where(seen, scores, -np.inf)
            exponentials = np.exp(scores - np.max(scores, -1, keepdims=True, initial=-np.inf))
            totals = np.sum(exponentials, -1, keepdims=True)
            weights = (exponentials / totals)[..., :used]
            result = np.matmul(weights, values[..., :used, :])
            return encode(np.where(np.any(seen, -1, keepdims=True), result, np.nan), dtype)


@op("kernel.attention_gradient")
class AttentionGradient(Kernel):
    """A part of `nn.attention_gradient`: the cotangent of queries, or `by_keys` those of keys and values.

    Each is a kernel of its own that recomputes the softmax weights: one walks all keys for a tile of
    queries, the other all queries for a tile of keys, so that sums have a fixed order and need no atomics.
    """

    query: Value = operand()
    keys: Value = operand()
    values: Value = operand()
    dy: Value = operand()
    statistics: Sequence[Value] = operands(doc="the logarithms and the means")
    mask: Sequence[Value] = operands(doc="one or none")
    outs: Sequence[Value] = operands()
    scale: float = attribute()
    causal: Size | None = attribute(default=None)
    by_keys: bool = attribute(default=False)

    def result_types(self) -> tuple[TensorType, ...]:
        query, keys, values = (array_type(v) for v in (self.query, self.keys, self.values))
        return (keys, values) if self.by_keys else (query,)

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        dtype = array_type(self.query).dtype
        query, keys, values, dy, logarithms, means, *masks = (
            _wide(array, array_type(value).dtype)
            for array, value in zip(inputs, self.operands[: 6 + len(self.mask)], strict=False)
        )
        with np.errstate(all="ignore"):
            scores = _scores(self, at, query, np.swapaxes(keys, -1, -2), masks)
            p = np.exp(np.subtract(scores, logarithms[..., None]))
            received = np.matmul(dy, np.swapaxes(values, -1, -2))
            ds = np.multiply(p, np.subtract(received, means[..., None]))
            ds *= np.asarray(self.scale, ds.dtype)
            if not self.by_keys:
                return (encode(np.matmul(ds, keys), dtype),)
            transposed = (np.swapaxes(array, -1, -2) for array in (ds, p))
            return tuple(
                [
                    encode(np.matmul(*two), dtype)
                    for two in zip(transposed, (query, dy), strict=True)
                ]
            )


def _scores(
    op: Attention | AttentionGradient,
    at: Evaluation,
    query: Array,
    columns: Array,
    masks: Sequence[Array],
) -> Array:
    """Scaled and masked scores `[.., m, n]`; `columns` are the transposed keys `[.., d, n]`."""
    scores = np.matmul(query, columns) * np.asarray(op.scale, query.dtype)
    for mask, value in zip(masks, op.mask, strict=True):
        hidden = array_type(value).dtype is BOOL
        scores = np.where(mask, scores, -np.inf) if hidden else scores + mask
    if op.causal is not None:
        m, n = scores.shape[-2:]
        scores = np.where(np.tri(m, n, at.size(op.causal)) > 0, scores, -np.inf)
    return scores


def _wide(array: Array, dtype: DType) -> Array:
    """An array in the dtype that attention is computed in, f32 for f16 and bf16; bools stay."""
    return array if dtype is BOOL else decode(array, dtype).astype(wide(dtype).numpy)
