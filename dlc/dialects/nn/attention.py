"""Attention: a weighted mean of values, the weights by how well keys match a query."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array
from dlc.dialects.array import show, tensor_type
from dlc.dialects.array.arithmetic import times
from dlc.dialects.array.linear import swap_last
from dlc.dialects.decomposed import Decomposed
from dlc.dialects.nn.rows import in_dtype, numbers, widened
from dlc.dialects.nn.softmax import Softmax
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.define import attribute, op, operand, operands
from dlc.ir.dims import Size
from dlc.ir.types import BOOL, I64, TensorType

__all__ = ["Attention"]


@op("nn.attention")
class Attention(Decomposed):
    """`softmax(scale * query @ keys.T + mask) @ values`, with scores and softmax in at least f32.

    query is [.., m, d], keys [.., n, d], values [.., n, e]; the leading axes are equal. A mask
    [.., m, n] of bools keeps the scores where it is true; one of floats is added to them. With `causal`,
    query i sees the keys up to i + causal. A query that sees no key gives NaN.
    """

    query: Value = operand()
    keys: Value = operand()
    values: Value = operand()
    mask: Sequence[Value] = operands(doc="one or none")
    scale: float = attribute()
    causal: Size | None = attribute(default=None)

    def infer(self) -> TensorType:
        match self.query.type, self.keys.type, self.values.type:
            case (
                TensorType(dtype, (*batch, m, d)),
                TensorType(dtype2, (*batch2, n, d2)),
                TensorType(dtype3, (*batch3, n2, e)),
            ) if (
                dtype.is_float
                and dtype is dtype2 is dtype3
                and batch == batch2 == batch3
                and (n, d) == (n2, d2)
            ):
                self._check_mask(TensorType(dtype, (*batch, m, n)))
                return TensorType(dtype, (*batch, m, e))
            case _:
                raise self.fail(
                    f"query {show(self.query)}, keys {show(self.keys)} and values {show(self.values)} "
                    "do not fit: [.., m, d], [.., n, d] and [.., n, e] of one float dtype"
                )

    def _check_mask(self, scores: TensorType) -> None:
        if len(self.mask) > 1 or any(
            mask.type not in (scores, scores.with_dtype(BOOL)) for mask in self.mask
        ):
            raise self.fail(
                f"the mask of the scores {scores.text} is one tensor of that shape, of "
                f"{scores.dtype.name} or bool; found {', '.join(map(show, self.mask))}"
            )

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        query, keys, values = (widened(emit, x) for x in self.operands[:3])
        products = emit(array.MatMul(query, swap_last(emit, keys)))
        scores = times(emit, products, self.scale)
        for mask in self.mask:
            scores = _masked(emit, scores, mask)
        if self.causal is not None:
            scores = _masked(emit, scores, _seen(emit, tensor_type(scores), self.causal))
        weights = emit(Softmax(scores, tensor_type(scores).rank - 1))
        y = emit(array.MatMul(weights, values))
        return (in_dtype(emit, y, tensor_type(self.query).dtype),)


def _masked(emit: Builder, scores: Value, mask: Value) -> Value:
    if tensor_type(mask).dtype is not BOOL:
        return emit(array.Add(scores, widened(emit, mask)))
    hidden = array.constant_like(emit, float("-inf"), scores)
    return emit(array.Select(mask, scores, hidden))


def _seen(emit: Builder, type: TensorType, causal: Size) -> Value:
    """Where key j is one of those up to i + causal of query i."""
    i = array.iota(emit, type, type.rank - 2)
    j = array.iota(emit, type, type.rank - 1)
    offset = numbers(emit, causal, type.with_dtype(I64))
    return emit(array.Compare(j, emit(array.Add(i, offset)), "le"))
