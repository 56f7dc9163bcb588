"""Graphs that AOTAutograd traces, forward and backward, as facts.

Everything that such a graph reads is an input of it, parameters too; tensors keep the order of axes that
they have in memory, so that nothing is copied on the way in or out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from dlc.errors import Unsupported
from dlc.importers.torch.facts import Graph, Input, Ref, Result
from dlc.importers.torch.reading import Reader, bounds_of_range, constants_of, order_of, outputs_of
from dlc.ir.dims import Bounds, Dim, names

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule, Node


@dataclass(frozen=True, slots=True)
class Passed:
    """A result that is an input, by the number that it has among all inputs."""

    number: int


@dataclass(frozen=True, slots=True)
class Traced:
    """A traced graph as facts, and what a call passes and gets.

    `inputs` are the numbers of the arguments that are tensors, `sizes` the names of those that are sizes,
    with their numbers. `outputs` has for each result the number that it has in the
    graph, or what it is without the graph: a number, None, or an input.
    """

    graph: Graph
    inputs: tuple[int, ...]
    sizes: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[int | None, object], ...]


class _ShapeEnvironment(Protocol):
    """What is used of PyTorch's knowledge about symbolic sizes."""

    var_to_range: Mapping[object, object]


def read_traced(module: GraphModule, file: str = "graph.fx") -> Traced:
    """The facts of a graph of torch.fx, all of whose inputs are tensors or sizes."""
    reader = Reader({}, file)
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    inputs: list[Input] = []
    numbers: list[int] = []
    given: dict[str, int] = {}
    for number, node in enumerate(placeholders):
        value = node.meta.get("val")
        type = reader.type(value)
        if type is not None:
            order = order_of(cast("torch.Tensor", value))
            inputs.append(Input(node.name, node.name, type, order))
            numbers.append(number)
        elif type_is_symbolic(value):
            name = str(reader.size(value))
            if name.isidentifier():
                given.setdefault(name, number)
    told = {name for declared in inputs for size in declared.type.shape for name in names(size)}
    results, outputs = _results(module, reader, [node.name for node in placeholders])
    nodes = reader.nodes(module)
    graph = Graph(
        "graph",
        file,
        tuple(inputs),
        constants_of(module, reader),
        nodes,
        results,
        _bounds(placeholders, told | given.keys()),
    )
    return Traced(graph, tuple(numbers), tuple(given.items()), outputs)


def type_is_symbolic(value: object) -> bool:
    """Whether a value is PyTorch's symbolic integer."""
    return type(value).__name__ == "SymInt"


def _results(
    module: GraphModule, reader: Reader, inputs: Sequence[str]
) -> tuple[tuple[Result, ...], tuple[tuple[int | None, object], ...]]:
    results: list[Result] = []
    outputs: list[tuple[int | None, object]] = []
    for made in outputs_of(module):
        name = getattr(made, "name", None)
        if name in inputs:
            outputs.append((None, Passed(inputs.index(cast("str", name)))))
            continue
        value = reader.argument(made)
        if isinstance(value, Ref):
            tensor = cast("Node", made).meta.get("val")
            outputs.append((len(results), None))
            results.append(Result(value, value.name, order_of(cast("torch.Tensor", tensor))))
        elif isinstance(value, Dim):
            outputs.append((len(results), None))
            results.append(Result(value, f"size_{len(results)}"))
        elif value is None or isinstance(value, int | float):
            outputs.append((None, value))
        else:
            raise Unsupported(f"a graph returns {value}, which is not imported", code="D0710")
    return tuple(results), tuple(outputs)


def _bounds(placeholders: Sequence[Node], needed: set[str]) -> Bounds:
    """The lowest and highest values of the sizes, as PyTorch guards them."""
    ranges: dict[str, object] = {}
    for node in placeholders:
        value = node.meta.get("val")
        sizes: Sequence[object] = getattr(value, "shape", (value,))
        for size in sizes:
            if type_is_symbolic(size):
                environment = cast("_ShapeEnvironment", getattr(size, "node").shape_env)  # noqa: B009
                ranges.update({str(key): of for key, of in environment.var_to_range.items()})
    return {name: bounds_of_range(ranges.get(name)) for name in sorted(needed)}
