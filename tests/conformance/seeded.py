"""Networks that come without trained weights, with weights that show mistakes.

The light graphs of the `onnx` package make every weight from one constant: a wrong layout, padding or
order of channels is invisible in them. Here each becomes seeded numbers of a fitting size.
"""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

Floats = NDArray[np.float32]


def seeded(model: ModelProto, seed: int = 0) -> ModelProto:
    """The same model with every ConstantOfShape weight replaced by an initialiser.

    Kernels and matrices are He-normal; the scale and the variance of a batch norm are in 0.5..1.5, its
    shift and mean and every bias are small and random.
    """
    import onnx
    from onnx import numpy_helper

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    roles = _roles(graph)
    kept: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type != "ConstantOfShape" or node.input[0] not in shapes:
            kept.append(node)
            continue
        name = node.output[0]
        shape = tuple([int(size) for size in shapes[node.input[0]]])
        stream = np.random.default_rng([seed, zlib.crc32(name.encode())])
        array = _numbers(stream, shape, roles.get(name, "weight"))
        graph.initializer.append(numpy_helper.from_array(array, name))
    del graph.node[:]
    graph.node.extend(kept)
    # Before version 4 of the file format, initialisers must be inputs too.
    copy.ir_version = max(copy.ir_version, 4)
    return copy


def _roles(graph: GraphProto) -> dict[str, str]:
    """What each tensor is to the node that uses it, seen through reshapes of weights."""
    found: dict[str, str] = {}
    for node in reversed(graph.node):
        match node.op_type:
            case "BatchNormalization":
                scale, shift, mean, variance = node.input[1:5]
                found |= {scale: "positive", variance: "positive", shift: "small", mean: "small"}
            case "Mul":
                found.setdefault(node.input[1], "positive")
            case "Add" | "Conv" | "Gemm":
                bias = node.input[-1] if node.op_type == "Add" else (*node.input, "", "")[2]
                found.setdefault(bias, "small")
            case "Unsqueeze" if node.output[0] in found:
                found.setdefault(node.input[0], found[node.output[0]])
            case _:
                pass
    return found


def _numbers(stream: np.random.Generator, shape: tuple[int, ...], role: str) -> Floats:
    if role == "positive":
        return stream.uniform(0.5, 1.5, shape).astype(np.float32)
    if role == "small" or len(shape) < 2:
        return stream.normal(0, 0.1, shape).astype(np.float32)
    inputs = math.prod(shape[1:])
    return stream.normal(0, math.sqrt(2 / inputs), shape).astype(np.float32)
