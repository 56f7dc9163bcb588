"""Inputs that are sequences or optional: before anything is imported, each is made inputs that are tensors.

How many elements a sequence has is said by the shapes that are given to them, which are called like it with
a number behind: `x_0`, `x_1`, ...
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from dlc.errors import Unsupported
from dlc.importers.onnx.facts import Array, Graph, Input
from dlc.importers.onnx.node_context import Absent, AnyValue, TensorSequence
from dlc.ir.core import Value
from dlc.ir.dims import Shape


@dataclass(frozen=True, slots=True)
class SplitInputs:
    """A graph whose inputs are tensors, and of which of them its sequences consist.

    None stands for the elements of an optional value that is not there.
    """

    graph: Graph
    elements: Mapping[str, tuple[str, ...] | None]

    def values(self, tensors: Mapping[str, Value]) -> dict[str, AnyValue]:
        """What the names of sequences and optional values stand for."""
        return {
            name: Absent()
            if names is None
            else TensorSequence(tuple([tensors[one] for one in names]))
            for name, names in self.elements.items()
        }


def split_inputs(
    graph: Graph, shapes: Mapping[str, Shape], fixed: Mapping[str, Array]
) -> SplitInputs:
    """The graph with tensors in the place of its sequences and optional values.

    One that is fixed to an empty list has no elements, or is not there if it is optional.
    Raises Unsupported for a sequence of which nothing is known.
    """
    inputs: list[Input] = []
    elements: dict[str, tuple[str, ...] | None] = {}
    for declared in graph.inputs:
        empty = declared.name in fixed and not np.asarray(fixed[declared.name]).size
        if declared.is_optional and empty:
            elements[declared.name] = None
        elif declared.is_sequence:
            own = () if empty else _elements(graph, declared, shapes)
            elements[declared.name] = tuple([one.name for one in own])
            inputs += own
        else:
            inputs.append(declared)
    return SplitInputs(replace(graph, inputs=tuple(inputs)) if elements else graph, elements)


def _elements(graph: Graph, declared: Input, shapes: Mapping[str, Shape]) -> tuple[Input, ...]:
    """The elements of a sequence, one for each shape."""
    name = declared.name
    found: list[Input] = []
    for k in count():
        shape = shapes.get(f"{name}_{k}")
        if shape is None:
            break
        axes = declared.axes if declared.has_rank else (None,) * len(shape)
        found.append(Input(f"{name}_{k}", declared.dtype, axes))
    if not found:
        raise Unsupported(
            f"{graph.file}: how many elements the sequence {name} has is not known",
            code="D0711",
            help=f"--shape {name}_0=SHAPE and so on give one for each, --fix {name}=[] none",
        )
    return tuple(found)
