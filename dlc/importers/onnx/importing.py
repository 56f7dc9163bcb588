"""From the facts of an ONNX graph to graph IR: one function, its weights as symbols, its constants."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from dlc.dialects import array, func, nn, weight
from dlc.dialects.builtin import Module
from dlc.errors import Diagnostic, DlcError, ModelError, Unsupported
from dlc.importers.agreed_sizes import SolvedSizes, solved_sizes
from dlc.importers.identifiers import Identifiers
from dlc.importers.imported import counted
from dlc.importers.onnx import (
    control,
    elementwise,
    places,
    products,
    recurrent,
    resize,
    shapes,
    windows,
)
from dlc.importers.onnx.facts import Array, Graph, Node
from dlc.importers.onnx.interface import (
    Sizes,
    check_names,
    check_result,
    declare,
    entry_name,
    input_names,
    result_names,
    with_fixed,
)
from dlc.importers.onnx.node_context import (
    FOLDED,
    Constant,
    Importer,
    NodeContext,
    NodeResults,
    Operand,
)
from dlc.importers.onnx.reading import read_graph
from dlc.importers.onnx.symbolic import fold_sizes
from dlc.ir.attributes import Symbol
from dlc.ir.core import Block, Builder, Evaluation, Value
from dlc.ir.dims import Bounds, Shape
from dlc.ir.location import FileLocation
from dlc.ir.types import TensorType, Type

IMPORTERS: dict[str, Importer] = {
    **control.IMPORTERS,
    **elementwise.IMPORTERS,
    **places.IMPORTERS,
    **products.IMPORTERS,
    **recurrent.IMPORTERS,
    **resize.IMPORTERS,
    **shapes.IMPORTERS,
    **windows.IMPORTERS,
}
"""The importer of each ONNX operator, by its name."""

MAX_ROUNDS = 32
"""So often a graph is imported, each time with more known of its sizes."""
OPSETS = range(6, 29)
"""The versions of the operators' meaning that the importers know."""


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """An imported model: IR at graph level, the arrays of its weight symbols, and the nodes it was made of.

    The line of an operation's location is that of its node in `listing`, the k-th node at line k.
    `renamed` says what is called otherwise than in the file: inputs, results and sizes.
    """

    module: Module
    arrays: Mapping[str, Array]
    listing: str
    nodes: Sequence[Node]
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    warnings: tuple[Diagnostic, ...] = ()
    """Declarations of the file that its nodes contradict, and sizes that they decide."""
    settled: frozenset[str] = frozenset()
    """Sizes that keep to the bounds that were asked for."""
    modules: Mapping[str, str] = field(default_factory=dict[str, str])
    """None: the names of weights in a file are whatever its exporter made of them."""


def read_onnx(
    path: str | Path,
    *,
    shapes: Mapping[str, Shape] | None = None,
    dims: Mapping[str, int] | None = None,
    fixed: Mapping[str, Array] | None = None,
    bounds: Bounds | None = None,
) -> OnnxModel:
    """The model in an ONNX file.

    `shapes` replaces the declared shapes of inputs, by their names in the file, `dims` gives numbers to
    sizes that have names, `fixed` values to inputs, which are inputs no longer. `bounds` decide what
    follows from sizes, of names that the file has. Raises Unsupported with every operator that is not
    imported, UsageError for names that the file does not have and for values that do not fit.
    """
    graph = read_graph(path, IMPORTERS)
    return import_graph(graph, shapes=shapes, dims=dims, fixed=fixed, bounds=bounds)


def import_graph(
    graph: Graph,
    *,
    shapes: Mapping[str, Shape] | None = None,
    dims: Mapping[str, int] | None = None,
    fixed: Mapping[str, Array] | None = None,
    bounds: Bounds | None = None,
) -> OnnxModel:
    """The same from a graph that was read.

    Sizes that the graph takes to be equal and that decide a dim of the inputs, such as `H == 2*(H//2)` or
    `N == 80`, are put into the shapes of the inputs, and the graph is imported again.
    """
    _check_opset(graph)
    inputs = [declared.name for declared in graph.inputs]
    check_names(graph, "input", [*(shapes or {}), *(fixed or {})], inputs)
    graph = with_fixed(graph, fixed or {})
    solved = SolvedSizes()
    for _ in range(MAX_ROUNDS):
        one = _Import(graph, Sizes(graph, shapes or {}, dims or {}, bounds or {}, solved))
        try:
            model = one.run()
        except DlcError:
            more = one.solved_sizes()
            if not more:
                raise
        else:
            more = one.solved_sizes()
            if not more:
                return replace(model, warnings=(*model.warnings, *solved.notes()))
        solved = solved.then(more)
    raise Unsupported(f"{graph.file} has sizes that depend on each other without end", code="D0710")


