"""Attention, and recurrent networks whose whole sequence is one operation."""

from __future__ import annotations

import math
from typing import Final

from dlc.dialects import array
from dlc.dialects.array import show
from dlc.dialects.array.shape import reshape
from dlc.dialects.nn.attention import Attention
from dlc.dialects.nn.cached_attention import CachedAttention
from dlc.dialects.nn.recurrent import LSTM
from dlc.dialects.nn.rows import numbers
from dlc.frontend.builtins.registry import builtin
from dlc.frontend.elaboration.tensors import (
    as_tensor,
    broadcast_shape,
    broadcast_to,
    convert,
    dtype_of,
    tensor_type,
    unify,
)
from dlc.frontend.elaboration.trace import Trace
from dlc.frontend.elaboration.values import Datum, Record
from dlc.ir.core import Value
from dlc.ir.dims import Shape, Size
from dlc.ir.types import BOOL, I32, I64, U32, U64, TensorType

GROUP: Final = "sequences"


@builtin(
    "attention(query: float, keys: float, values: float, mask: tensor = none, scale: number = none, "
    "causal: bool = false, lengths: tensor = none)",
    GROUP,
    "`softmax(scale * query @ keys.T + mask) @ values`; query is [.., m, d], keys [.., n, d], values "
    "[.., n, e], and leading axes are broadcast, so several queries can share a head of keys. A mask of "
    "bools keeps the scores where it is true, one of floats is added. The scale is by default "
    "1 / sqrt(d). `lengths`, whole numbers [..], says how many keys count: the others, as the free part "
    "of a cache, are not seen. With `causal` query i sees the keys up to i, and with lengths up to "
    "lengths - m + i: the last query sees all that count. With one length for all queries, no mask, and "
    "`causal` or a single query, no key beyond is read, so that the work follows the length and not the "
    "room of a cache. A query that sees no key gives NaN.",
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
    lengths: Value | None,
) -> Datum:
    scale = _scale(at, query, scale)
    # A single query sees the same keys with and without `causal`.
    in_order = causal or tensor_type(query).shape[-2:-1] == (1,)
    if (
        in_order
        and mask is None
        and lengths is not None
        and _is_cache(query, keys, values, lengths)
    ):
        return _over_cache(at, query, keys, values, lengths, scale)
    sees_up_to = 0 if causal and lengths is None else None
    shared = sees_up_to is None and _shares_keys(query, keys, values, lengths)
    query, wide_keys, wide_values = _stretched(at, query, keys, values)
    scores = _scores(query, wide_keys)
    if mask is not None:
        mask = _mask(at, scores, mask)
    if lengths is not None:
        _check_lengths(at, scores, lengths)
        counts = _within(at, lengths, scores.shape[-1] + scores.shape[-2])
        mask = _counted(at, scores, mask, counts, causal=causal)
        # Neither a weight of 0 nor a mask of minus infinity hides NaN.
        if shared:
            keys, values = (_those_that_count(at, x, counts) for x in (keys, values))
        else:
            wide = wide_keys, wide_values
            wide_keys, wide_values = (_those_that_count(at, x, counts) for x in wide)
    if shared:
        return _with_shared_keys(at, query, keys, values, mask, scale)
    masks = () if mask is None else (mask,)
    return at(Attention(query, wide_keys, wide_values, masks, scale, sees_up_to))


def _is_cache(query: Value, keys: Value, values: Value, lengths: Value) -> bool:
    """Whether one length is for all queries, whose leading axes the keys and values have, or share as 1."""
    q, k, v = [tensor_type(operand).shape for operand in (query, keys, values)]
    own = tensor_type(lengths)
    return (
        own.rank == 0
        and own.dtype.is_integer
        and len(q) == len(k) == len(v) >= 2
        and k[:-1] == v[:-1]
        and all(one in (1, other) for one, other in zip(k[:-2], q[:-2], strict=True))
    )


def _over_cache(
    at: Trace, query: Value, keys: Value, values: Value, lengths: Value, scale: float
) -> Value:
    """Attention that reads the keys that count where they lie, and no others."""
    count = numbers(at, tensor_type(query).shape[-2], TensorType(I64))
    position = at(array.Subtract(convert(at, lengths, I64), count))
    return at(CachedAttention(query, keys, values, position, scale))


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


def _shares_keys(query: Value, keys: Value, values: Value, lengths: Value | None) -> bool:
    """Whether the last leading axis of the queries has size 1 in the keys and values, and in lengths."""
    if lengths is not None and tensor_type(lengths).shape[-1:] not in ((), (1,)):
        return False
    q, k, v = [tensor_type(operand).shape for operand in (query, keys, values)]
    return len(q) == len(k) == len(v) > 2 and q[:-3] == k[:-3] == v[:-3] and k[-3] == v[-3] == 1


