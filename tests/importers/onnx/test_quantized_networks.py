"""Networks that ONNX Runtime's own tool quantised, in each of the forms that it writes."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, helper, numpy_helper

from tests.importers.onnx.models import (
    SATURATES,
    Array,
    compiled,
    evaluated,
    expected,
    imported,
    meant,
    model_of,
    written,
)
from tests.suites import every

node = helper.make_node


def floats(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32) * 0.3


def model(nodes: Sequence[NodeProto], x: Array, tensors: dict[str, Array]) -> ModelProto:
    return model_of(nodes, {"x": x}, ["y"], tensors, opset=17)


def perceptron(x: Array) -> ModelProto:
    """Two layers in the two ways that exporters write them."""
    nodes = [
        node("Gemm", ["x", "w1", "b1"], ["h"], transB=1),
        node("Relu", ["h"], ["a"]),
        node("MatMul", ["a", "w2"], ["m"]),
        node("Add", ["m", "b2"], ["y"]),
    ]
    tensors = {"w1": floats(32, 16), "b1": floats(32), "w2": floats(32, 10), "b2": floats(10)}
    return model(nodes, x, tensors)


def convolutional(x: Array) -> ModelProto:
    """Convolutions, one of them depthwise, with what ONNX Runtime quantises around them."""
    nodes = [
        node("Conv", ["x", "k1", "c1"], ["h"], pads=[1, 1, 1, 1]),
        node("Relu", ["h"], ["a"]),
        node("MaxPool", ["a"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p", "k2", "c2"], ["d"], pads=[1, 1, 1, 1], group=8),
        node("LeakyRelu", ["d"], ["l"], alpha=0.1),
        node("Add", ["l", "p"], ["s"]),
        node("Mul", ["s", "d"], ["t"]),
        node("Concat", ["t", "s"], ["c"], axis=1),
        node("AveragePool", ["c"], ["v"], kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["v"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "w", "b"], ["y"]),
    ]
    tensors = {
        "k1": floats(8, 3, 3, 3), "c1": floats(8), "k2": floats(8, 1, 3, 3), "c2": floats(8),
        "w": floats(16, 10), "b": floats(10),
    }  # fmt: skip
    return model(nodes, x, tensors)


ROWS, PICTURES = floats(6, 16) * 3, floats(3, 3, 8, 8) * 3


class Calibration:
    """The inputs from whose results the tool chooses scales."""

    def __init__(self, x: Array) -> None:
        self._left = iter([{"x": x}])

    def get_next(self) -> dict[str, Array] | None:
        """The next inputs; None at the end."""
        return next(self._left, None)


def quantized(made: ModelProto, x: Array, form: str, folder: Path) -> ModelProto:
    """The model in a form of the tool: `dynamic`, or with scales from calibration `QDQ`, `QOperator`."""
    source, target = folder / "float.onnx", folder / "int8.onnx"
    source.write_bytes(made.SerializeToString())
    tool: Any = importlib.import_module("onnxruntime.quantization")
    if form == "dynamic":
        tool.quantize_dynamic(source, target, reduce_range=SATURATES)
    else:
        tool.CalibrationDataReader.register(Calibration)
        forms = tool.QuantFormat
        options = {"per_channel": True, "reduce_range": SATURATES}
        tool.quantize_static(source, target, Calibration(x), forms[form], **options)
    return ModelProto.FromString(target.read_bytes())


@pytest.mark.parametrize("form", every(3, ["dynamic", "QDQ", "QOperator"]))
@pytest.mark.filterwarnings("ignore")
def test_a_quantised_perceptron_equals_that_of_onnxruntime(form: str, tmp_path: Path) -> None:
    made = quantized(perceptron(ROWS), ROWS, form, tmp_path)
    (wanted,) = expected(made, {"x": ROWS})
    np.testing.assert_allclose(compiled(made, {"x": ROWS})[0], wanted, rtol=1e-6, atol=1e-6)
    text = written(imported(made))
    assert any(one.array.dtype.itemsize == 1 for one in text.weights.values()) == (form != "QDQ")
    np.testing.assert_allclose(meant(text, {"x": ROWS})[0], wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("form", every(2, ["dynamic", "QOperator"]))
@pytest.mark.filterwarnings("ignore")
def test_quantised_convolutions_equal_those_of_onnxruntime(form: str, tmp_path: Path) -> None:
    made = quantized(convolutional(PICTURES), PICTURES, form, tmp_path)
    (wanted,) = expected(made, {"x": PICTURES})
    np.testing.assert_allclose(compiled(made, {"x": PICTURES})[0], wanted, rtol=1e-6, atol=1e-6)
    found = evaluated(imported(made), {"x": PICTURES})
    np.testing.assert_allclose(found[0], wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_a_network_of_fake_quantised_floats_gives_the_same_classes(tmp_path: Path) -> None:
    """Rounding moves its sums of floats across halves: results are a few steps apart, as those of ONNX
    Runtime are from its own after it has put integers in their place.
    """
    made = quantized(convolutional(PICTURES), PICTURES, "QDQ", tmp_path)
    (wanted,), (found,) = expected(made, {"x": PICTURES}), compiled(made, {"x": PICTURES})
    assert (found.argmax(1) == wanted.argmax(1)).all()
    (scale,) = [one for one in made.graph.initializer if one.name == "y_scale"]
    assert np.abs(found - wanted).max() < 3.5 * numpy_helper.to_array(scale)
