"""An ONNX graph as plain facts, checked once: what the rest of the importer works on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.ir.types import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType

Array: TypeAlias = NDArray[np.generic]

DTYPES: dict[int, DType] = {
    1: F32, 2: U8, 3: I8, 4: U16, 5: I16, 6: I32, 7: I64, 9: BOOL, 10: F16, 11: F64, 12: U32,
    13: U64, 16: BF16,
}  # fmt: skip
"""The element types of ONNX that dlc has, by their number in `TensorProto.DataType`."""


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """The elements of a tensor in the file; bf16 as its bits in uint16."""

    dtype: DType
    array: Array


Numbers: TypeAlias = "int | float | tuple[int, ...] | tuple[float, ...]"
Attribute: TypeAlias = "Numbers | str | tuple[str, ...] | Tensor | Graph | None"
"""None for a kind of attribute that no operator of ours has, such as a list of tensors."""


@dataclass(frozen=True, slots=True)
class Input:
    """A declared input: its axes are numbers, names of dims, or None where nothing is known.

    Of a sequence dtype and axes are those of its elements. The inputs of a graph inside a node may leave
    all of that out: the node tells it.
    """

    name: str
    dtype: DType | None
    axes: tuple[int | str | None, ...]
    has_rank: bool = True
    """Whether the number of axes is declared; that of the elements of a sequence need not be."""
    is_sequence: bool = False
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """The file's declaration of an output; None where it has none."""

    name: str
    dtype: DType | None
    axes: tuple[int | str | None, ...] | None


Operator: TypeAlias = tuple[str, str]
"""Domain and name of an operator; the domain of ONNX itself is empty."""


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the framework that a node was computed in: its path, and its class if that is known."""

    path: str
    kind: str


@dataclass(frozen=True, slots=True)
class Node:
    """One operator of the graph; an empty name stands for an input that is left out.

    `line` is the line of the node in the listing of the graph, from 1; `opset` the version of the
    operators' meaning that the file asks for; `modules` are what it was computed in, the whole first.
    """

    kind: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    opset: int
    line: int
    modules: tuple[Module, ...] = ()

    @property
    def operator(self) -> Operator:
        """The operator that the node applies."""
        return self.domain, self.kind

    @property
    def label(self) -> str:
        """Its name in messages."""
        return self.name or f"the node that makes {next(filter(None, self.outputs), '?')}"


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph whose nodes are in an order in which each follows those that it reads.

    One inside a node also reads the tensors of the graphs around it.
    """

    name: str
    file: str
    inputs: tuple[Input, ...]
    declared: tuple[Output, ...]
    nodes: tuple[Node, ...]
    tensors: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what it gives."""
        return tuple([output.name for output in self.declared])

    @property
    def listing(self) -> str:
        """One line for each node: places in messages are places in this text."""
        return "".join(f"{line_of(node)}\n" for node in self.nodes)


def line_of(node: Node) -> str:
    """A node as one line, such as `y = Gemm(x, w, b)`."""
    outputs = ", ".join(filter(None, node.outputs))
    comment = f"  # {node.name}" if node.name else ""
    text = f"{outputs} = {node.kind}({', '.join(node.inputs)}){comment}"
    return "".join(sign if sign.isprintable() else "?" for sign in text)
