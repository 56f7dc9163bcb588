"""A graph of ATen operators as plain facts: what the importer works on, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.ir.dims import Bounds, Dim, Size, substitute
from dlc.ir.types import DType, TensorType

Array: TypeAlias = NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor that a node reads, by the name of the node or of the input that makes it."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Opaque:
    """An argument that no operator of ours takes, as text: a complex number, a generator."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Calculated:
    """A number that is calculated from sizes in f64, such as one over a size.

    `function` is "add", "multiply", "divide" or "sqrt".
    """

    function: str
    parts: tuple[Calculated | Size | float, ...]

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.parts))})"


Argument: TypeAlias = (
    "Ref | Size | float | str | DType | Graph | Calculated | Opaque | tuple[Argument, ...] | None"
)
"""An argument of a node; bools are ints, as in Python."""


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor that a graph is given, in the order of its axes that it has in memory.

    `order` has the axes from the one whose elements lie farthest apart to the one whose elements are
    neighbours. `name` is that of the node, `label` the one that people know.
    """

    name: str
    label: str
    type: TensorType
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Weight:
    """A parameter, a buffer or a constant tensor of the module, by its path in the module."""

    name: str
    path: str
    type: TensorType
    array: Array
    trained: bool
    """Whether it is a parameter."""
    constant: bool = False
    """Whether the graph made it: it belongs to no state_dict."""


@dataclass(frozen=True, slots=True)
class Module:
    """A module of PyTorch that a node was computed in: its path in the whole, and its class."""

    path: str
    kind: str


@dataclass(frozen=True, slots=True)
class Node:
    """One operator: `kind` is its name with the overload, such as `aten.add.Tensor`.

    `arguments` has all of them by their names in the operator's schema, those left out by their defaults.
    `types` are those of its results, None for one that is not a tensor. `line` is its line in the listing.
    """

    name: str
    kind: str
    arguments: Mapping[str, Argument]
    types: tuple[TensorType | None, ...]
    line: int
    modules: tuple[Module, ...] = ()

    @property
    def label(self) -> str:
        """Its name in messages, with the module that it belongs to."""
        path = self.modules[-1].path if self.modules else ""
        return f"{self.name} ({path})" if path else self.name


@dataclass(frozen=True, slots=True)
class Result:
    """One of the results of a graph, and the order of its axes in memory, as for an input."""

    value: Argument
    label: str
    order: tuple[int, ...] = ()
    updates: bool = False
    """Whether it is the new value of a state, which no gradient comes back to."""


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph whose nodes are in an order in which each follows those that it reads."""

    name: str
    file: str
    inputs: tuple[Input, ...]
    weights: tuple[Weight, ...]
    nodes: tuple[Node, ...]
    results: tuple[Result, ...]
    bounds: Bounds = field(default_factory=dict[str, tuple[int, int | None]])

    @property
    def listing(self) -> str:
        """One line for each node: places in messages are places in this text."""
        return "".join(f"{line_of(node)}\n" for node in self.nodes)


def line_of(node: Node) -> str:
    """A node as one line, such as `relu = aten.relu.default(self=addmm)  # net.0`."""
    given = ", ".join(f"{name}={_text(value)}" for name, value in node.arguments.items())
    comment = f"  # {node.modules[-1].path}" if node.modules and node.modules[-1].path else ""
    text = f"{node.name} = {node.kind}({given}){comment}"
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def _text(value: Argument) -> str:
    match value:
        case Graph():
            return value.name
        case DType():
            return value.name
        case tuple():
            return f"[{', '.join(map(_text, value))}]"
        case _:
            return str(value)


def with_dims(node: Node, dims: Mapping[str, Size]) -> Node:
    """A node with other sizes in place of some dims."""
    types = [
        type and type.with_shape(tuple([substitute(size, dims) for size in type.shape]))
        for type in node.types
    ]
    arguments = {name: _substituted(value, dims) for name, value in node.arguments.items()}
    return replace(node, arguments=arguments, types=tuple(types))


def _substituted(value: Argument, dims: Mapping[str, Size]) -> Argument:
    match value:
        case Dim():
            return substitute(value, dims)
        case tuple():
            return tuple([_substituted(part, dims) for part in value])
        case _:
            return value
