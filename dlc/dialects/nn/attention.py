"""Scaled dot-product attention: means of values, weighted by the match of keys and queries.

The gradient is an operation, too. It recomputes the weights from the scores and two numbers for each query,
one of them the logarithm of the sum of exponentials, so no array of all scores has to be kept between the
forward and the backward pass. (T. Dao, "FlashAttention-2", 2023, section 3.1.)
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array
from dlc.dialects.array import show, tensor_type
from dlc.dialects.array.arithmetic import times
from dlc.dialects.array.linear import swap_last
from dlc.dialects.decomposed import Decomposed
from dlc.dialects.flow.regions import grow
from dlc.dialects.flow.reverse import Backward, Structured, zeros
from dlc.dialects.nn.rows import in_dtype, numbers, spread, total, widened
from dlc.dialects.nn.softmax import LogSumExp, Softmax
from dlc.ir.core import Builder, Op, Value
from dlc.ir.define import attribute, op, operand, operands
from dlc.ir.dims import Size
from dlc.ir.types import BOOL, I32, TensorType, wide

__all__ = ["Attention", "AttentionGradient", "attention_means"]

MOST_APART = (1 << 31) - 1
"""The largest distance between a query and a key."""


@op("nn.attention")
class Attention(Structured, Decomposed):
    """`softmax(scale * query @ keys.T + mask) @ values`, with scores and softmax in at least f32.

    query is [.., m, d], keys [.., n, d], values [.., n, e]; the leading axes are equal. A mask
    [.., m, n] of bools keeps the scores where it is true; one of floats is added to them. With `causal`,
    query i sees the keys up to i + causal. A query that sees no key gives NaN. With `logarithms`, a second
    result [.., m] has the logarithm of each query's sum of powers of e, in f32 or f64.
    """

    is_product = True

    query: Value = operand()
    keys: Value = operand()
    values: Value = operand()
    mask: Sequence[Value] = operands(doc="one or none")
    scale: float = attribute()
    causal: Size | None = attribute(default=None)
    logarithms: bool = attribute(default=False)

    def infer(self) -> tuple[TensorType, ...]:
        query = check_attention(self, self.query, self.keys, self.values, self.mask)
        result = query.with_shape((*query.shape[:-1], tensor_type(self.values).shape[-1]))
        return (result, _a_number_each(query)) if self.logarithms else (result,)

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        query, keys, values = (widened(emit, x) for x in self.operands[:3])
        scores = _scores(emit, query, keys, self)
        last = tensor_type(scores).rank - 1
        weights = emit(Softmax(scores, last))
        y = emit(array.MatMul(weights, values))
        result = in_dtype(emit, y, tensor_type(self.query).dtype)
        return (result, emit(LogSumExp(scores, last))) if self.logarithms else (result,)

    def backward(
        self, emit: Backward, cotangents: Sequence[Value | None], active: Sequence[bool]
    ) -> tuple[Value | None, ...]:
        """By `nn.attention_gradient`, which gets the logarithms."""
        dy, *more = cotangents
        if not self.logarithms:
            self.attributes["logarithms"] = True
            grow(self)
        y, logarithms = self.results
        dy = zeros(emit, y) if dy is None else dy
        means = attention_means(emit, y, dy, more[0] if more else None)
        query, keys, values = self.operands[:3]
        given = (query, keys, values, dy, logarithms, means)
        found = emit.all(AttentionGradient(*given, self.mask, self.scale, self.causal))
        return (*found, None) if len(found) < len(self.operands) else found


@op("nn.attention_gradient")
class AttentionGradient(Decomposed):
    """The cotangents of query, keys, values and a float mask, from those of the results of an attention.

    `logarithms` are those of `nn.attention`; `means` has for each query `sum(dy * y)` minus the cotangent
    of its logarithm. With p and ds, which are [.., m, n] and in at least f32,

        p = exp(scale * query @ keys.T + mask - logarithms)
        ds = p * (dy @ values.T - means)

    the results are `scale * ds @ keys`, `scale * ds.T @ query`, `p.T @ dy` and `ds`. (T. Dao,
    "FlashAttention-2", 2023, algorithm 2.)
    """

    query: Value = operand()
    keys: Value = operand()
    values: Value = operand()
    dy: Value = operand()
    logarithms: Value = operand()
    means: Value = operand()
    mask: Sequence[Value] = operands(doc="one or none")
    scale: float = attribute()
    causal: Size | None = attribute(default=None)

    def infer(self) -> tuple[TensorType, ...]:
        query = check_attention(self, self.query, self.keys, self.values, self.mask)
        result = query.with_shape((*query.shape[:-1], tensor_type(self.values).shape[-1]))
        row = _a_number_each(query)
        if (self.dy.type, self.logarithms.type, self.means.type) != (result, row, row):
            raise self.fail(
                f"{self.name} of {query.text} takes what the result receives, {result.text}, and two "
                f"numbers for each query, {row.text}; found {show(self.dy)}, "
                f"{show(self.logarithms)} and {show(self.means)}"
            )
        floats = [tensor_type(mask) for mask in self.mask if tensor_type(mask).dtype is not BOOL]
        return (query, tensor_type(self.keys), tensor_type(self.values), *floats)

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        query, keys, values, dy = (widened(emit, x) for x in self.operands[:4])
        scores = _scores(emit, query, keys, self)
        row = (tensor_type(scores).rank - 1,)
        below = emit(array.Subtract(scores, spread(emit, self.logarithms, scores, row)))
        p = emit(array.Exp(below))
        dp = emit(array.MatMul(dy, swap_last(emit, values)))
        apart = emit(array.Subtract(dp, spread(emit, self.means, dp, row)))
        ds = emit(array.Multiply(p, apart))
        scaled = times(emit, ds, self.scale)
        found = [
            emit(array.MatMul(scaled, keys)),
            emit(array.MatMul(swap_last(emit, scaled), query)),
            emit(array.MatMul(swap_last(emit, p), dy)),
            *[ds] * (len(self.results) - 3),
        ]
        dtype = tensor_type(self.query).dtype
        return tuple([in_dtype(emit, value, dtype) for value in found])


def check_attention(
    op: Op, query: Value, keys: Value, values: Value, masks: Sequence[Value]
) -> TensorType:
    """The type of the queries of an attention; raises D0301 if its operands do not fit."""
    match query.type, keys.type, values.type:
        case (
            TensorType(dtype, (*batch, m, d)) as type,
            TensorType(dtype2, (*batch2, n, d2)),
            TensorType(dtype3, (*batch3, n2, _)),
        ) if (
            dtype.is_float
            and dtype is dtype2 is dtype3
            and batch == batch2 == batch3
            and (n, d) == (n2, d2)
        ):
            _check_mask(op, TensorType(dtype, (*batch, m, n)), masks)
            return type
        case _:
            raise op.fail(
                f"query {show(query)}, keys {show(keys)} and values {show(values)} "
                "do not fit: [.., m, d], [.., n, d] and [.., n, e] of one float dtype"
            )


def _check_mask(op: Op, scores: TensorType, masks: Sequence[Value]) -> None:
    if len(masks) > 1 or any(mask.type not in (scores, scores.with_dtype(BOOL)) for mask in masks):
        raise op.fail(
            f"the mask of the scores {scores.text} is one tensor of that shape, of "
            f"{scores.dtype.name} or bool; found {', '.join(map(show, masks))}"
        )


def _a_number_each(query: TensorType) -> TensorType:
    """The type of one number for each query, in the dtype in which attention is computed."""
    return TensorType(wide(query.dtype), query.shape[:-1])


def _scores(emit: Builder, query: Value, keys: Value, op: Attention | AttentionGradient) -> Value:
    """The scores of all queries and keys, scaled and masked."""
    products = emit(array.MatMul(query, swap_last(emit, keys)))
    scores = times(emit, products, op.scale)
    for mask in op.mask:
        scores = _masked(emit, scores, mask)
    if op.causal is not None:
        scores = _masked(emit, scores, _seen(emit, tensor_type(scores), op.causal))
    return scores


def _masked(emit: Builder, scores: Value, mask: Value) -> Value:
    if tensor_type(mask).dtype is not BOOL:
        return emit(array.Add(scores, widened(emit, mask)))
    hidden = array.constant_like(emit, float("-inf"), scores)
    return emit(array.Select(mask, scores, hidden))


def _seen(emit: Builder, type: TensorType, causal: Size) -> Value:
    """The causal mask: whether key j is at most i + causal, for query i.

    The indices are 32-bit integers, of which a vector register holds more; there are fewer keys than 2^31.
    """
    i = array.iota(emit, type, type.rank - 2, I32)
    j = array.iota(emit, type, type.rank - 1, I32)
    most = max(min(causal, MOST_APART), -MOST_APART) if isinstance(causal, int) else causal
    later = emit(array.Subtract(j, i))
    return emit(array.Compare(later, numbers(emit, most, type.with_dtype(I32)), "le"))


def attention_means(emit: Builder, y: Value, dy: Value, dlogarithms: Value | None = None) -> Value:
    """The mean of the cotangents of the scores of a query, weighted by the attention weights."""
    last = tensor_type(y).rank - 1
    products = emit(array.Multiply(widened(emit, dy), widened(emit, y)))
    means = total(emit, products, (last,))
    return means if dlogarithms is None else emit(array.Subtract(means, dlogarithms))
