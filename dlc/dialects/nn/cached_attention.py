"""Attention of queries over a cache of keys and values, of which the first ones are filled."""

from __future__ import annotations

from dlc.dialects import array
from dlc.dialects.array import show, tensor_type
from dlc.dialects.array.shape import reshape
from dlc.dialects.decomposed import Decomposed
from dlc.dialects.nn.attention import Attention
from dlc.dialects.nn.rows import numbers
from dlc.ir.core import Builder, Value
from dlc.ir.define import attribute, op, operand
from dlc.ir.dims import Shape, Size
from dlc.ir.types import I64, TensorType

__all__ = ["CachedAttention"]


@op("nn.cached_attention")
class CachedAttention(Decomposed):
    """Attention where query i stands at `position + i` and sees the keys up to there.

    query is [.., m, d], keys [.., n, d], values [.., n, e], position an i64 scalar. Each leading axis of
    the keys and values is that of the query, or of size 1: then several queries share them, as in
    grouped-query attention. Keys beyond those that are seen are never read. A query that sees no key
    gives NaN.
    """

    is_product = True

    query: Value = operand()
    keys: Value = operand()
    values: Value = operand()
    position: Value = operand()
    scale: float = attribute()

    def infer(self) -> TensorType:
        query, keys, values = (tensor_type(value) for value in self.operands[:3])
        fits = (
            query.dtype.is_float
            and query.dtype is keys.dtype is values.dtype
            and query.rank == keys.rank == values.rank >= 2
            and query.shape[-1] == keys.shape[-1]
            and keys.shape[:-1] == values.shape[:-1]
            and all(k in (1, q) for q, k in zip(query.shape[:-2], keys.shape[:-2], strict=True))
        )
        if not fits:
            raise self.fail(
                f"query {show(self.query)}, keys {show(self.keys)} and values {show(self.values)} do not "
                "fit: [.., m, d], [.., n, d] and [.., n, e] of one float dtype, with leading axes that are "
                "equal, or 1 in the keys and values",
                code="D0301",
            )
        if self.position.type is not TensorType(I64):
            raise self.fail(f"the position is an i64 scalar, found {show(self.position)}")
        return query.with_shape((*query.shape[:-1], values.shape[-1]))

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        *batch, m, _ = tensor_type(self.query).shape
        n = tensor_type(self.keys).shape[-2]
        scores = TensorType(I64, (*batch, m, n))
        key = array.iota(emit, scores, scores.rank - 1, I64)
        query = array.iota(emit, scores, scores.rank - 2, I64)
        last = emit(array.Add(query, _stretched(emit, self.position, scores.shape)))
        seen = emit(array.Compare(key, last, "le"))
        keys, values = (
            _stretched(emit, self._seen(emit, held, m), (*batch, *tensor_type(held).shape[-2:]))
            for held in (self.keys, self.values)
        )
        return emit.all(Attention(self.query, keys, values, (seen,), self.scale))

    @property
    def width(self) -> Size:
        """The length of a value."""
        return tensor_type(self.values).shape[-1]

    def _seen(self, emit: Builder, held: Value, m: Size) -> Value:
        """The keys or values, with 0 for those that no query sees.

        A weight of 0 does not hide NaN: neither that of a value in the result, nor that of a key in the
        gradient of the query.
        """
        type = tensor_type(held)
        wide = type.with_dtype(I64)
        beyond = emit(array.Add(self.position, numbers(emit, m, TensorType(I64))))
        key = array.iota(emit, wide, wide.rank - 2, I64)
        seen = emit(array.Compare(key, _stretched(emit, beyond, wide.shape), "lt"))
        return emit(array.Select(seen, held, array.constant_like(emit, 0, held)))


def _stretched(emit: Builder, value: Value, shape: Shape) -> Value:
    """A tensor whose axes are those of `shape`, or 1, or missing before them, broadcast to it."""
    own = tensor_type(value).shape
    lead = len(shape) - len(own)
    kept = [k for k, size in enumerate(own) if size == shape[lead + k]]
    if len(kept) == len(shape):
        return value
    plain = reshape(emit, value, tuple([own[k] for k in kept]))
    return emit(array.Broadcast(plain, shape, tuple([lead + k for k in kept])))
