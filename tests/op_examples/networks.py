"""Examples of the operations of neural networks, from their formulas."""

from __future__ import annotations

import math

import numpy as np

from dlc.dialects import nn
from dlc.ir.core import Op, Value
from dlc.ir.dims import symbol
from dlc.ir.types import BF16, BOOL, F32, F64, I32, I64, U8
from tests.op_examples.example import Example, Numbers, drawn, examples, given
from tests.op_examples.linear import convolution, matmul

B = symbol("B")


def softmax(x: Numbers) -> Numbers:
    """Along the last axis."""
    powers = np.exp(x.astype(np.float64))
    return powers / powers.sum(-1, keepdims=True)


def log_sum_exp(x: Numbers) -> Numbers:
    return np.log(np.exp(x.astype(np.float64)).sum(-1))


for dtype in (F64, F32, BF16):
    examples("nn.softmax", Example(lambda x: nn.Softmax(x, 1), [drawn(dtype, (2, 3))], softmax))
    examples(
        "nn.log_softmax",
        Example(
            lambda x: nn.LogSoftmax(x, 1),
            [drawn(dtype, (2, 3))],
            lambda x: x - log_sum_exp(x)[:, None],
        ),
    )
    examples(
        "nn.logsumexp", Example(lambda x: nn.LogSumExp(x, 1), [drawn(dtype, (2, 3))], log_sum_exp)
    )
examples(
    "nn.softmax",
    Example(
        lambda x: nn.Softmax(x, 0),
        [drawn(F64, (3, 2), symbolic=(B, 2))],
        lambda x: softmax(x.T).T,
        dims={"B": 3},
    ),
)


def layer_norm(x: Value, scale: Value, shift: Value) -> Op:
    return nn.LayerNorm(x, (scale,), (shift,), 1, 0.25)


def rms_norm(x: Value, scale: Value) -> Op:
    return nn.RMSNorm(x, (scale,), 1, 0.25)


def normal_rows(x: Numbers, scale: Numbers, shift: Numbers) -> Numbers:
    rows: list[list[float]] = []
    for row in x.astype(np.float64):
        middle = math.fsum(row) / len(row)
        deviation = math.sqrt(math.fsum((y - middle) ** 2 for y in row) / len(row) + 0.25)
        rows.append([(y - middle) / deviation for y in row])
    return np.array(rows) * scale + shift


examples(
    "nn.layer_norm",
    *[
        Example(
            layer_norm,
            [drawn(dtype, (2, 3)), drawn(dtype, (3,)), drawn(dtype, (3,), seed=1)],
            normal_rows,
        )
        for dtype in (F64, F32)
    ],
)
examples(
    "nn.rms_norm",
    Example(
        rms_norm,
        [drawn(F64, (2, 3)), drawn(F64, (3,))],
        lambda x, scale: np.array(
            [row / math.sqrt(math.fsum(row * row) / 3 + 0.25) * scale for row in x]
        ),
    ),
)


def cross_entropy(logits: Numbers, labels: Numbers) -> Numbers:
    log = log_sum_exp(logits)
    return np.array([log[k] - logits[k, label] for k, label in enumerate(labels.tolist())])


examples(
    "nn.cross_entropy",
    Example(nn.CrossEntropy, [drawn(F64, (3, 4)), given(U8, [0, 3, 3])], cross_entropy),
    Example(nn.CrossEntropy, [drawn(F32, (3, 4)), given(I32, [1, 0, 2])], cross_entropy),
)


def linear(x: Value, weight: Value, bias: Value) -> Op:
    return nn.Linear(x, weight, (bias,))


examples(
    "nn.linear",
    Example(
        linear,
        [drawn(F64, (2, 3)), drawn(F64, (3, 2), seed=1), drawn(F64, (2,))],
        lambda x, weight, bias: matmul(x, weight).astype(np.float64) + bias,
    ),
    Example(
        linear,
        [drawn(F64, (2, 3, 2), symbolic=(2, B, 2)), drawn(F64, (2, 2), seed=1), drawn(F64, (2,))],
        lambda x, weight, bias: np.tensordot(x, weight, 1) + bias,
        dims={"B": 3},
    ),
)


def conv(x: Value, kernel: Value, bias: Value) -> Op:
    return nn.Conv(x, kernel, (bias,), (2,), ((1, 0),), (1,), (1,), 1, "nwc")


examples(
    "nn.conv",
    Example(
        conv,
        [drawn(F64, (1, 4, 2)), drawn(F64, (3, 2, 2), seed=1), drawn(F64, (2,))],
        lambda x, w, bias: (
            convolution(x, w, (2,), [(1, 0)], (1,), (1,), 1).astype(np.float64) + bias
        ),
    ),
)


def attention(query: Value, keys: Value, values: Value, mask: Value) -> Op:
    return nn.Attention(query, keys, values, (mask,), 0.5)


def causal(query: Value, keys: Value, values: Value) -> Op:
    return nn.Attention(query, keys, values, (), 0.5, 1)


def weighted(query: Numbers, keys: Numbers, values: Numbers, seen: Numbers) -> Numbers:
    scores = matmul(query, keys.T).astype(np.float64) / 2
    powers = np.where(seen, np.exp(scores), 0)
    return (powers / powers.sum(-1, keepdims=True)) @ values


