"""Convolutional networks as ONNX graphs with seeded weights, for `benchmarks.networks`.

They are as an exporter leaves them: batch norms are folded into the convolutions before them. MobileNet v1
(Howard et al., 2017) and v2 (Sandler et al., 2018), EfficientNet-B0 (Tan and Le, 2019), which has
squeeze-and-excitation, the trunk of a face detector with a feature pyramid (CenterFace, Xu et al., 2019),
a U-Net (Ronneberger et al., 2015), a ConvNeXt (Liu et al., 2022), and a network of dilated convolutions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.shape_inference import infer_shapes

OPSET = 17


class Graph:
    """An ONNX graph in the making: each method adds nodes and gives the name of their result.

    Tensors are [batch, channels, height, width], and `channels` knows the channels of each.
    """

    def __init__(self, seed: int = 0) -> None:
        self._stream = np.random.default_rng(seed)
        self._nodes: list[NodeProto] = []
        self._weights: list[TensorProto] = []
        self.channels: dict[str, int] = {}

    def model(
        self, name: str, inputs: Mapping[str, Sequence[int]], outputs: list[str]
    ) -> ModelProto:
        """The model of all nodes so far."""
        floats = TensorProto.FLOAT
        given = [helper.make_tensor_value_info(key, floats, shape) for key, shape in inputs.items()]
        made = [helper.make_tensor_value_info(key, floats, None) for key in outputs]
        graph = helper.make_graph(self._nodes, name, given, made, self._weights)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8
        )
        return infer_shapes(model, strict_mode=True)

    def node(
        self,
        kind: str,
        *inputs: str,
        channels: int | None = None,
        **attributes: float | list[int],
    ) -> str:
        """A node of one result, with the channels of its first input unless told otherwise."""
        result = f"{kind.lower()}_{len(self._nodes)}"
        made = helper.make_node(kind, list(inputs), [result])
        for key, value in attributes.items():
            made.attribute.append(helper.make_attribute(key, value))
        self._nodes.append(made)
        self.channels[result] = self.channels[inputs[0]] if channels is None else channels
        return result

    def weight(self, array: NDArray[np.generic]) -> str:
        """A constant tensor; floats are stored in f32."""
        stored = array.astype(np.float32) if array.dtype == np.float64 else array
        name = f"weight_{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(stored, name))
        return name

    def conv(
        self,
        x: str,
        outputs: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        groups: int = 1,
        dilation: int = 1,
    ) -> str:
        """A convolution with bias that keeps the size of the picture but for its stride."""
        height, width = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        inputs = self.channels[x] // groups
        scale = math.sqrt(2 / (inputs * height * width))
        weights = self._stream.standard_normal((outputs, inputs, height, width)) * scale
        bias = self._stream.standard_normal(outputs) * 0.1
        down, across = dilation * (height - 1) // 2, dilation * (width - 1) // 2
        return self.node(
            *("Conv", x, self.weight(weights), self.weight(bias)),
            channels=outputs,
            kernel_shape=[height, width],
            strides=[stride, stride],
            dilations=[dilation, dilation],
            pads=[down, across, down, across],
            group=groups,
        )

    def depthwise(self, x: str, kernel: int, stride: int = 1) -> str:
        """A convolution of each channel by itself."""
        return self.conv(x, self.channels[x], kernel, stride, groups=self.channels[x])

    def relu6(self, x: str) -> str:
        """`x` between 0 and 6."""
        bounds = [self.weight(np.array(bound, np.float32)) for bound in (0, 6)]
        return self.node("Clip", x, *bounds)

    def silu(self, x: str) -> str:
        """`x * sigmoid(x)`."""
        return self.node("Mul", x, self.node("Sigmoid", x))

    def gelu(self, x: str) -> str:
        """`x * (1 + erf(x / sqrt(2))) / 2`, in the nodes that exporters write."""
        root, one, half = (self.weight(np.array(number)) for number in (math.sqrt(2), 1.0, 0.5))
        error = self.node("Add", self.node("Erf", self.node("Div", x, root)), one)
        return self.node("Mul", self.node("Mul", x, error), half)

    def up(self, x: str, outputs: int) -> str:
        """A transposed convolution of 2 x 2 that doubles the size."""
        inputs = self.channels[x]
        weights = self._stream.standard_normal((inputs, outputs, 2, 2)) / math.sqrt(inputs)
        attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
        return self.node("ConvTranspose", x, self.weight(weights), channels=outputs, **attributes)

    def head(self, x: str, classes: int) -> str:
        """The mean of each channel and a dense layer."""
        inputs = self.channels[x]
        flat = self.node("Flatten", self.node("GlobalAveragePool", x))
        weights = self._stream.standard_normal((inputs, classes)) / math.sqrt(inputs)
        bias = self._stream.standard_normal(classes) * 0.1
        return self.node("Gemm", flat, self.weight(weights), self.weight(bias))


def mobilenet_v1() -> ModelProto:
    """Depthwise and pointwise convolutions in turns."""
    g = Graph()
    g.channels["image"] = 3
    x = g.node("Relu", g.conv("image", 32, 3, 2))
    for outputs, stride in [
        *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
        *[(512, 1)] * 5,
        *((1024, 2), (1024, 1)),
    ]:
        x = g.node("Relu", g.depthwise(x, 3, stride))
        x = g.node("Relu", g.conv(x, outputs, 1))
    return g.model("mobilenet_v1", {"image": (1, 3, 224, 224)}, [g.head(x, 1000)])


def mobilenet_v2() -> ModelProto:
    """Inverted residuals, cut at 6."""
    g = Graph()
    g.channels["image"] = 3
    x = g.relu6(g.conv("image", 32, 3, 2))
    stages = (
        *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
        *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
    )
    for widen, outputs, count, first in stages:
        for number in range(count):
            x = _inverted(g, x, widen, outputs, first if number == 0 else 1)
    x = g.relu6(g.conv(x, 1280, 1))
    return g.model("mobilenet_v2", {"image": (1, 3, 224, 224)}, [g.head(x, 1000)])


def _inverted(g: Graph, x: str, widen: int, outputs: int, stride: int) -> str:
    inputs = g.channels[x]
    h = x if widen == 1 else g.relu6(g.conv(x, widen * inputs, 1))
    h = g.conv(g.relu6(g.depthwise(h, 3, stride)), outputs, 1)
    return g.node("Add", x, h) if stride == 1 and inputs == outputs else h


def efficientnet_b0() -> ModelProto:
    """Inverted residuals with squeeze-and-excitation and SiLU."""
    g = Graph()
    g.channels["image"] = 3
    x = g.silu(g.conv("image", 32, 3, 2))
    stages = (
        *((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3)),
        *((6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)),
    )
    for widen, outputs, count, first, kernel in stages:
        for number in range(count):
            x = _excited(g, x, widen, outputs, first if number == 0 else 1, kernel)
    x = g.silu(g.conv(x, 1280, 1))
    return g.model("efficientnet_b0", {"image": (1, 3, 224, 224)}, [g.head(x, 1000)])


def _excited(g: Graph, x: str, widen: int, outputs: int, stride: int, kernel: int) -> str:
    inputs = g.channels[x]
    h = x if widen == 1 else g.silu(g.conv(x, widen * inputs, 1))
    h = g.silu(g.depthwise(h, kernel, stride))
    squeezed = g.silu(g.conv(g.node("GlobalAveragePool", h), inputs // 4, 1))
    gate = g.node("Sigmoid", g.conv(squeezed, g.channels[h], 1))
    h = g.conv(g.node("Mul", h, gate), outputs, 1)
    return g.node("Add", x, h) if stride == 1 and inputs == outputs else h


def centerface() -> ModelProto:
    """A face detector's inverted residuals, and a pyramid of transposed convolutions above them."""
    g = Graph()
    g.channels["image"] = 3
    x = g.node("Relu", g.conv("image", 32, 3, 2))
    x = g.conv(g.node("Relu", g.depthwise(x, 3)), 16, 1)
    levels: list[str] = []
    for width, outputs, stride, repeats in [
        *((96, 24, 2, (144,)), (144, 32, 2, (192, 192)), (192, 64, 2, (384, 384, 384))),
        *((384, 96, 1, (576, 576)), (576, 160, 2, (960, 960))),
    ]:
        x = _block(g, x, width, outputs, stride)
        for wide in repeats:
            x = g.node("Add", x, _block(g, x, wide, outputs, 1))
        levels.append(x)
    x = _block(g, x, 960, 320, 1)
    h = g.node("Relu", g.conv(x, 24, 1))
    for level in (levels[3], levels[1], levels[0]):
        beside = g.node("Relu", g.conv(level, 24, 1))
        h = g.node("Add", g.node("Relu", g.up(h, 24)), beside)
    h = g.node("Relu", g.conv(h, 24, 3))
    heads = [g.node("Sigmoid", g.conv(h, 1, 1)), *(g.conv(h, count, 1) for count in (2, 2, 10))]
    return g.model("centerface", {"image": (1, 3, 640, 640)}, heads)


