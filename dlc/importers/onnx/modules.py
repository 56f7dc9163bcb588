"""The modules of PyTorch in which the nodes of an ONNX file were computed, from what exporters write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlc.importers.onnx.facts import Module

if TYPE_CHECKING:
    from onnx import NodeProto

NAMESPACE = "namespace"
"""The metadata in which PyTorch's exporter writes `: Net/encoder: net.Encoder/relu: aten.relu`."""

NONE = "_empty_nn_module_stack_from_metadata_hook"
"""What it writes there for a node of no module, such as the size of an input."""


def modules_of(node: NodeProto) -> tuple[Module, ...]:
    """The modules of a node, the outermost first; none where its exporter does not say."""
    for entry in node.metadata_props:
        if entry.key == NAMESPACE:
            return _of_namespace(entry.value)
    return of_name(node.name)


def _of_namespace(text: str) -> tuple[Module, ...]:
    pairs = [part.partition(": ") for part in text.split("/")[:-1]]
    return tuple(
        [Module(path, kind.rpartition(".")[2]) for path, _, kind in pairs if path not in ("", NONE)]
    )


def of_name(name: str) -> tuple[Module, ...]:
    """The modules of a node of the tracing exporter, whose name is their path and its operator.

    >>> of_name("/encoder/layer.0/query/MatMul")[-1]
    Module(path='encoder.layer.0.query', kind='')
    """
    if not name.startswith("/"):
        return ()
    parts = name.split("/")[1:-1]
    paths = [".".join(parts[: k + 1]) for k in range(len(parts))]
    return tuple([Module(path, "") for path in paths])