examples(
    "nn.attention",
    Example(
        attention,
        [
            drawn(F64, (2, 3)),
            drawn(F64, (4, 3), seed=1),
            drawn(F64, (4, 2), seed=2),
            given(BOOL, [[True, False, True, True], [False, True, True, False]]),
        ],
        weighted,
    ),
    Example(
        causal,
        [drawn(F64, (3, 2)), drawn(F64, (4, 2), seed=1), drawn(F64, (4, 2), seed=2)],
        lambda query, keys, values: weighted(query, keys, values, np.tri(3, 4, 1)),
    ),
    Example(
        lambda query, keys, values: nn.Attention(query, keys, values, (), 0.5, None, True),
        [drawn(F64, (3, 2)), drawn(F64, (4, 2), seed=1), drawn(F64, (4, 2), seed=2)],
        lambda query, keys, values: (
            weighted(query, keys, values, np.ones((3, 4))),
            log_sum_exp(matmul(query, keys.T) / 2),
        ),
    ),
)


def over_a_cache(query: Value, keys: Value, values: Value, position: Value) -> Op:
    return nn.CachedAttention(query, keys, values, position, 0.5)


def grouped(query: Numbers, keys: Numbers, values: Numbers, position: Numbers) -> Numbers:
    seen = np.tri(query.shape[-2], keys.shape[-2], int(position))
    return np.stack([weighted(each, keys[0], values[0], seen) for each in query])


examples(
    "nn.cached_attention",
    Example(
        over_a_cache,
        [
            drawn(F64, (2, 3, 2)),
            drawn(F64, (1, 6, 2), seed=1),
            drawn(F64, (1, 6, 4), seed=2),
            given(I64, 1),
        ],
        grouped,
    ),
)


def received(*operands: Value) -> Op:
    query, keys, values, dy, logarithms, means, *mask = operands
    return nn.AttentionGradient(query, keys, values, dy, logarithms, means, mask, 0.5)


def received_in_order(*operands: Value) -> Op:
    query, keys, values, dy, logarithms, means = operands
    return nn.AttentionGradient(query, keys, values, dy, logarithms, means, (), 0.5, 1)


def gradient_of_weighted(
    query: Numbers,
    keys: Numbers,
    values: Numbers,
    dy: Numbers,
    logarithms: Numbers,
    means: Numbers,
    *masks: Numbers,
) -> tuple[Numbers, ...]:
    scores = matmul(query, keys.T).astype(np.float64) / 2
    for mask in masks:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == np.bool_ else scores + mask
    p = np.exp(scores - logarithms[:, None])
    ds = p * (matmul(dy, values.T) - means[:, None])
    floats = [ds for mask in masks if mask.dtype != np.bool_]
    return (ds @ keys / 2, ds.T @ query / 2, p.T @ dy, *floats)


def gradient_in_order(*given: Numbers) -> tuple[Numbers, ...]:
    query, keys, values, dy, logarithms, means = given
    seen = np.tri(2, 4, 1).astype(np.bool_)
    return gradient_of_weighted(query, keys, values, dy, logarithms, means, seen)


ATTENDED = [
    *(drawn(F64, (2, 3)), drawn(F64, (4, 3), seed=1), drawn(F64, (4, 2), seed=2)),
    *(drawn(F64, (2, 2), seed=3), drawn(F64, (2,), 1, 3, seed=4), drawn(F64, (2,), seed=5)),
]
"""Queries, keys and values, what the result receives, and two numbers for each query."""

examples(
    "nn.attention_gradient",
    Example(
        received,
        [*ATTENDED, given(BOOL, [[True, False, True, True], [False, True, True, False]])],
        gradient_of_weighted,
    ),
    Example(received, [*ATTENDED, drawn(F64, (2, 4), seed=6)], gradient_of_weighted),
    Example(received_in_order, ATTENDED, gradient_in_order),
)


def lstm(x: Value, wx: Value, wh: Value, bias: Value, hidden: Value, cell: Value) -> Op:
    return nn.LSTM(x, wx, wh, bias, hidden, cell)


def unrolled(
    x: Numbers, wx: Numbers, wh: Numbers, bias: Numbers, hidden: Numbers, cell: Numbers
) -> tuple[Numbers, ...]:
    outputs: list[Numbers] = []
    for step in range(x.shape[1]):
        gates = x[:, step] @ wx + bias + hidden @ wh
        enter, forget, leave = (1 / (1 + np.exp(-part)) for part in np.split(gates, 4, 1)[:3])
        cell = forget * cell + enter * np.tanh(np.split(gates, 4, 1)[3])
        hidden = leave * np.tanh(cell)
        outputs.append(hidden)
    return np.stack(outputs, 1), hidden, cell


examples(
    "nn.lstm",
    Example(
        lstm,
        [
            drawn(F64, (2, 3, 1)),
            drawn(F64, (1, 8), seed=1),
            drawn(F64, (2, 8), seed=2),
            drawn(F64, (8,), seed=3),
            drawn(F64, (2, 2), seed=4),
            drawn(F64, (2, 2), seed=5),
        ],
        unrolled,
    ),
)
