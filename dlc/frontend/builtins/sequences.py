"""Attention, and recurrent networks whose whole sequence is one operation."""

from __future__ import annotations

import math
from typing import Final

from dlc.dialects.array import show
from dlc.dialects.nn.attention import Attention
from dlc.dialects.nn.recurrent import LSTM
from dlc.frontend.builtins.registry import builtin
from dlc.frontend.elaboration.tensors import broadcast_to, dtype_of, tensor_type
from dlc.frontend.elaboration.trace import Trace
from dlc.frontend.elaboration.values import Datum, Record
from dlc.ir.core import Value
from dlc.ir.types import BOOL

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
    width = tensor_type(query).shape[-1:]
    if scale is None:
        if len(width) != 1 or not isinstance(width[0], int):
            raise at.fail(
                "D0301",
                f"the rows of {show(query)} have no fixed length",
                help="give the scale: attention(.., scale=0.125)",
            )
        scale = 1 / math.sqrt(width[0])
    masks = () if mask is None else (_stretched(at, query, keys, mask),)
    return at(Attention(query, keys, values, masks, float(scale), 0 if causal else None))


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
