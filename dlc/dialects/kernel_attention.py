"""Attention as one kernel, which never holds all scores at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects.kernel import Kernel, array_type
from dlc.dialects.kernel_products import panel_count, unpanelled
from dlc.ir.attributes import decode, encode
from dlc.ir.core import Value
from dlc.ir.define import attribute, op, operand, operands
from dlc.ir.dims import Size
from dlc.ir.evaluation import Array, Evaluation
from dlc.ir.types import BOOL, DType, TensorType, wide

MOST_NARROW = 128
"""Elements that queries and values of f16 and bf16 may have: their sums stay in registers."""


@op("kernel.attention")
class Attention(Kernel):
    """`softmax(scale * query @ keys.T + mask) @ values`, as `nn.attention` says it.

    query is [.., m, d], keys [.., n, d], values [.., n, e], a mask [.., m, n] of bools or numbers. With
    `panel` columns to a panel, keys are `[.., p, d, panel]`, the transposed keys in panels, and values
    `[.., p, n, panel]`; then `count` and `width` are n and e.
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
        found = array_type(self.keys).shape, array_type(self.values).shape
        if found != expected:
            raise self.fail(f"kernel.attention of {query.text} needs {expected}, found {found}")
        return (query.with_shape((*batch, m, self.width)),)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
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
            scores = np.matmul(query, keys) * np.asarray(self.scale, query.dtype)
            for mask, value in zip(masks, self.mask, strict=True):
                hidden = array_type(value).dtype is BOOL
                scores = np.where(mask, scores, -np.inf) if hidden else scores + mask
            if self.causal is not None:
                m, n = scores.shape[-2:]
                scores = np.where(np.tri(m, n, at.size(self.causal)) > 0, scores, -np.inf)
            powers = np.exp(scores - np.max(scores, -1, keepdims=True, initial=-np.inf))
            weights = powers / np.sum(powers, -1, keepdims=True)
            return encode(np.matmul(weights, values), dtype)


def _wide(array: Array, dtype: DType) -> Array:
    """Numbers in the dtype that attention is computed in: f16 and bf16 in f32."""
    return array if dtype is BOOL else decode(array, dtype).astype(wide(dtype).numpy)