def _block(g: Graph, x: str, width: int, outputs: int, stride: int) -> str:
    h = g.node("Relu", g.conv(x, width, 1))
    return g.conv(g.node("Relu", g.depthwise(h, 3, stride)), outputs, 1)


def unet() -> ModelProto:
    """Four levels down and up again, whose halves are concatenated."""
    g = Graph()
    g.channels["image"] = 3
    x, halves = "image", list[str]()
    for width in (32, 64, 128, 256):
        x = _twice(g, x, width)
        halves.append(x)
        x = g.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = _twice(g, x, 512)
    for half in reversed(halves):
        width = g.channels[half]
        x = g.node("Concat", half, g.up(x, width), channels=2 * width, axis=1)
        x = _twice(g, x, width)
    return g.model("unet", {"image": (1, 3, 256, 256)}, [g.conv(x, 2, 1)])


def _twice(g: Graph, x: str, width: int) -> str:
    return g.node("Relu", g.conv(g.node("Relu", g.conv(x, width, 3)), width, 3))


def convnext() -> ModelProto:
    """Depthwise convolutions of 7 x 7, normalised channels and dense layers, as PyTorch exports them."""
    g = Graph()
    g.channels["image"] = 3
    x = _patches(g, "image", 48, 4)
    for number, (width, count) in enumerate([(48, 2), (96, 2), (192, 4), (384, 2)]):
        if number:
            x = _patches(g, x, width, 2)
        for _ in range(count):
            h = _normed(g, g.node("Transpose", g.depthwise(x, 7), perm=[0, 2, 3, 1]), width)
            h = g.node("Transpose", h, perm=[0, 3, 1, 2])
            x = g.node("Add", x, g.conv(g.gelu(g.conv(h, 4 * width, 1)), width, 1))
    return g.model("convnext", {"image": (1, 3, 224, 224)}, [g.head(x, 1000)])


