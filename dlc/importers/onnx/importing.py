"""From the facts of an ONNX graph to graph IR: one function, its weights as symbols, its constants."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dlc.dialects import func, weight
from dlc.dialects.builtin import Module
from dlc.dialects.interface import bounds_attribute
from dlc.errors import Diagnostic, DlcError, ModelError, Unsupported, UsageError
from dlc.importers.onnx import (
    control,
    elementwise,
    places,
    products,
    recurrent,
    shapes,
    windows,
)
from dlc.importers.onnx.facts import Array, Graph, Input, Node
from dlc.importers.onnx.reading import read_graph
from dlc.importers.onnx.step import Constant, Importer, Made, Operand, Step
from dlc.importers.onnx.symbolic import fold_sizes
from dlc.ir.attributes import Symbol
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Value
from dlc.ir.dims import Shape, Size, names, substitute, symbol
from dlc.ir.evaluation import Evaluation
from dlc.ir.location import FileLocation
from dlc.ir.types import TensorType, Type
from dlc.ir.value_map import ValueMap

IMPORTERS: dict[str, Importer] = {
    **control.IMPORTERS,
    **elementwise.IMPORTERS,
    **places.IMPORTERS,
    **products.IMPORTERS,
    **recurrent.IMPORTERS,
    **shapes.IMPORTERS,
    **windows.IMPORTERS,
}
"""How each operator of ONNX is imported, by its name."""

OPSETS = range(7, 29)
"""The versions of the operators' meaning that the importers know."""

FOLDED = 4096
"""Nodes on constants are computed while importing if they make at most this many elements."""

SHOWN = 5
"""So many nodes of a kind are named in a message."""


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """An imported model: IR at graph level, the arrays of its weight symbols, and a text of its nodes."""

    module: Module
    arrays: Mapping[str, Array]
    listing: str


def read_onnx(
    path: str | Path,
    *,
    shapes: Mapping[str, Shape] | None = None,
    dims: Mapping[str, int] | None = None,
    values: ValueMap | None = None,
) -> OnnxModel:
    """The model in an ONNX file.

    `shapes` replaces the declared shapes of inputs, by their names in the file, `dims` gives numbers to
    sizes that have names. `values` learns which value each tensor of the file is. Raises Unsupported
    with every operator that is not imported, UsageError for names that the file does not have.
    """
    return import_graph(read_graph(path), shapes=shapes, dims=dims, values=values)


def import_graph(
    graph: Graph,
    *,
    shapes: Mapping[str, Shape] | None = None,
    dims: Mapping[str, int] | None = None,
    values: ValueMap | None = None,
) -> OnnxModel:
    """The same from a graph that was read."""
    _refuse_unknown(graph)
    inputs = [declared.name for declared in graph.inputs]
    _check_names(graph, "input", [*(shapes or {})], inputs)
    return _Import(graph, _Sizes(shapes or {}, dims or {}), values or ValueMap()).run()


