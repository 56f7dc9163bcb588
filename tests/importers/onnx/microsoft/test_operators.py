"""Operators of com.microsoft that are not quantised, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.importers.onnx.models import Array, evaluated, imported
from tests.importers.onnx.node_cases import NodeCase, check, check_compiled


def floats(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def ints(*numbers: int) -> Array:
    return np.asarray(numbers, np.int32)


def case(
    kind: str,
    *operands: Array | None,
    inputs: int = 1,
    outputs: tuple[str, ...] = ("y",),
    **a: object,
) -> NodeCase:
    return NodeCase("com.microsoft", kind, operands, inputs, a, outputs)


WORDS = np.asarray([[1, 5, 2], [0, 4, 3]], np.int32)
MASK = np.asarray([[1, 1, 0], [1, 1, 1]], np.int32)
KEPT, PAST = ("y", "keys", "values"), (floats(2, 2, 5, 4), floats(2, 2, 4, 5).swapaxes(2, 3) + 1)
"""Results with a cache, and the keys and values of one: 5 tokens of 2 heads of 4 numbers."""
ANGLES = np.arange(32, dtype=np.float32).reshape(16, 2) / 8
TURNS = (np.cos(ANGLES), np.sin(ANGLES))

WIDE_TURNS = tuple(np.tile(part, 4) for part in TURNS)

X, W, B = floats(2, 3, 8), floats(8, 24) / 4, floats(24)
THREE = (floats(2, 3, 8), floats(2, 3, 8) + 1, floats(2, 3, 8) - 1)

PRODUCTS = [
    case("FusedMatMul", floats(2, 3, 4), floats(2, 4, 5), inputs=2, alpha=0.5),
    case("FusedMatMul", floats(2, 4, 3), floats(5, 4), transA=1, transB=1),
    case("FusedMatMul", floats(3, 2, 4), floats(2, 4, 5), inputs=2, transBatchA=1),
    case("FusedGemm", floats(3, 4), floats(4, 5), floats(5), activation="Relu"),
    case(
        "FusedGemm", floats(3, 4), floats(5, 4), None, transB=1, alpha=0.5,
        activation="LeakyRelu", activation_alpha=0.2,
    ),
    case(
        "FusedConv", floats(2, 3, 7, 6), floats(4, 3, 3, 2), floats(4), pads=[1, 0, 1, 1],
        activation="Relu",
    ),
    case("FusedConv", floats(2, 3, 7, 6), floats(4, 3, 3, 2), activation="Tanh"),
    case(
        "FusedConv", floats(2, 3, 7, 6), floats(4, 3, 1, 1), floats(4), floats(2, 4, 7, 6), inputs=4,
        activation="Clip", activation_params=[-0.5, 1.0],
    ),
]  # fmt: skip
ROWS = [
    case("Gelu", floats(3, 5)),
    case("FastGelu", floats(3, 5)),
    case("FastGelu", floats(3, 5), floats(5)),
    case("BiasGelu", floats(3, 5), floats(5)),
    case("QuickGelu", floats(3, 5)),
    case("QuickGelu", floats(3, 5), alpha=1.0),
    case("SkipLayerNormalization", X, THREE[0], floats(8), floats(8), inputs=2),
    case(
        "SkipLayerNormalization", X, THREE[0], floats(8), None, floats(8), inputs=2,
        outputs=("y", "", "", "sum"), epsilon=1e-5,
    ),
    case("SkipSimplifiedLayerNormalization", X, THREE[0], floats(8), inputs=2),
    case(
        "SkipSimplifiedLayerNormalization", X, THREE[0], floats(8), floats(8), inputs=2,
        outputs=("y", "", "", "sum"), epsilon=1e-5,
    ),
    NodeCase("", "SimplifiedLayerNormalization", (X, floats(8)), 1, {"epsilon": 1e-6}),
    case(
        "EmbedLayerNormalization", WORDS, WORDS % 2, floats(6, 8), floats(4, 8), floats(2, 8),
        floats(8), floats(8), MASK, inputs=2, outputs=("y", "counts"),
    ),
    case(
        "EmbedLayerNormalization", WORDS, None, floats(6, 8), floats(4, 8), None,
        floats(8), floats(8), None, ints(2, 0, 1)[None], outputs=("y", "counts"),
    ),
]  # fmt: skip
ATTENTION = [
    case("Attention", X, W, B, num_heads=2),
    case("Attention", X, W, B, num_heads=2, unidirectional=1),
    case("Attention", X, W, B, MASK, num_heads=2, inputs=4),
    case("Attention", X, W, B, np.stack([MASK, MASK[::-1], MASK], 1), num_heads=2, scale=0.3),
    case("Attention", X, W, B, ints(2, 3), num_heads=2, inputs=4),
    case("Attention", X, W, B, ints(2, 3, 0, 1), num_heads=2, inputs=4),
    case("Attention", X, W, B, None, None, floats(1, 2, 3, 3), num_heads=2),
    case("Attention", X, floats(8, 20) / 4, floats(20), num_heads=2, qkv_hidden_sizes=[8, 8, 4]),
    case(
        "Attention", X, W, B, None, np.stack(PAST), num_heads=2, unidirectional=1, inputs=5,
        outputs=("y", "present"),
    ),
    case("MultiHeadAttention", *THREE, num_heads=2, inputs=3),
    case("MultiHeadAttention", *THREE, B, MASK, num_heads=2, inputs=5, unidirectional=1),
    case("MultiHeadAttention", *THREE, None, ints(2, 3), floats(1, 2, 3, 3), num_heads=2, inputs=6),
    case("MultiHeadAttention", X, *PAST, num_heads=2, inputs=3),
    case(
        "MultiHeadAttention", *THREE, None, None, None, *PAST, num_heads=2, inputs=8, outputs=KEPT,
    ),
    case("RotaryEmbedding", X, WORDS.astype(np.int64), *TURNS, inputs=2),
    case("RotaryEmbedding", X, np.asarray([3]), *TURNS, interleaved=1),
    case("RotaryEmbedding", floats(2, 2, 3, 4), np.asarray([0]), *TURNS),
]  # fmt: skip


def grouped(
    length: int,
    past: int,
    last: Array,
    *more: Array | None,
    heads: tuple[int, int] = (4, 2),
    **a: object,
) -> NodeCase:
    """Group-query attention of `length` new tokens with a cache of `past`."""
    width = 16
    query, keys = (
        floats(len(last), length, heads[0] * width),
        floats(len(last), length, heads[1] * width),
    )
    cache = floats(len(last), heads[1], past, width)
    operands = (
        query, keys, keys + 1, cache, cache - 1, last, np.asarray(past + length, np.int32), *more,
    )  # fmt: skip
    settings = {"num_heads": heads[0], "kv_num_heads": heads[1], **a}
    return NodeCase("com.microsoft", "GroupQueryAttention", operands, 6, settings, KEPT)


GROUPED = [
    grouped(3, 0, ints(2, 2)),
    grouped(1, 5, ints(5, 5)),
    grouped(1, 5, ints(5, 5), *WIDE_TURNS, do_rotary=1),
    grouped(3, 0, ints(2, 2), *WIDE_TURNS, do_rotary=1, rotary_interleaved=1, scale=0.2),
    grouped(1, 5, ints(5, 5), local_window_size=3),
    grouped(1, 5, ints(5, 5), softcap=2.0),
    grouped(4, 5, ints(8)),
]
CASES = [*PRODUCTS, *ROWS, *ATTENTION, *GROUPED]


@pytest.mark.parametrize("one", CASES, ids=[f"{one}-{n}" for n, one in enumerate(CASES)])
def test_an_operator_of_microsoft_means_what_onnxruntime_computes(one: NodeCase) -> None:
    check(one)


def test_queries_keys_and_values_in_one_tensor_are_those_side_by_side() -> None:
    """ONNX Runtime computes this on a GPU only."""
    whole = floats(2, 3, 2, 3, 4)
    query, *two = (whole[..., k, :].reshape(2, 3, 8) for k in range(3))
    packed = [
        case("MultiHeadAttention", whole, None, None, B, num_heads=2),
        case("MultiHeadAttention", query, whole[..., 1:, :], None, B, num_heads=2, inputs=2),
    ]
    apart = case("MultiHeadAttention", query, *two, B, num_heads=2, inputs=3)
    wanted = evaluated(imported(apart.model), apart.given)
    for one in packed:
        np.testing.assert_allclose(evaluated(imported(one.model), one.given), wanted, rtol=1e-6)


QUICK = [PRODUCTS[0], PRODUCTS[5], ROWS[6], ATTENTION[2], GROUPED[1]]


@pytest.mark.parametrize("one", QUICK, ids=str)
def test_an_operator_of_microsoft_compiles(one: NodeCase) -> None:
    check_compiled(one)


@pytest.mark.long
@pytest.mark.parametrize("one", CASES, ids=[f"{one}-{n}" for n, one in enumerate(CASES)])
def test_every_operator_of_microsoft_compiles(one: NodeCase) -> None:
    check_compiled(one)
