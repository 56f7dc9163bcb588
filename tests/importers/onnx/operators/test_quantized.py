"""Quantised operators, of ONNX itself and of com.microsoft, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.errors import ModelError
from tests.importers.onnx.models import SATURATES, Array, imported
from tests.importers.onnx.node_cases import NodeCase, check, check_compiled
from tests.suites import every


def floats(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def bytes_of(dtype: type[np.uint8 | np.int8], *shape: int) -> Array:
    limits = np.iinfo(dtype)
    low, high = (limits.min // 2, limits.max // 2) if SATURATES else (limits.min, limits.max)
    stream = np.random.default_rng(sum(shape))
    return stream.integers(low, high, shape, endpoint=True).astype(dtype)


def u8(*shape: int) -> Array:
    return bytes_of(np.uint8, *shape)


def i8(*shape: int) -> Array:
    return bytes_of(np.int8, *shape)


def scale(*numbers: float) -> Array:
    """One number, or a list of them."""
    return np.asarray(numbers, np.float32).reshape([-1] if len(numbers) > 1 else [])


def zero(dtype: type[np.uint8 | np.int8], *numbers: int) -> Array:
    return np.asarray(numbers, dtype).reshape([-1] if len(numbers) > 1 else [])


def own(
    kind: str, *operands: Array | None, inputs: int = 1, opset: int = 18, **a: object
) -> NodeCase:
    return NodeCase("", kind, operands, inputs, a, opset=opset)


def microsoft(kind: str, *operands: Array | None, inputs: int = 1, **a: object) -> NodeCase:
    return NodeCase("com.microsoft", kind, operands, inputs, a)


S, T = scale(0.02), scale(0.05)
"""Two scales."""
ROWS = scale(0.02, 0.03, 0.04, 0.05)
"""A scale for each of four channels."""
Z, Y = zero(np.uint8, 117), zero(np.uint8, 3)
"""Two zero points."""
ZS = zero(np.int8, -7, 0, 5, 9)
BIAS = np.arange(-2, 2, dtype=np.int32) * 1000

PAIRS = np.mgrid[:256:3, :256:5].astype(np.uint8)
ONE, HALF, QUARTER = scale(1), scale(0.5), scale(0.25)

CASES = [
    own("QuantizeLinear", floats(3, 4), S, Z),
    own("QuantizeLinear", floats(3, 4), S),
    own("QuantizeLinear", floats(3, 4), ROWS, ZS, axis=1),
    own("QuantizeLinear", floats(2, 4, 3), ROWS, ZS, axis=-2),
    own("QuantizeLinear", np.arange(-9, 9, dtype=np.float32) / 2, scale(1.0), Z),
    own("QuantizeLinear", np.asarray([1e30, -1e30, 3e9], np.float32), S, Y),
    own("DequantizeLinear", u8(3, 4), S, Z),
    own("DequantizeLinear", i8(3, 4), ROWS, ZS, axis=1),
    own("DequantizeLinear", np.arange(12, dtype=np.int32).reshape(3, 4), S),
    own("DequantizeLinear", i8(8, 4), np.abs(floats(4, 4)), i8(4, 4), axis=0, block_size=2, opset=21),
    *[
        NodeCase("", "DynamicQuantizeLinear", (x,), 1, outputs=("q", "scale", "zero"))
        for x in (floats(3, 4), abs(floats(3, 4)), np.zeros((2, 2), np.float32))
    ],
    own("MatMulInteger", u8(5, 9), i8(9, 4), Z, zero(np.int8, 3)),
    own("MatMulInteger", u8(2, 5, 9), i8(9, 4), Z, ZS),
    own("MatMulInteger", u8(5, 9), u8(9, 4), inputs=2),
    own("QLinearMatMul", u8(5, 9), S, Z, i8(9, 4), T, zero(np.int8, 3), scale(2.0), Y),
    own("QLinearMatMul", u8(5, 9), S, Z, i8(9, 4), ROWS, ZS * 0, scale(2.0), Y),
    own("ConvInteger", u8(2, 3, 7, 6), u8(4, 3, 3, 2), Z, Y, pads=[1, 0, 2, 1], strides=[2, 1]),
    own(
        "QLinearConv", u8(2, 4, 7, 6), S, Z, i8(4, 2, 3, 3), ROWS, ZS * 0, scale(3.0), Y, BIAS,
        group=2, pads=[1, 1, 1, 1],
    ),
    own("QLinearConv", u8(2, 4, 7, 6), S, Z, u8(4, 4, 1, 1), T, Z, scale(3.0), Y),
    microsoft("QLinearAdd", u8(3, 4), S, Z, u8(3, 4), T, Y, T, Z, inputs=4),
    microsoft("QLinearAdd", i8(3, 4), S, ZS[0], i8(4), T, ZS[2], T, ZS[3]),
    microsoft("QLinearMul", u8(3, 4), S, Z, u8(3, 4), T, Y, T, Z, inputs=4),
    microsoft("QLinearMul", i8(3, 4), S, ZS[0], i8(4), T, ZS[2], T, ZS[3]),
    # Halves, with a zero point that is odd.
    microsoft("QLinearAdd", PAIRS[0], HALF, Z, PAIRS[1], QUARTER, Z, ONE, Y, inputs=4),
    microsoft("QLinearMul", PAIRS[0], HALF, Z, PAIRS[1], QUARTER, Z, ONE, Y, inputs=4),
    microsoft("QLinearLeakyRelu", PAIRS[0], HALF, Z, ONE, Y, alpha=0.5),
    own("QuantizeLinear", PAIRS[0].astype(np.float32), HALF * 4, Y),
    microsoft("QLinearSigmoid", u8(3, 4), S, Z, scale(1 / 256), zero(np.uint8, 0)),
    microsoft("QLinearLeakyRelu", i8(3, 4), S, ZS[0], T, ZS[2], alpha=0.1),
    microsoft("QLinearSoftmax", u8(3, 4), S, Z, scale(1 / 256), zero(np.uint8, 0), opset=13),
    microsoft("QLinearWhere", floats(3, 4) > 0, u8(3, 4), S, Z, u8(4), T, Y, T, Z),
    microsoft("QLinearConcat", T, Z, u8(3, 4), S, Y, u8(3, 2), T, Z, axis=1, inputs=0),
    microsoft(
        "QLinearAveragePool", u8(2, 4, 7, 6), HALF, Z, ONE, Y,
        kernel_shape=[2, 2], strides=[2, 2], pads=[1, 0, 1, 1], count_include_pad=1,
    ),
    microsoft(
        "QLinearAveragePool", u8(2, 7, 6, 4), HALF, Z, HALF, Y,
        kernel_shape=[2, 2], channels_last=1,
    ),
    microsoft("QLinearGlobalAveragePool", u8(2, 4, 7, 6), S, Z, T, Y),
    microsoft("QLinearGlobalAveragePool", u8(2, 7, 6, 4), S, Z, T, Y, channels_last=1),
    microsoft("QGemm", u8(5, 9), S, Z, i8(4, 9), ROWS, ZS * 0, BIAS, scale(2.0), Y, transB=1),
    microsoft("QGemm", u8(5, 9), S, Z, i8(9, 4), T, ZS[0], alpha=0.5),
    microsoft("MatMulIntegerToFloat", u8(2, 5, 9), i8(9, 4), S, ROWS, Z, ZS, floats(4)),
    microsoft("MatMulIntegerToFloat", u8(5, 9), u8(9, 4), S, T),
    microsoft("DynamicQuantizeMatMul", floats(5, 9), i8(9, 4), ROWS, ZS, floats(4)),
    microsoft("DynamicQuantizeMatMul", floats(5, 9), u8(9, 4), T),
    # A batch of one: onnxruntime quantises the rows that each of its threads has apart.
    microsoft(
        "DynamicQuantizeLSTM", floats(5, 1, 6), i8(2, 6, 16), i8(2, 4, 16), floats(2, 32), None,
        None, None, None, scale(0.01, 0.02), zero(np.int8, 0, 0), scale(0.02, 0.01),
        zero(np.int8, 0, 0), direction="bidirectional", hidden_size=4,
    ),
    microsoft(
        "DynamicQuantizeLSTM", floats(5, 1, 6), u8(1, 6, 16), u8(1, 4, 16), None, None,
        floats(1, 1, 4), floats(1, 1, 4), None, ROWS[:1], Z.reshape(1), ROWS[1:2], Y.reshape(1),
        direction="reverse", hidden_size=4,
    ),
    microsoft(
        "DynamicQuantizeLSTM", floats(5, 1, 6), i8(1, 6, 16), i8(1, 4, 16), None, None, None, None,
        None, 0.01 + abs(floats(1, 16)) / 50, np.zeros((1, 16), np.int8),
        0.01 + abs(floats(1, 16)) / 90, np.zeros((1, 16), np.int8), hidden_size=4,
    ),
    *[
        microsoft(
            "MatMulNBits", floats(3, 40), u8(5, 3, 16 * bits // 8), floats(15), zeros, None, bias,
            K=40, N=5, bits=bits, block_size=16,
        )
        for bits, zeros, bias in (
            (4, None, None), (4, u8(5, 2), None), (4, u8(10), floats(5)), (8, u8(5, 3), None),
        )
    ],
]  # fmt: skip
IDS = [f"{case}-{number}" for number, case in enumerate(CASES)]


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_quantised_operator_means_what_onnxruntime_computes(case: NodeCase) -> None:
    check(case)


@pytest.mark.parametrize(
    ("block", "scales", "said"),
    [
        (9, floats(1, 4), "blocks of 9 elements along an axis of 8"),
        (2, floats(2, 4), "takes f32[4, 4] as its input 1, found f32[2, 4]"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(block: int, scales: Array, said: str) -> None:
    one = own("DequantizeLinear", i8(8, 4), scales, axis=0, block_size=block, opset=21)
    with pytest.raises(ModelError) as caught:
        imported(one.model)
    assert said in caught.value.diagnostics[0].message


QUICK = ("QuantizeLinear", "MatMulInteger", "QLinearConv", "QGemm", "DynamicQuantizeLSTM")


@pytest.mark.parametrize("case", every(4, [case for case in CASES if case.kind in QUICK]), ids=str)
def test_a_quantised_operator_compiles(case: NodeCase) -> None:
    check_compiled(case)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_every_quantised_operator_compiles(case: NodeCase) -> None:
    check_compiled(case)
