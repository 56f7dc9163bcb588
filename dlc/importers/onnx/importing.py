"""From the facts of an ONNX graph to graph IR: one function, its weights as symbols, its constants."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dlc.dialects import array, func, weight
from dlc.dialects.builtin import Module
from dlc.dialects.interface import NEEDS
from dlc.dialects.measured import FreshNames
from dlc.errors import Diagnostic, DlcError, ModelError, Unsupported
from dlc.importers.identifiers import Identifiers
from dlc.importers.imported import counted, node_location
from dlc.importers.onnx import microsoft, ml
from dlc.importers.onnx.delayed_tensor import DelayedTensor, Undecided
from dlc.importers.onnx.facts import Array, Graph, Node, Operator, Output
from dlc.importers.onnx.folding import evaluated
from dlc.importers.onnx.interface import (
    Sizes,
    check_result,
    declare,
    entry_name,
    input_names,
    result_names,
)
from dlc.importers.onnx.node_context import (
    Absent,
    AnyValue,
    Constant,
    Importer,
    NodeContext,
    NodeResults,
    Operand,
    TensorSequence,
)
from dlc.importers.onnx.operators import (
    control,
    delayed,
    elementwise,
    grid_sampling,
    ngrams,
    places,
    pooling,
    products,
    quantized,
    recurrent,
    resize,
    selection,
    sequences,
    shapes,
    signals,
    training,
    windows,
)
from dlc.importers.onnx.sequence_inputs import SplitInputs
from dlc.importers.onnx.symbolic import fold_sizes
from dlc.importers.onnx.versions import all_nodes
from dlc.importers.solved_sizes import SolvedSizes, solved_sizes
from dlc.ir.attributes import Symbol
from dlc.ir.core import Block, Builder, Value
from dlc.ir.dims import Bounds, Size
from dlc.ir.location import FileLocation, Location
from dlc.ir.types import TensorType, Type
from dlc.runtime.artifact.manifest import Need

DOMAINS: dict[str, dict[str, Importer]] = {
    "": {
        **control.IMPORTERS,
        **elementwise.IMPORTERS,
        **ngrams.IMPORTERS,
        **places.IMPORTERS,
        **pooling.IMPORTERS,
        **products.IMPORTERS,
        **quantized.IMPORTERS,
        **recurrent.IMPORTERS,
        **resize.IMPORTERS,
        **grid_sampling.IMPORTERS,
        **selection.IMPORTERS,
        **sequences.IMPORTERS,
        **shapes.IMPORTERS,
        **signals.IMPORTERS,
        **windows.IMPORTERS,
    },
    "com.microsoft": microsoft.IMPORTERS,
    "ai.onnx.ml": ml.IMPORTERS,
    "ai.onnx.preview.training": training.IMPORTERS,
}
IMPORTERS: dict[Operator, Importer] = {
    (domain, name): importer
    for domain, importers in DOMAINS.items()
    for name, importer in importers.items()
}
"""The importer of each operator, by its domain and its name; the domain of ONNX itself is empty."""
WAYS_OUT: dict[Operator, str] = {("ai.onnx.ml", name): way for name, way in ml.WAYS_OUT.items()}
"""What helps where an operator is not imported."""
MOST_NODES = 1 << 14
"""The most nodes of a loop that is unrolled; a scan is tried first."""


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
    lengths: Mapping[str, int] = field(default_factory=dict[str, int])
    """The number of elements of each result that is a sequence: they are results `NAME_0`, `NAME_1`, ..."""


def _is_known(node: Node) -> bool:
    return node.operator in IMPORTERS


class _Lost(Exception):
    """A graph inside a node has results that could not be imported, which is reported elsewhere."""


def _held(graph: Graph) -> dict[str, Operand]:
    """The tensors that a graph holds itself."""
    return {
        name: Constant(tensor.array, tensor.dtype, name) for name, tensor in graph.tensors.items()
    }


class GraphImport:
    """One import of a graph, with what is known of the sizes of its inputs."""

    def __init__(self, split: SplitInputs, sizes: Sizes) -> None:
        self._split = split
        self._graph = graph = split.graph
        self._sizes = sizes
        self._block = self._top = Block()
        self._module = Module.empty(self._place(1))
        self._weight_names = Identifiers("w")
        self._arrays: dict[str, Array] = {}
        self._gets: dict[int, Value] = {}
        self._known: dict[str, AnyValue | None] = {**_held(graph)}
        self._arguments: dict[Value, str] = {}
        self._lost: set[str] = set()
        self._behind: list[Node] = []
        self._counted = FreshNames()
        self._left = MOST_NODES + 4 * sum(1 for _ in all_nodes(graph.nodes))
        self._lengths: dict[str, int] = {}
        self._warnings: list[Diagnostic] = []
        self._required: dict[Size, tuple[str, Location]] = {}
        self.bounds: Bounds = {}
        self.conditions: list[Value] = []
        self._refused: dict[tuple[str, str, str | None], list[Node]] = defaultdict(list)

    def solved_sizes(self) -> SolvedSizes:
        """What the nodes that were imported say of the dims of the inputs."""
        free = self.bounds.keys() - self._sizes.settled
        required = {size: location for size, (_, location) in self._required.items()}
        return solved_sizes(self._top, self.bounds, free, required)

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
        self._split_results()
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
            self._lengths,
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
        tensors = {name: argument for argument, name in self._arguments.items()}
        self._known.update(self._split.values(tensors))
        self._sizes.check(self._graph)
        shapes = [array.tensor_type(argument).shape for argument in self._block.arguments]
        self.bounds = self._sizes.bounds_of(shapes)
        return found

    def _split_results(self) -> None:
        """Make each element of a sequence among the results a result of its own."""
        declared: list[Output] = []
        for output in self._graph.declared:
            found = self._known[output.name]
            if isinstance(found, Absent):
                raise Unsupported(
                    f"{self._graph.file}: the output {output.name} is an optional value that is not there",
                    code="D0710",
                )
            if isinstance(found, DelayedTensor):
                self._refuse_undecided(found.undecided())
                raise self._unsupported()
            if not isinstance(found, TensorSequence):
                declared.append(output)
                continue
            self._lengths[output.name] = len(found.items)
            for k, item in enumerate(found.items):
                name = f"{output.name}_{k}"
                self._known[name] = item
                declared.append(Output(name, None, None))
        self._graph = replace(self._graph, declared=tuple(declared))

    def _function(self, inputs: tuple[str, ...]) -> None:
        last = self._place(max(1, len(self._graph.nodes)))
        emit = Builder(self._block, last)
        node = Node("result", "", "", (), (), {}, 0, last.line)
        context = NodeContext(node, (), emit, self._weight, self)
        results: list[Value] = []
        for declared in self._graph.declared:
            operand = self._known[declared.name]
            assert isinstance(operand, Value | Constant)
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
        needs = [
            Need(str(size), "D0804", told, str(location.place or ""))
            for size, (told, location) in self._required.items()
        ]
        if needs:
            function.attributes[NEEDS] = tuple(map(tuple, needs))
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
        emit = Builder(self._block, node_location(self._graph.file, node, node.label))
        context = NodeContext(node, operands, emit, self._weight, self)
        try:
            node_results = self._made(context)
        except _Lost:
            self._lost.update(filter(None, node.outputs))
            return
        except Undecided as problem:
            self._refuse_undecided(problem)
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
        results = [node_results] if isinstance(node_results, AnyValue) else list(node_results)
        for name, result in zip(node.outputs, results, strict=False):
            self._known[name] = result
            if isinstance(result, Value) and result.name is None:
                result.name = name
        if len(results) < len(list(filter(None, node.outputs))):
            raise self._located(context.wrong(f"has only {len(results)} results"), node)

    def _refuse_undecided(self, undecided: Undecided) -> None:
        """Report the node that has a computed size, once, whichever nodes cannot do with it."""
        node = undecided.context.node
        for problem in undecided.context.undecided(undecided.index).diagnostics:
            nodes = self._refused[problem.code, problem.message, problem.help]
            if node not in nodes:
                nodes.append(node)

    def _refuse_unknown(self, nodes: Sequence[Node]) -> None:
        """Report those of the nodes, and of the graphs inside them, that have no importer."""
        for node in all_nodes(nodes):
            if not _is_known(node):
                kind = f"{node.domain}.{node.kind}" if node.domain else node.kind
                message = f"{kind} of opset {node.opset} is not imported"
                self._refused["D0710", message, WAYS_OUT.get(node.operator)].append(node)

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

    def known(self, name: str) -> AnyValue | None:
        """What a name stands for where a node is; None for one that was not imported."""
        return self._known.get(name)

    def inline(self, graph: Graph, operands: Sequence[AnyValue] = ()) -> list[AnyValue]:
        """The results of a graph whose nodes are imported where its node stands."""
        outer = self._known
        names = [declared.name for declared in graph.inputs]
        bound = dict(zip(names, operands, strict=True)) if operands else {}
        self._known = {**outer, **bound, **_held(graph)}
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
    ) -> tuple[Block, list[AnyValue]]:
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
            tensors = [end.as_value(tensor) for tensor in sequences.elements(results)]
            return self._block, sequences.rebuilt(sequences.structure(results), tensors)
        except (DlcError, _Lost, Undecided) as error:
            self._block.clear()
            if isinstance(error, Undecided):
                self._refuse_undecided(error)
                raise _Lost from None
            raise
        finally:
            self._block, self._known = outer, outer_operands

    def attempted(
        self, graph: Graph, types: Sequence[Type], arguments: Sequence[int]
    ) -> tuple[Block, list[AnyValue]] | None:
        """The same, or None where something in the graph is not imported, which is not reported."""
        refused = {key: [*nodes] for key, nodes in self._refused.items()}
        lost, behind = {*self._lost}, [*self._behind]
        try:
            return self.block(graph, types, arguments)
        except _Lost:
            self._refused = defaultdict(list, refused)
            self._lost, self._behind = lost, behind
            return None

    def require(self, size: Size, told: str, location: Location) -> None:
        """Let calls be checked for a size that must be 0 or more; `told` says what is wrong otherwise."""
        self._required.setdefault(size, (told, location))

    def fresh_dim(self, line: int) -> str:
        """The name of a size that a node of this line counts; each is given once."""
        return self._counted.take(f"n_{line}")

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
        self._left -= 1
        if self._left < 0:
            raise Unsupported(
                f"{self._graph.file}: its loops, written out, are more than {MOST_NODES} nodes",
                code="D0710",
            )
        constants = [operand for operand in context.operands if isinstance(operand, Constant)]
        if any(isinstance(attribute, Graph) for attribute in node.attributes.values()):
            return IMPORTERS[node.operator](context)
        if constants and len(constants) == len([o for o in context.operands if o is not None]):
            if any(constant.is_symbolic for constant in constants):
                folded = fold_sizes(context)
                if folded is not None:
                    return folded
            elif all(constant.is_small for constant in constants):
                folded = evaluated(IMPORTERS[node.operator], context)
                if folded is not None:
                    return folded
        found = delayed.imported(context)
        return IMPORTERS[node.operator](context) if found is None else found

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


__all__ = ["IMPORTERS", "GraphImport", "OnnxModel"]
