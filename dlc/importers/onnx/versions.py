"""The operator-set versions (opsets) that the importers support."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlc.errors import Unsupported
from dlc.importers.onnx.facts import Graph, Node

OPSETS = range(6, 29)
"""The versions of ONNX's own operators that the importers support."""

UNCHANGED = frozenset((
    "And", "ArgMax", "ArgMin", "AveragePool", "Constant", "Conv", "ConvTranspose", "DepthToSpace",
    "Equal", "Flatten", "Gather", "GlobalAveragePool", "GlobalMaxPool", "Greater", "Hardmax",
    "Identity", "If", "LRN", "LSTM", "Less", "LogSoftmax", "Loop", "LpNormalization", "MatMul",
    "MaxPool", "Not", "Or", "Pow", "RNN", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp",
    "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Shape",
    "Size", "Slice", "Softmax", "Softplus", "Softsign", "SpaceToDepth", "Squeeze", "TopK",
    "Transpose", "Unsqueeze", "Xor",
))  # fmt: skip
"""Operators whose meaning is the same in the versions 1 to 6."""


def check_opsets(graph: Graph) -> None:
    """Raise Unsupported for operators of a version that nobody here knows."""
    for node in all_nodes(graph.nodes):
        if not node.domain and node.opset not in _known(node):
            raise Unsupported(
                f"{graph.file} uses version {node.opset} of the ONNX operators; dlc knows "
                f"{OPSETS[0]} to {OPSETS[-1]}",
                code="D0710",
                help="onnx.version_converter.convert_version(model, 21) makes another version of it",
            )


def _known(node: Node) -> range:
    return range(1, OPSETS.stop) if node.kind in UNCHANGED else OPSETS


def all_nodes(nodes: Sequence[Node]) -> Iterator[Node]:
    """The nodes and those of the graphs inside them."""
    pending = list(nodes[::-1])
    while pending:
        node = pending.pop()
        yield node
        for attribute in node.attributes.values():
            if isinstance(attribute, Graph):
                pending += attribute.nodes[::-1]