def _check_names(graph: Graph, what: str, given: Iterable[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            listed = ", ".join(known) or "none"
            raise UsageError(
                f"{graph.file} has no {what} {name}", code="D0901", help=f"it has {listed}"
            )


def _refuse_unknown(graph: Graph) -> None:
    """Raise Unsupported with every kind of operator that has no importer."""
    missing: dict[tuple[str, int], list[Node]] = defaultdict(list)
    for node in _all_nodes(graph):
        if node.domain or node.kind not in IMPORTERS or node.opset not in OPSETS:
            kind = f"{node.domain}.{node.kind}" if node.domain else node.kind
            missing[kind, node.opset].append(node)
    if missing:
        problems = [
            _unsupported(graph, f"{kind} of opset {opset} is not imported", nodes)
            for (kind, opset), nodes in sorted(missing.items())
        ]
        raise Unsupported(problems, sources={graph.file: graph.listing})


def _all_nodes(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph and of the graphs inside them."""
    pending = list(graph.nodes[::-1])
    while pending:
        node = pending.pop()
        yield node
        for attribute in node.attributes.values():
            if isinstance(attribute, Graph):
                pending += attribute.nodes[::-1]


def _unsupported(graph: Graph, message: str, nodes: list[Node], code: str = "D0710") -> Diagnostic:
    labels = ", ".join(node.label for node in nodes[:SHOWN])
    more = f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else ""
    count = "one node" if len(nodes) == 1 else f"{len(nodes)} nodes"
    place = FileLocation(graph.file, nodes[0].line, 1).place
    return Diagnostic(code, f"{message}: {count}, {labels}{more}", place)


class _Names:
    """Names of ONNX as identifiers, each once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def of(self, name: str) -> str:
        text = re.sub(r"\W", "_", name, flags=re.ASCII)[:200] or "t"
        text = text if not text[0].isdigit() else f"t{text}"
        found, number = text, 2
        while found in self._taken:
            found, number = f"{text}_{number}", number + 1
        self._taken.add(found)
        return found


class _Lost(Exception):
    """A graph inside a node has results that could not be imported, which is reported elsewhere."""


def _held(graph: Graph) -> dict[str, Operand]:
    """The tensors that a graph holds itself."""
    return {
        name: Constant(tensor.array, tensor.dtype, name) for name, tensor in graph.tensors.items()
    }


class _Sizes:
    """The shapes of inputs: declared ones or others, with names for sizes or numbers in their place."""

    def __init__(self, shapes: Mapping[str, Shape], dims: Mapping[str, int]) -> None:
        self._shapes = shapes
        self._numbers = dims
        self._names = _Names()
        self._named: dict[str, Size] = {}

    def of(self, declared: Input, name: str) -> Shape:
        """The shape of an input, which is called `name` from now on."""
        shape = self._shapes.get(declared.name)
        if shape is None:
            axes = enumerate(declared.axes)
            shape = tuple([self._size(f"{name}_{number}", axis) for number, axis in axes])
        for used in sorted({dim for size in shape for dim in names(size)}):
            self._named.setdefault(used, symbol(used))
        return tuple([substitute(size, self._numbers) for size in shape])

    def _size(self, place: str, axis: int | str | None) -> Size:
        if isinstance(axis, int):
            return axis
        key = place if axis is None else axis
        if key not in self._named:
            # tf2onnx writes such names for sizes that have none.
            name = "N" if key.startswith("unk__") else key
            self._named[key] = symbol(self._names.of(name))
        return self._named[key]

    def check(self, graph: Graph) -> None:
        """Raise UsageError if a number was given to a size that is not there."""
        known = sorted({dim for size in self._named.values() for dim in names(size)})
        _check_names(graph, "size", self._numbers, known)


class _Import:
    def __init__(self, graph: Graph, sizes: _Sizes, values: ValueMap) -> None:
        self._graph = graph
        self._sizes = sizes
        self._values = values
        self._block = self._top = Block()
        self._module = Module.empty(self._place(1))
        self._weight_names = _Names()
        self._arrays: dict[str, Array] = {}
        self._gets: dict[int, Value] = {}
        self._known: dict[str, Operand | None] = {**_held(graph)}
        self._lost: set[str] = set()
        self._refused: dict[tuple[str, str], list[Node]] = defaultdict(list)

    def run(self) -> OnnxModel:
        """Import the nodes in their order; what cannot be imported is reported all at once."""
        inputs = self._inputs()
        for node in self._graph.nodes:
            self._node(node)
        if self._refused:
            problems = [
                _unsupported(self._graph, message, nodes, code)
                for (code, message), nodes in self._refused.items()
            ]
            raise Unsupported(problems, sources={self._graph.file: self._graph.listing})
        self._function(inputs)
        return OnnxModel(self._module, self._arrays, self._graph.listing)

    def _place(self, line: int) -> FileLocation:
        return FileLocation(self._graph.file, line, 1)

    # Inputs and results.

    def _inputs(self) -> tuple[str, ...]:
        entry_names = _Names()
        found: list[str] = []
        for declared in self._graph.inputs:
            name = entry_names.of(declared.name)
            assert declared.dtype is not None
            type = TensorType(declared.dtype, self._sizes.of(declared, name))
            self._known[declared.name] = self._block.add_argument(type, name)
            found.append(name)
        self._sizes.check(self._graph)
        return tuple(found)

    def _function(self, inputs: tuple[str, ...]) -> None:
        last = self._place(max(1, len(self._graph.nodes)))
        emit = Builder(self._block, last)
        node = Node("result", "", "", (), (), {}, 0, last.line)
        step = Step(node, (), emit, self._weight, self)
        results: list[Value] = []
        for name in self._graph.outputs:
            found = self._known[name]
            assert found is not None
            results.append(step.as_value(found))
        emit.place(func.Return(tuple(results)))
        entry = re.sub(r"\W", "_", self._graph.name, flags=re.ASCII)
        entry = entry if entry.isidentifier() and not entry.startswith("_") else "main"
        function = func.Func(self._block, entry, func.signature(self._block, results))
        function.location = self._place(1)
        used = dict.fromkeys(
            name
            for argument in self._block.arguments
            if isinstance(argument.type, TensorType)
            for size in argument.type.shape
            for name in sorted(names(size))
        )
        if used:
            bounds: dict[str, tuple[int, int | None]] = dict.fromkeys(used, (1, None))
            function.attributes["dlc.dims"] = bounds_attribute(bounds)
        function.attributes["dlc.inputs"] = inputs
        result_names = _Names()
        function.attributes["dlc.results"] = tuple(map(result_names.of, self._graph.outputs))
        self._module.body.append(function)

    # Nodes.

    def _node(self, node: Node) -> None:
        if any(name in self._lost for name in node.inputs):
            self._lost.update(node.outputs)
            return
        operands = [self._known[name] if name else None for name in node.inputs]
        emit = Builder(self._block, self._place(node.line))
        step = Step(node, operands, emit, self._weight, self)
        try:
            made = self._made(step)
        except _Lost:
            self._lost.update(node.outputs)
            return
        except Unsupported as error:
            for problem in error.diagnostics:
                self._refused[problem.code, problem.message].append(node)
            self._lost.update(node.outputs)
            return
        except DlcError as error:
            raise self._located(error, node) from None
        except (ValueError, IndexError, ZeroDivisionError, AssertionError) as error:
            raise self._located(step.wrong(f"has no meaning: {error}"), node) from None
        results = [made] if isinstance(made, Value | Constant) else list(made)
        for name, result in zip(node.outputs, results, strict=False):
            self._known[name] = result
            if isinstance(result, Value) and result.name is None:
                result.name = name
        if len(results) < len(list(filter(None, node.outputs))):
            raise self._located(step.wrong(f"has only {len(results)} results"), node)

    # Graphs inside nodes.

    def inline(self, graph: Graph) -> list[Operand]:
        """The results of a graph whose nodes are imported where its node stands."""
        outer = self._known
        self._known = {**outer, **_held(graph)}
        try:
            for node in graph.nodes:
                self._node(node)
            lost = [name for name in graph.outputs if name in self._lost]
            if lost:
                raise _Lost
            found = [self._known[name] for name in graph.outputs]
            return [operand for operand in found if operand is not None]
        finally:
            self._known = outer

    def block(
        self, graph: Graph, types: Sequence[Type], arguments: Sequence[int]
    ) -> tuple[Block, list[Value]]:
        """A graph as a block, and its results in it; it may use values of the blocks around it."""
        outer, known = self._block, self._known
        names = [declared.name for declared in graph.inputs]
        self._block = Block(types)
        bound = [self._block.arguments[number] for number in arguments]
        self._known = {**known, **dict(zip(names, bound, strict=True))}
        try:
            results = self.inline(graph)
            emit = Builder(self._block, self._place(graph.nodes[-1].line if graph.nodes else 1))
            end = Step(Node("result", "", "", (), (), {}, 0, 1), (), emit, self._weight, self)
            return self._block, [end.as_value(result) for result in results]
        finally:
            self._block, self._known = outer, known

    def _located(self, error: DlcError, node: Node) -> ModelError:
        place = self._place(node.line).place
        found = [
            Diagnostic(problem.code, f"{node.label}: {problem.message}", place, help=problem.help)
            for problem in error.diagnostics
        ]
        return ModelError(found, sources={self._graph.file: self._graph.listing})

    def _made(self, step: Step) -> Made:
        node = step.node
        constants = [operand for operand in step.operands if isinstance(operand, Constant)]
        if any(isinstance(attribute, Graph) for attribute in node.attributes.values()):
            return IMPORTERS[node.kind](step)
        if constants and len(constants) == len([o for o in step.operands if o is not None]):
            if any(constant.is_symbolic for constant in constants):
                folded = fold_sizes(step)
                if folded is not None:
                    return folded
            elif all(constant.is_small for constant in constants):
                known = self._evaluated(step)
                if known is not None:
                    return known
        return IMPORTERS[node.kind](step)

    def _evaluated(self, step: Step) -> list[Operand] | None:
        """What a node on constants makes, computed now; None if that is much."""
        block = Block()
        emit = Builder(block, step.emit.location)
        scratch = Step(step.node, step.operands, emit, self._weight, self)
        made = IMPORTERS[step.node.kind](scratch)
        results = [made] if isinstance(made, Value | Constant) else list(made)
        types = [value.type for op in block for value in op.results]
        for type in types:
            if not (isinstance(type, TensorType) and type.is_static and _count(type) <= FOLDED):
                return None
        arrays: dict[Value, Array] = {}
        at = Evaluation()
        for op in block:
            found = op.evaluate(at, *[arrays[operand] for operand in op.operands])
            outputs = found if isinstance(found, tuple) else (found,)
            arrays.update(zip(op.results, outputs, strict=True))
        known: list[Operand] = []
        for result in results:
            if isinstance(result, Constant):
                known.append(result)
            else:
                assert isinstance(result.type, TensorType)
                known.append(Constant(np.asarray(arrays[result]), result.type.dtype))
        return known

    def _weight(self, emit: Builder, constant: Constant) -> Value:
        """The value of a weight symbol, made at its first use."""
        found = self._gets.get(id(constant.array))
        if found is None:
            key = constant.name or "constant"
            name = self._weight_names.of(key)
            type = TensorType(constant.dtype, constant.array.shape)
            source = weight.Source(name, type, key)
            source.location = emit.location
            self._module.body.append(source)
            self._arrays[name] = constant.array
            get = weight.Get(Symbol(name), type)
            found = Builder(self._top, emit.location)(get, name)
            self._gets[id(constant.array)] = found
        return found


def _count(type: TensorType) -> int:
    return math.prod(size for size in type.shape if isinstance(size, int))


__all__ = ["IMPORTERS", "OPSETS", "OnnxModel", "import_graph", "read_onnx"]
