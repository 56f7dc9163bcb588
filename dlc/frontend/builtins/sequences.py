"""Attention, and recurrent networks whose whole sequence is one operation."""

from __future__ import annotations

import math
from typing import Final

from dlc.dialects.array import show
from dlc.dialects.nn.attention import Attention
from dlc.dialects.nn.cached_attention import CachedAttention
from dlc.dialects.nn.recurrent import LSTM
from dlc.frontend.builtins.registry import builtin
from dlc.frontend.elaboration.tensors import broadcast_to, convert, dtype_of, tensor_type
from dlc.frontend.elaboration.trace import Trace
from dlc.frontend.elaboration.values import Datum, Record
from dlc.ir.core import Value
from dlc.ir.types import BOOL, I64

GROUP: Final = "sequences"


@builtin(
    "attention(query: float, keys: float, values: float, mask: tensor = none, scale: number = none, "
    "causal: bool = false)",
    GROUP,
    "`softmax(scale * query @ keys.T + mask) @ values`; query is [.., m, d], keys [.., n, d], values "
    "[.., n, e]. A mask of bools keeps the scores where it is true, one of floats is added. With "
    "`causal` query i sees the keys up to i. The scale is by default 1 / sqrt(d).",
    "attention([[1.0]], [[0.0], [0.0]], [[2.0], [4.0]])",
    "[[3.0]]",
)
def attention(
    at: Trace,
    query: Value,
    keys: Value,
    values: Value,
    mask: Value | None,
    scale: float | None,
    causal: bool,
) -> Datum:
    masks = () if mask is None else (_stretched(at, query, keys, mask),)
    scale = _scale(at, query, scale)
    return at(Attention(query, keys, values, masks, scale, 0 if causal else None))


@builtin(
    "cached_attention(query: float, keys: float, values: float, position: tensor, scale: number = none)",
    GROUP,
    "Attention over a cache: query i of [.., m, d] stands at `position + i` and sees the keys up to there. "
    "Keys are [.., n, d], values [.., n, e], and their leading axes those of the query, or 1 where queries "
    "share them. Later keys are not read, so that the work follows the position. The scale is by default "
    "1 / sqrt(d).",
    "cached_attention([[1.0]], [[0.0], [0.0], [9.0]], [[2.0], [4.0], [9.0]], 1)",
    "[[3.0]]",
)
def cached_attention(
    at: Trace, query: Value, keys: Value, values: Value, position: Value, scale: float | None
) -> Datum:
    if tensor_type(position).rank or not dtype_of(position).is_integer:
        raise at.fail("D0301", f"the position is one whole number, found {show(position)}")
    place = convert(at, position, I64)
    return at(CachedAttention(query, keys, values, place, _scale(at, query, scale)))


def _scale(at: Trace, query: Value, scale: float | None) -> float:
    """The scale of the scores, by default from the length of the queries."""
    if scale is not None:
        return float(scale)
    width = tensor_type(query).shape[-1:]
    if len(width) != 1 or not isinstance(width[0], int):
        raise at.fail(
            "D0301",
            f"the rows of {show(query)} have no fixed length",
            help="give the scale: attention(.., scale=0.125)",
        )
    return 1 / math.sqrt(width[0])


def _stretched(at: Trace, query: Value, keys: Value, mask: Value) -> Value:
    """The mask in the shape of the scores."""
    one, two, own = tensor_type(query).shape, tensor_type(keys).shape, tensor_type(mask).shape
    scores = (*one[:-1], *two[-2:-1])
    lead = len(scores) - len(own)
    fits = lead >= 0 and all(n in (1, scores[lead + k]) for k, n in enumerate(own))
    if not fits or dtype_of(mask) not in (BOOL, dtype_of(query)):
        wanted = tensor_type(query).with_shape(scores)
        raise at.fail(
            "D0301",
            f"the mask is {show(mask)}, the scores are {wanted.text}",
            help="a mask is made of bools or of the dtype of the scores, and is broadcast to them",
        )
    return broadcast_to(at, mask, scores)


@builtin(
    "lstm(x: float, wx: float, wh: float, b: float, h: float, c: float, reverse: bool = false)",
    GROUP,
    "A long short-term memory over x [batch, time, i] from the state h and c, both [batch, n]: all "
    "outputs y, the last h and the last c. wx is [i, 4 * n], wh [n, 4 * n], b [4 * n], with the gates in "
    "the order in, forget, out, new.",
    "lstm(zeros([1, 2, 1]), zeros([1, 4]), zeros([1, 4]), zeros([4]), zeros([1, 1]), ones([1, 1])).c",
    "[[0.25]]",
)
def lstm(
    at: Trace,
    x: Value,
    wx: Value,
    wh: Value,
    b: Value,
    h: Value,
    c: Value,
    reverse: bool,
) -> Datum:
    return Record(at.all(LSTM(x, wx, wh, b, h, c, 1, reverse)), ("y", "h", "c"))