def _with_shared_keys(
    at: Trace, query: Value, keys: Value, values: Value, mask: Value | None, scale: float
) -> Value:
    """Attention of queries [.., g, m, d] to keys [.., 1, n, d], as rows of one head: no key is copied."""
    *lead, group, m, _ = tensor_type(query).shape

    def rows(x: Value, count: Size) -> Value:
        return reshape(at, x, (*lead, count, tensor_type(x).shape[-1]))

    n = tensor_type(keys).shape[-2]
    masks = () if mask is None else (rows(mask, group * m),)
    heads = rows(keys, n), rows(values, n)
    y = at(Attention(rows(query, group * m), heads[0], heads[1], masks, scale, None))
    return reshape(at, y, (*lead, group, m, tensor_type(y).shape[-1]))


def _stretched(at: Trace, *operands: Value) -> list[Value]:
    """Queries, keys and values with equal leading axes, where they have an axis of rows."""
    shapes = [tensor_type(operand).shape for operand in operands]
    if any(len(shape) < 2 for shape in shapes):
        return list(operands)
    lead: Shape = ()
    for shape in shapes:
        lead = broadcast_shape(at, lead, shape[:-2], "attend with")
    pairs = zip(operands, shapes, strict=True)
    return [broadcast_to(at, operand, (*lead, *shape[-2:])) for operand, shape in pairs]


def _scores(query: Value, keys: Value) -> TensorType:
    """The type of the scores of all queries and keys."""
    one, two = tensor_type(query), tensor_type(keys)
    return one.with_shape((*one.shape[:-1], *two.shape[-2:-1]))


def _mask(at: Trace, wanted: TensorType, mask: Value) -> Value:
    """The mask in the shape of the scores."""
    own = tensor_type(mask).shape
    lead = wanted.rank - len(own)
    fits = lead >= 0 and all(n in (1, wanted.shape[lead + k]) for k, n in enumerate(own))
    if not fits or dtype_of(mask) not in (BOOL, wanted.dtype):
        raise at.fail(
            "D0301",
            f"the mask is {show(mask)}, the scores are {wanted.text}",
            help="a mask is made of bools or of the dtype of the scores, and is broadcast to them",
        )
    return broadcast_to(at, mask, wanted.shape)


def _check_lengths(at: Trace, scores: TensorType, lengths: Value) -> None:
    """Raise D0301 unless the lengths are whole numbers for the leading axes of the scores."""
    lead, own = scores.shape[:-2], tensor_type(lengths)
    fits = own.rank <= len(lead) and all(
        n in (1, size) for n, size in zip(reversed(own.shape), reversed(lead), strict=False)
    )
    if not fits or not own.dtype.is_integer:
        raise at.fail(
            "D0301",
            f"the lengths are {show(lengths)}, the scores are {scores.text}",
            help="lengths are whole numbers, and are broadcast to the leading axes of the scores",
        )


def _within(at: Trace, lengths: Value, enough: Size) -> Value:
    """The lengths as i32, those of wider integers cut to 0 and a length at which all keys are seen."""
    dtype = dtype_of(lengths)
    if dtype in (I64, U32, U64):
        least, most = numbers(at, 0, tensor_type(lengths)), numbers(at, enough, TensorType(dtype))
        lengths, most = unify(at, (lengths, most))
        lengths = at(array.Maximum(at(array.Minimum(lengths, most)), least))
    return convert(at, lengths, I32)


def _those_that_count(at: Trace, rows: Value, lengths: Value) -> Value:
    """Keys or values, with 0 in the place of those from `lengths` on."""
    type = tensor_type(rows)
    ends = reshape(at, lengths, (*tensor_type(lengths).shape, 1, 1))
    place = array.iota(at, type, type.rank - 2, I32)
    place, ends = unify(at, (place, ends))
    seen = at(array.Compare(place, ends, "lt"))
    return at(array.Select(seen, rows, array.constant_like(at, 0, rows)))


def _counted(
    at: Trace, scores: TensorType, mask: Value | None, lengths: Value, *, causal: bool
) -> Value:
    """The mask without the keys from `lengths` on, and without those after a query if it is causal.

    With n the length, query i of m sees key j where `j < n`, or where `j < n - m + 1 + i` if it is causal.
    """
    m = scores.shape[-2]
    ends = reshape(at, lengths, (*tensor_type(lengths).shape, 1, 1))
    if causal:
        query = array.iota(at, scores, scores.rank - 2, I32)
        query, last = unify(at, (query, as_tensor(at, m - 1, I32)))
        before_last = at(array.Subtract(query, last))
        ends, before_last = unify(at, (ends, before_last))
        ends = at(array.Add(ends, before_last))
    key = array.iota(at, scores, scores.rank - 1, I32)
    key, ends = unify(at, (key, ends))
    seen = at(array.Compare(key, ends, "lt"))
    if mask is None:
        return seen
    if dtype_of(mask) is BOOL:
        return at(array.And(mask, seen))
    return at(array.Select(seen, mask, array.constant_like(at, -math.inf, mask)))


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
