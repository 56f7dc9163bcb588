"""Tensors that a loop makes longer round by round: it carries `y` and hands over `Concat(y, item)`.

Exporters write so that results are appended to a list. A body then gets no elements of `y`, and its items
are stacked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects import array
from dlc.dialects.array.shape import reshape
from dlc.importers.onnx.facts import Graph, Node
from dlc.importers.onnx.versions import all_nodes
from dlc.ir.core import Builder, Value
from dlc.ir.types import TensorType

SAME = ("Cast", "Identity")
"""Operators that may stand between; the types of what is carried must be equal in any case."""


@dataclass(frozen=True, slots=True)
class Appended:
    """A carried tensor that becomes longer along an axis."""

    initial: Value
    axis: int

    @property
    def none(self) -> TensorType:
        """The type of no elements of it."""
        type = array.tensor_type(self.initial)
        return type.with_shape((*type.shape[: self.axis], 0, *type.shape[self.axis + 1 :]))

    def after(self, emit: Builder, stack: Value) -> Value:
        """The tensor with the items of all rounds behind it, which are stacked along the axis."""
        shape = array.tensor_type(stack).shape
        rounds, each = shape[self.axis : self.axis + 2]
        joined = (*shape[: self.axis], rounds * each, *shape[self.axis + 2 :])
        items = reshape(emit, stack, joined)
        if self.initial.type is self.none:
            return items
        return emit(array.Concatenate((self.initial, items), self.axis))


def appended(body: Graph, initial: Sequence[Value]) -> dict[int, Appended]:
    """Which of the carried tensors are only ever made longer."""
    found: dict[int, Appended] = {}
    for k, value in enumerate(initial):
        axis = _axis(body, body.inputs[2 + k].name, body.outputs[1 + k])
        rank = array.tensor_type(value).rank
        if axis is not None and -rank <= axis < rank:
            found[k] = Appended(value, axis % rank)
    return found


def _axis(body: Graph, carried: str, result: str) -> int | None:
    """The axis along which a body appends to what it carries; None where it does something else with it."""
    makers = {output: node for node in body.nodes for output in node.outputs}
    node = makers.get(result)
    while node is not None and node.kind in SAME:
        node = makers.get(node.inputs[0])
    if node is None or node.kind != "Concat" or not isinstance(node.attributes.get("axis"), int):
        return None
    name = node.inputs[0]
    while name != carried:
        before = makers.get(name)
        if before is None or before.kind not in SAME or _uses(body, name) != 1:
            return None
        name = before.inputs[0]
    axis = node.attributes["axis"]
    assert isinstance(axis, int)
    return axis if _uses(body, carried) == 1 else None


def _uses(body: Graph, name: str) -> int:
    """How often a value is read in a graph, and the graphs inside it."""
    nodes = [*all_nodes(body.nodes)]
    graphs = [body, *[graph for node in nodes for graph in _inside(node)]]
    reads = [*[node.inputs for node in nodes], *[graph.outputs for graph in graphs]]
    return sum(each.count(name) for each in reads)


def _inside(node: Node) -> list[Graph]:
    return [each for each in node.attributes.values() if isinstance(each, Graph)]
