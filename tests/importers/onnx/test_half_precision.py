"""Networks whose floats a tool of ONNX Runtime has made f16."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper

from tests.importers.onnx.models import Array, compiled, expected, model_of


def floats(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32) * 0.3


X = floats(4, 3, 8, 8) * 3


def network() -> ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "k", "c"], ["h"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["h"], ["a"]),
        helper.make_node("GlobalAveragePool", ["a"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w", "b"], ["z"]),
        helper.make_node("Softmax", ["z"], ["y"]),
    ]
    tensors = {"k": floats(8, 3, 3, 3), "c": floats(8), "w": floats(8, 10), "b": floats(10)}
    return model_of(nodes, {"x": X}, ["y"], tensors)


@pytest.mark.parametrize("keep_io_types", [True, False])
def test_a_network_in_f16_gives_what_onnxruntime_does(keep_io_types: bool) -> None:
    """Within the rounding of f16: ONNX Runtime computes in f32 on processors."""
    tool: Any = importlib.import_module("onnxruntime.transformers.float16")
    made = tool.convert_float_to_float16(network(), keep_io_types=keep_io_types)
    given = {"x": X if keep_io_types else X.astype(np.float16)}
    (wanted,), (found,) = expected(made, given), compiled(made, given)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-4)
    assert (found.argmax(1) == wanted.argmax(1)).all()
