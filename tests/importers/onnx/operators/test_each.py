"""Each operator on its own, compared with onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.importers.onnx.cases import (
    Case,
    case,
    check_compiled,
    check_evaluated,
    floats,
    ids,
    ints,
)
from tests.suites import every, together

PICTURE = floats(2, 4, 7, 9)
SPECIAL = np.asarray([1, np.nan, np.inf, -np.inf], np.float32)


POWERS = (
    (ints(9, 16, 2, 10), np.asarray([0.5, 0.5, 1.5, 2.9], np.float32)),
    (ints(9, 16, -2, 10).astype(np.int32), np.asarray([0.5, -0.5, 2, 2.9], np.float32)),
    (ints(9, 3**33), np.asarray([0.5, 1], np.float32)),
    (ints(3, 2).astype(np.int32), ints(4, 9)),
    (np.asarray([1.5, -1, 0.5], np.float32), ints(3, 2**24 + 1, -2)),
    (np.asarray([1.5, 3], np.float32), np.asarray([1 / 3, -2.5])),
    (np.asarray([1.5, 3]), np.asarray([0.5, -2.5], np.float32)),
)
"""Bases and exponents of different dtypes."""
UNARY = (
    "Abs", "Asinh", "Atan", "Ceil", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor", "HardSigmoid",
    "HardSwish", "LeakyRelu", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign",
    "Sin", "Sinh", "Softplus", "Softsign", "Tan", "Tanh", "Identity",
)  # fmt: skip
REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSumSquare",
)  # fmt: skip

CASES = [
    *[case(kind, floats(3, 5)) for kind in UNARY],
    *[case(kind, abs(floats(3, 5)) + 1) for kind in ("Sqrt", "Log", "Acosh")],
    *[case(kind, floats(3, 1, 5), floats(4, 1)) for kind in ("Add", "Sub", "Mul", "Div", "Max")],
    *[case(kind, floats(3, 5), floats(5)) for kind in ("Greater", "Less", "Equal")],
    case("Pow", abs(floats(3, 5)), k=(np.asarray(1.5, np.float32),)),
    *[case("Pow", base, exponent) for base, exponent in POWERS],
    case("Pow", floats(3, 5), k=(np.asarray(2),)),
    case("Sum", floats(3, 5), floats(5), floats(3, 1)),
    case("Mean", floats(3, 5), floats(5)),
    case("Min", floats(3, 5), floats(5)),
    case("PRelu", floats(3, 5), k=(floats(5),)),
    case("Clip", floats(3, 5), k=(np.asarray(-0.5, np.float32), np.asarray(0.25, np.float32))),
    case("Clip", floats(3, 5), opset=9, min=-0.5),
    case("Gelu", floats(3, 5), opset=20),
    case("Gelu", floats(3, 5), opset=20, approximate="tanh"),
    case("Where", floats(3, 5) > 0, floats(3, 5), floats(5)),
    case("Cast", floats(3, 5), to=6),
    case("Dropout", floats(3, 5), opset=9, ratio=0.5),
    # Windows.
    case("Conv", PICTURE, k=(floats(6, 4, 3, 2), floats(6))),
    case("Conv", PICTURE, k=(floats(6, 2, 3, 3),), group=2, strides=[2, 1], pads=[1, 0, 2, 1]),
    case("Conv", PICTURE, k=(floats(4, 4, 3, 3),), dilations=[2, 3], pads=[1, 2, 3, 4]),
    case("Conv", PICTURE, k=(floats(4, 4, 3, 2),), auto_pad="SAME_UPPER", strides=[2, 2]),
    case("Conv", PICTURE, k=(floats(4, 4, 3, 2),), auto_pad="SAME_LOWER", strides=[2, 2]),
    case("Conv", floats(2, 4, 9), k=(floats(6, 4, 3),), auto_pad="VALID"),
    case("ConvTranspose", PICTURE, k=(floats(4, 3, 2, 2), floats(3)), strides=[2, 2]),
    case(
        "ConvTranspose", PICTURE, k=(floats(4, 3, 3, 3),), group=2, strides=[2, 3],
        pads=[1, 0, 1, 2], output_padding=[1, 0], dilations=[1, 2],
    ),
    case("ConvTranspose", PICTURE, k=(floats(4, 3, 3, 3),), auto_pad="SAME_UPPER", strides=[2, 2]),
    case("ConvTranspose", PICTURE, k=(floats(4, 3, 3, 3),), output_shape=[15, 20], strides=[2, 2]),
    case("MaxPool", PICTURE, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
    case("MaxPool", PICTURE, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    case("MaxPool", PICTURE, kernel_shape=[2, 3], dilations=[2, 2]),
    case("MaxPool", PICTURE, kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"),
    case("AveragePool", PICTURE, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    case("AveragePool", PICTURE, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    case("AveragePool", PICTURE, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    case("GlobalAveragePool", PICTURE),
    case("GlobalMaxPool", PICTURE),
    case("LRN", PICTURE, size=3, alpha=0.01, beta=0.5, bias=2.0),
    case("LRN", floats(2, 9, 3, 3), size=5, alpha=0.5),
    case(
        "BatchNormalization", PICTURE,
        k=(floats(4), floats(4), floats(4), abs(floats(4))), epsilon=1e-3,
    ),
    case("InstanceNormalization", PICTURE, k=(floats(4), floats(4))),
    # Products and rows.
    case("MatMul", floats(2, 3, 4), floats(4, 5)),
    case("MatMul", floats(2, 1, 3, 4), floats(5, 4, 2)),
    case("MatMul", floats(4), floats(3, 4, 2)),
    case("MatMul", floats(3, 4), floats(4)),
    case("Gemm", floats(4, 3), floats(5, 4), k=(floats(5),), transA=1, transB=1, alpha=0.5, beta=2.0),
    case("Gemm", floats(3, 4), k=(floats(4, 5),)),
    case("Softmax", floats(2, 3, 4), opset=11, axis=1),
    case("Softmax", floats(2, 3, 4), axis=1),
    case("LogSoftmax", floats(2, 3, 4), opset=9),
    case("LogSoftmax", floats(2, 3, 4)),
    case("LayerNormalization", floats(2, 3, 4), k=(floats(3, 4), floats(3, 4)), axis=1),
    *[case(kind, floats(2, 3, 4), k=(ints(0, -1),), keepdims=0) for kind in REDUCTIONS],
    *[case(kind, floats(2, 3, 4), opset=11, axes=[1]) for kind in REDUCTIONS],
    case("ReduceSum", floats(2, 3, 4), k=(ints(1),)),
    case("ReduceSum", floats(2, 3, 4), opset=11, axes=[-1], keepdims=0),
    case("ReduceSum", floats(2, 3, 4), noop_with_empty_axes=1),
    case("ArgMax", floats(3, 5), axis=1, keepdims=0),
    case("ArgMin", floats(3, 5), axis=-2),
    case("Einsum", floats(3, 4), floats(4, 5), equation="ij,jk->ki"),
    # Shapes.
    case("Reshape", floats(2, 3, 4), k=(ints(0, -1),)),
    case("Flatten", floats(2, 3, 4), axis=2),
    case("Transpose", floats(2, 3, 4)),
    case("Transpose", floats(2, 3, 4), perm=[1, 2, 0]),
    case("Squeeze", floats(1, 3, 1), opset=11, axes=[-1]),
    case("Squeeze", floats(1, 3, 1)),
    case("Unsqueeze", floats(3, 4), opset=11, axes=[0, 3]),
    case("Unsqueeze", floats(3, 4), k=(ints(-1, 1),)),
    case("Concat", floats(2, 3), floats(2, 4), axis=-1),
    case("Split", floats(7, 2), k=(ints(3, 4),), outputs=2),
    case("Split", floats(7, 2), outputs=3, num_outputs=3),
    case("Slice", floats(5, 6), k=(ints(1, -2), ints(10**9, -5), ints(0, 1), ints(2, -1))),
    case("Slice", floats(5, 6), k=(ints(-9, 7), ints(-9, 2), ints(0, 1), ints(-1, -2))),
    case("Slice", floats(5, 6), opset=9, starts=[1, -3], ends=[-1, 100]),
    case("Gather", floats(3, 4, 5), k=(np.asarray([[0, -1], [2, 1]]),), axis=1),
    case("Expand", floats(3, 1), k=(ints(2, 1, 4),)),
    case("Tile", floats(2, 3), k=(ints(2, 3),)),
    case("Pad", floats(2, 3), k=(ints(1, -1, 0, 2), np.asarray(7, np.float32))),
    *[
        case("Pad", floats(2, 3, 4), k=(ints(0, 1, 2, 1, 2, 3),), mode=mode, opset=19)
        for mode in ("reflect", "edge", "wrap")
    ],
    case("Resize", PICTURE, opset=10, k=(np.asarray([1, 1, 2, 3], np.float32),)),
    case("Upsample", PICTURE, opset=9, k=(np.asarray([1, 1, 2, 2], np.float32),), mode="linear"),
    # By a scale that gives no whole size: 0.6 * 7 and 1.3 * 9.
    *[
        case(
            "Resize", PICTURE, k=(np.zeros(0, np.float32), np.asarray([1, 1, *scales], np.float32)),
            mode=mode, coordinate_transformation_mode=coordinates, nearest_mode=nearest,
        )
        for scales in ((0.6, 1.3), (0.7, 1.1), (2 / 3, 1 / 3), (1.05, 0.9999))
        for coordinates in ("half_pixel", "asymmetric", "pytorch_half_pixel")
        for mode, nearest in (
            ("linear", "floor"), ("nearest", "floor"), ("nearest", "ceil"),
            ("nearest", "round_prefer_ceil"), ("nearest", "round_prefer_floor"),
        )
    ],
    *[case("DepthToSpace", floats(2, 8, 3, 2), blocksize=2, mode=mode) for mode in ("DCR", "CRD")],
    case("SpaceToDepth", floats(2, 3, 4, 6), blocksize=2),
    case("Range", k=(np.asarray(3), np.asarray(10), np.asarray(2))),
    case("Range", k=tuple([np.asarray(n, np.float32) for n in (3, -1, -0.5)])),
    # Places.
    case("GatherElements", floats(3, 4), k=(np.asarray([[0, -1], [2, 1], [1, 0]]),), axis=1),
    case("GatherElements", floats(3, 4), np.asarray([[0, -1, 2, 1]])),
    case("GatherND", floats(3, 4, 5), k=(np.asarray([[0, -1], [2, 1]]),)),
    case("GatherND", floats(2, 3, 4), np.asarray([[[-1]], [[0]]]), batch_dims=1),
    case("ScatterElements", floats(3, 4), np.asarray([[1, -2], [0, 3]]), floats(2, 2), axis=1),
    *[
        case("ScatterElements", floats(5), np.asarray([1, 3, 1]), floats(3), reduction=way)
        for way in ("add", "mul", "max", "min")
    ],
    case("ScatterND", floats(4, 3), np.asarray([[2], [-4]]), floats(2, 3)),
    case("ScatterND", floats(4, 3), np.asarray([[[2], [-4]], [[1], [0]]]), floats(2, 2, 3)),
    case("ScatterND", floats(4, 3), np.asarray([1]), floats(3), reduction="max"),
    case("ScatterND", floats(4, 3), np.asarray([[2, 0], [2, 0]]), floats(2), reduction="add"),
    case("TopK", floats(3, 6), k=(ints(4),), outputs=2),
    case("TopK", floats(6, 3), k=(ints(2),), outputs=2, axis=0, largest=0),
    case("CumSum", floats(3, 4), k=(np.asarray(1),)),
    case("CumSum", floats(3, 4), k=(np.asarray(-2),), exclusive=1, reverse=1),
    case("OneHot", ints(0, 2, -1, 7), k=(np.asarray(4), np.asarray([-1, 2], np.float32))),
    case("OneHot", np.asarray([[1, 0]]), k=(ints(3), np.asarray([0, 1])), axis=1),
    *[case("Trilu", floats(2, 4, 5), k=(np.asarray(n),), upper=n % 2) for n in (-1, 0, 1, 2)],
    case("Trilu", floats(4, 5)),
    case("NonZero", np.asarray([[1, 0], [0, 3], [5, 0]], np.float32)),
    case("Compress", floats(3, 4), k=(np.asarray([True, False, True]),), axis=0),
    case("NonZero", k=(np.asarray([[[1, 0], [0, 3]], [[5, 0], [0, 0]]], np.float32),)),
    case("NonZero", k=(np.zeros((2, 0), np.float32),)),
    case("Compress", floats(3, 4), k=(np.asarray([False, True]),), axis=-1),
    case("Compress", floats(2, 3), k=(np.asarray([False, True, True, False, True]),)),
    case("EyeLike", floats(3, 4), dtype=1),
    # More functions.
    case("Celu", floats(3, 5), alpha=0.5),
    case("Shrink", floats(3, 5), lambd=0.4, bias=0.1),
    case("ThresholdedRelu", floats(3, 5), alpha=0.3),
    case("IsNaN", SPECIAL),
    case("IsInf", SPECIAL),
    case("IsInf", SPECIAL, detect_negative=0),
    *[
        case("BitShift", np.asarray([1, 5, 200], np.uint8), np.asarray([3, 1, 2], np.uint8), direction=way)
        for way in ("LEFT", "RIGHT")
    ],
    case("Mod", ints(7, -7, 5), ints(3, 3, -3)),
    case("Mod", ints(7, -7, 5), ints(3, 3, -3), fmod=1),
    case("Mod", floats(3, 4), floats(4), fmod=1),
    case("Hardmax", floats(3, 5)),
    case("LpNormalization", floats(3, 5), axis=0),
    case("LpNormalization", floats(3, 5), p=1),
    case("MeanVarianceNormalization", PICTURE),
    case("ReduceLogSumExp", floats(3, 5), k=(ints(1),)),
    case("ReduceLogSum", abs(floats(3, 5)), k=(ints(0),)),
    case("GroupNormalization", PICTURE, k=(floats(2), floats(2) + 1), num_groups=2),
    case("GroupNormalization", PICTURE, k=(floats(4), floats(4) + 1), num_groups=2, opset=21),
    case("MaxPool", np.asarray(PICTURE * 20, np.uint8), kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    case("Einsum", floats(3, 4, 4), equation="...ii->...i"),
    case("RMSNormalization", floats(3, 5), k=(floats(5),), opset=23),
    case("RMSNormalization", floats(2, 3, 4), k=(floats(3, 4),), axis=1, opset=23),
    # Recurrent layers: 3 steps of 2 sequences of 4 numbers, 5 cells.
    *[
        case(
            kind, floats(3, 2, 4),
            k=(floats(ways, n * 5, 4), floats(ways, n * 5, 5), floats(ways, n * 10)),
            hidden_size=5, direction=direction, outputs=outputs, **more,
        )
        for kind, n, outputs, more in (
            ("LSTM", 4, 3, {}), ("RNN", 1, 2, {}),
            ("GRU", 3, 2, {}), ("GRU", 3, 2, {"linear_before_reset": 1}),
        )
        for ways, direction in ((1, "forward"), (1, "reverse"), (2, "bidirectional"))
    ],
    case(
        "LSTM", floats(3, 2, 4), floats(1, 20, 4), floats(1, 20, 5), outputs=3, hidden_size=5,
    ),
]  # fmt: skip


@together("one", CASES, ids=ids(CASES))
def test_an_operator_means_what_onnxruntime_computes(one: Case) -> None:
    check_evaluated(one)


QUICK = [
    one for one in CASES if one.kind in ("Conv", "ConvTranspose", "MatMul", "Pow", "ScatterND")
]


@pytest.mark.parametrize("one", every(4, QUICK), ids=ids(QUICK))
def test_an_operator_of_much_work_compiles(one: Case) -> None:
    check_compiled(one)


@pytest.mark.long
@pytest.mark.parametrize("one", CASES, ids=ids(CASES))
def test_an_operator_compiles(one: Case) -> None:
    check_compiled(one)