def _patches(g: Graph, x: str, outputs: int, size: int) -> str:
    """A convolution whose windows lie side by side."""
    inputs = g.channels[x]
    stream = np.random.default_rng(outputs)
    weights = stream.standard_normal((outputs, inputs, size, size)) / math.sqrt(inputs * size**2)
    attributes = {"kernel_shape": [size, size], "strides": [size, size]}
    return g.node("Conv", x, g.weight(weights), channels=outputs, **attributes)


def _normed(g: Graph, x: str, width: int) -> str:
    ones, zeros = g.weight(np.ones(width)), g.weight(np.zeros(width))
    return g.node("LayerNormalization", x, ones, zeros, axis=-1, epsilon=1e-6)


def dilated() -> ModelProto:
    """A network for segmentation: after a few strides, windows grow by dilation instead."""
    g = Graph()
    g.channels["image"] = 3
    x = g.node("Relu", g.conv("image", 32, 3, 2))
    x = g.node("Relu", g.conv(x, 64, 3, 2))
    x = g.node("Relu", g.conv(x, 128, 3, 2))
    for dilation in (1, 2, 4, 8):
        h = g.node("Relu", g.conv(x, 128, 3, dilation=dilation))
        x = g.node("Add", x, g.node("Relu", g.conv(h, 128, 3, dilation=dilation)))
    arms = [g.node("Relu", g.conv(x, 64, 3, dilation=dilation)) for dilation in (6, 12, 18)]
    whole = g.node("Concat", *arms, channels=192, axis=1)
    return g.model("dilated", {"image": (1, 3, 224, 224)}, [g.conv(whole, 21, 1)])


def voice() -> ModelProto:
    """The convolutions of a voice detector on a chunk of sound: one dimension, few channels."""
    g = Graph()
    g.channels["sound"] = 1
    x = _signal(g, "sound", 129, (256, 128, 64))
    for width, stride in ((128, 1), (64, 2), (64, 2), (128, 1)):
        x = g.node("Relu", _signal(g, x, width, (3, stride, 1)))
    return g.model("voice", {"sound": (1, 1, 576)}, [x])


def _signal(g: Graph, x: str, outputs: int, window: tuple[int, int, int]) -> str:
    """A convolution in one dimension; `window` is its length, stride and padding."""
    kernel, stride, padding = window
    inputs = g.channels[x]
    stream = np.random.default_rng([outputs, kernel])
    weights = stream.standard_normal((outputs, inputs, kernel)) / math.sqrt(inputs * kernel)
    attributes = {"kernel_shape": [kernel], "strides": [stride], "pads": [padding] * 2}
    return g.node("Conv", x, g.weight(weights), channels=outputs, **attributes)


CONV_NETWORKS: dict[str, Callable[[], ModelProto]] = {
    made.__name__: made
    for made in (
        *(mobilenet_v1, mobilenet_v2, efficientnet_b0, centerface),
        *(unet, convnext, dilated, voice),
    )
}
"""The networks by name."""