def _is_known(node: Node) -> bool:
    return not node.domain and node.kind in IMPORTERS


def _check_opset(graph: Graph) -> None:
    """Raise Unsupported for operators of a version that nobody here knows."""
    for node in _all_nodes(graph.nodes):
        if not node.domain and node.opset not in OPSETS:
            raise Unsupported(
                f"{graph.file} uses version {node.opset} of the ONNX operators; dlc knows "
                f"{OPSETS[0]} to {OPSETS[-1]}",
                code="D0710",
                help="onnx.version_converter.convert_version(model, 21) makes another version of it",
            )


def _all_nodes(nodes: Sequence[Node]) -> Iterator[Node]:
    """The nodes and those of the graphs inside them."""
    pending = list(nodes[::-1])
    while pending:
        node = pending.pop()
        yield node
        for attribute in node.attributes.values():
            if isinstance(attribute, Graph):
                pending += attribute.nodes[::-1]


class _Lost(Exception):
    """A graph inside a node has results that could not be imported, which is reported elsewhere."""


def _held(graph: Graph) -> dict[str, Operand]:
    """The tensors that a graph holds itself."""
    return {
        name: Constant(tensor.array, tensor.dtype, name) for name, tensor in graph.tensors.items()
    }


class _Import:
    def __init__(self, graph: Graph, sizes: Sizes) -> None:
        self._graph = graph
        self._sizes = sizes
        self._block = self._top = Block()
        self._module = Module.empty(self._place(1))
        self._weight_names = Identifiers("w")
        self._arrays: dict[str, Array] = {}
        self._gets: dict[int, Value] = {}
        self._known: dict[str, Operand | None] = {**_held(graph)}
        self._arguments: dict[Value, str] = {}
        self._lost: set[str] = set()
        self._behind: list[Node] = []
        self._warnings: list[Diagnostic] = []
        self.bounds: Bounds = {}
        self._refused: dict[tuple[str, str, str | None], list[Node]] = defaultdict(list)

    def solved_sizes(self) -> SolvedSizes:
        """What the nodes that were imported say of the dims of the inputs."""
        return solved_sizes(self._top, self.bounds, self.bounds.keys() - self._sizes.settled)

    def run(self) -> OnnxModel:
        """Import the nodes in their order; what cannot be imported is reported all at once."""
        inputs = self._inputs()
        left = iter(self._graph.nodes)
        try:
            for node in left:
                self._node(node)
        except ModelError:
            self._refuse_unknown(list(left))
            if not self._refused:
                raise
        if self._refused:
            raise self._unsupported()
        self._function(inputs)
        graph = self._graph
        return OnnxModel(
            self._module,
            self._arrays,
            graph.listing,
            graph.nodes,
            self._renamed(inputs),
            tuple(self._warnings),
            self._sizes.settled,
        )

    def _unsupported(self) -> Unsupported:
        """Everything that is not imported, in the order of the file."""
        refused = sorted(self._refused.items(), key=lambda entry: entry[1][0].line)
        problems = [
            self._problem(message, nodes, code, help) for (code, message, help), nodes in refused
        ]
        return Unsupported(problems, sources={self._graph.file: self._graph.listing})

    def _problem(self, message: str, nodes: list[Node], code: str, help: str | None) -> Diagnostic:
        """The error for these nodes; nodes of their kind that read from them were not examined."""
        told = f"{message}: {counted(nodes)}"
        alike = [node for node in self._behind if node.kind == nodes[0].kind]
        if alike:
            told += f", and perhaps {len(alike)} more {nodes[0].kind} behind what is not imported"
        place = FileLocation(self._graph.file, nodes[0].line, 1).place
        return Diagnostic(code, told, place, help=help)

    def _place(self, line: int) -> FileLocation:
        return FileLocation(self._graph.file, line, 1)

    # Inputs and results.

    def _inputs(self) -> tuple[str, ...]:
        found = input_names(self._graph)
        for declared, name in zip(self._graph.inputs, found, strict=True):
            assert declared.dtype is not None
            type = TensorType(declared.dtype, self._sizes.of(declared, name))
            argument = self._block.add_argument(type, name)
            self._known[declared.name] = argument
            self._arguments[argument] = declared.name
        self._sizes.check(self._graph)
        shapes = [array.tensor_type(argument).shape for argument in self._block.arguments]
        self.bounds = self._sizes.bounds_of(shapes)
        return found

    def _function(self, inputs: tuple[str, ...]) -> None:
        last = self._place(max(1, len(self._graph.nodes)))
        emit = Builder(self._block, last)
        node = Node("result", "", "", (), (), {}, 0, last.line)
        context = NodeContext(node, (), emit, self._weight, self)
        results: list[Value] = []
        for declared in self._graph.declared:
            operand = self._known[declared.name]
            assert operand is not None
            value = context.as_value(operand)
            warning = check_result(
                self._graph, declared, array.tensor_type(value), sizes=self._sizes.are_declared
            )
            self._warnings += [] if warning is None else [warning]
            results.append(value)
        emit.place(func.Return(tuple(results)))
        signature = func.signature(self._block, results)
        function = func.Func(self._block, entry_name(self._graph), signature)
        function.location = self._place(1)
        declare(function, inputs, result_names(self._graph), self.bounds)
        self._module.body.append(function)

    def _renamed(self, inputs: tuple[str, ...]) -> dict[str, str]:
        """The renamed values."""
        pairs = [
            *zip([declared.name for declared in self._graph.inputs], inputs, strict=True),
            *zip(self._graph.outputs, result_names(self._graph), strict=True),
        ]
        return {old: new for old, new in pairs if old != new} | self._sizes.renamed

    # Nodes.

    def _node(self, node: Node) -> None:
        if not _is_known(node) or any(name in self._lost for name in node.inputs):
            self._refuse_unknown([node])
            self._behind += [node] if _is_known(node) else []
            self._lost.update(filter(None, node.outputs))
            return
        operands = [self._known[name] if name else None for name in node.inputs]
        emit = Builder(self._block, self._place(node.line))
        context = NodeContext(node, operands, emit, self._weight, self)
        try:
            node_results = self._made(context)
        except _Lost:
            self._lost.update(filter(None, node.outputs))
            return
        except Unsupported as error:
            for problem in error.diagnostics:
                self._refused[problem.code, problem.message, problem.help].append(node)
            self._lost.update(filter(None, node.outputs))
            return
        except DlcError as error:
            raise self._located(error, node) from None
        except (ValueError, IndexError, ArithmeticError, AssertionError) as error:
            raise self._located(context.wrong(f"has no meaning: {error}"), node) from None
        results = (
            [node_results] if isinstance(node_results, Value | Constant) else list(node_results)
        )
        for name, result in zip(node.outputs, results, strict=False):
            self._known[name] = result
            if isinstance(result, Value) and result.name is None:
                result.name = name
        if len(results) < len(list(filter(None, node.outputs))):
            raise self._located(context.wrong(f"has only {len(results)} results"), node)

    def _refuse_unknown(self, nodes: Sequence[Node]) -> None:
        """Report those of the nodes, and of the graphs inside them, that have no importer."""
        for node in _all_nodes(nodes):
            if not _is_known(node):
                kind = f"{node.domain}.{node.kind}" if node.domain else node.kind
                message = f"{kind} of opset {node.opset} is not imported"
                self._refused["D0710", message, None].append(node)

    def origins(self, value: Value) -> Sequence[str]:
        """The inputs of the model that a value follows from, if they are numbers or lists of them."""
        origins: dict[Value, None] = {}
        pending, seen = [value], {value}
        while pending:
            value = pending.pop()
            if value.op is None:
                origins[value] = None
                continue
            for operand in value.op.operands:
                if operand not in seen:
                    seen.add(operand)
                    pending.append(operand)
        if not all(
            value in self._arguments and array.tensor_type(value).rank < 2 for value in origins
        ):
            return ()
        return [self._arguments[value] for value in origins]

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
            results = [self._known[name] for name in graph.outputs]
            return [operand for operand in results if operand is not None]
        finally:
            self._known = outer

    def block(
        self, graph: Graph, types: Sequence[Type], arguments: Sequence[int]
    ) -> tuple[Block, list[Value]]:
        """A graph as a block, and its results in it; it may use values of the blocks around it."""
        outer, outer_operands = self._block, self._known
        names = [declared.name for declared in graph.inputs]
        self._block = Block(types)
        bound = [self._block.arguments[number] for number in arguments]
        for name, argument in zip(names, bound, strict=True):
            argument.name = name
        self._known = {**outer_operands, **dict(zip(names, bound, strict=True))}
        try:
            results = self.inline(graph)
            emit = Builder(self._block, self._place(graph.nodes[-1].line if graph.nodes else 1))
            end = NodeContext(
                Node("result", "", "", (), (), {}, 0, 1), (), emit, self._weight, self
            )
            return self._block, [end.as_value(result) for result in results]
        finally:
            self._block, self._known = outer, outer_operands

    def _located(self, error: DlcError, node: Node) -> ModelError:
        location = self._place(node.line).place
        diagnostics = [
            Diagnostic(
                problem.code, f"{node.label}: {problem.message}", location, help=problem.help
            )
            for problem in error.diagnostics
        ]
        return ModelError(diagnostics, sources={self._graph.file: self._graph.listing})

    def _made(self, context: NodeContext) -> NodeResults:
        node = context.node
        constants = [operand for operand in context.operands if isinstance(operand, Constant)]
        if any(isinstance(attribute, Graph) for attribute in node.attributes.values()):
            return IMPORTERS[node.kind](context)
        if constants and len(constants) == len([o for o in context.operands if o is not None]):
            if any(constant.is_symbolic for constant in constants):
                folded = fold_sizes(context)
                if folded is not None:
                    return folded
            elif all(constant.is_small for constant in constants):
                folded = self._evaluated(context)
                if folded is not None:
                    return folded
        return IMPORTERS[node.kind](context)

    def _evaluated(self, context: NodeContext) -> list[Operand] | None:
        """Constant-fold a node; None if its result is large."""
        block = Block()
        emit = Builder(block, context.emit.location)
        scratch = NodeContext(context.node, context.operands, emit, self._weight, self)
        node_results = IMPORTERS[context.node.kind](scratch)
        results = (
            [node_results] if isinstance(node_results, Value | Constant) else list(node_results)
        )
        types = [value.type for op in block for value in op.results]
        for type in types:
            if not (isinstance(type, TensorType) and type.is_static and _count(type) <= FOLDED):
                return None
        if any(isinstance(op, array.ReduceWindow | nn.Conv) for op in block):
            return None  # their padding may be any number of elements
        arrays: dict[Value, Array] = {}
        at = Evaluation()
        for op in block:
            values = op.evaluate(at, *[arrays[operand] for operand in op.operands])
            outputs = values if isinstance(values, tuple) else (values,)
            arrays.update(zip(op.results, outputs, strict=True))
        operands: list[Operand] = []
        for result in results:
            if isinstance(result, Constant):
                operands.append(result)
            else:
                assert isinstance(result.type, TensorType)
                operands.append(Constant(np.asarray(arrays[result]), result.type.dtype))
        return operands

    def _weight(self, emit: Builder, constant: Constant) -> Value:
        """The value of a weight symbol, made at its first use."""
        value = self._gets.get(id(constant.array))
        if value is None:
            key = constant.name or "constant"
            name = self._weight_names.of(key)
            type = TensorType(constant.dtype, constant.array.shape)
            source = weight.Source(name, type, key)
            source.location = emit.location
            self._module.body.append(source)
            self._arrays[name] = constant.array
            get = weight.Get(Symbol(name), type)
            value = Builder(self._top, emit.location)(get, name)
            self._gets[id(constant.array)] = value
        return value


def _count(type: TensorType) -> int:
    return math.prod(size for size in type.shape if isinstance(size, int))


__all__ = ["IMPORTERS", "OPSETS", "OnnxModel", "import_graph", "read_onnx"]
