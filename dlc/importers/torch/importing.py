"""From the facts of a PyTorch graph to graph IR: one function, its weights as symbols."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dlc.dialects import array, func, rng, weight
from dlc.dialects.array import tensor_type
from dlc.dialects.array.shape import inverse, transpose
from dlc.dialects.builtin import Module
from dlc.dialects.interface import bounds_attribute
from dlc.errors import Diagnostic, DlcError, ModelError, Unsupported
from dlc.importers.identifiers import Identifiers
from dlc.importers.imported import counted, node_location
from dlc.importers.solved_sizes import with_sizes
from dlc.importers.torch.facts import (
    Array,
    Graph,
    Input,
    Node,
    Ref,
    Result,
    Weight,
    with_dims,
)
from dlc.importers.torch.node_context import Importer, NodeContext, Operand
from dlc.importers.torch.operators import (
    activations,
    complex_numbers,
    constants,
    control,
    detection,
    elementwise,
    fourier,
    gradients,
    normalization,
    ordering,
    places,
    products,
    random_numbers,
    recurrent,
    reductions,
    shapes,
    slices,
    windows,
)
from dlc.ir.attributes import INLINE_BYTES, Dense, Symbol
from dlc.ir.core import Block, Builder, Value
from dlc.ir.dims import Bounds, Dim, Size, substitute
from dlc.ir.intervals import interval
from dlc.ir.location import FileLocation, Location
from dlc.ir.types import I64, U64, TensorType, Type
from dlc.text.model.words import NEVER_NAMES


def _get_item(context: NodeContext) -> Operand:
    """One of the results of a node."""
    source, index = context.given("self"), context.integer("index")
    made = context.regions.operand(source.name) if isinstance(source, Ref) else None
    if isinstance(made, tuple):
        return made[index]
    return made


IMPORTERS: dict[str, Importer] = {
    "getitem": _get_item,
    **activations.IMPORTERS,
    **complex_numbers.IMPORTERS,
    **constants.IMPORTERS,
    **control.IMPORTERS,
    **detection.IMPORTERS,
    **elementwise.IMPORTERS,
    **fourier.IMPORTERS,
    **gradients.IMPORTERS,
    **normalization.IMPORTERS,
    **ordering.IMPORTERS,
    **places.IMPORTERS,
    **products.IMPORTERS,
    **random_numbers.IMPORTERS,
    **recurrent.IMPORTERS,
    **reductions.IMPORTERS,
    **shapes.IMPORTERS,
    **slices.IMPORTERS,
    **windows.IMPORTERS,
}
"""The importer of each operator, by its name; one without an overload is for all overloads."""

RUN, GRADIENTS = "run", "gradients"
"""The entry points: what a graph computes, and its backward pass."""

SEED = "random_seed"
"""The last input of a graph that draws random numbers: a u64."""


@dataclass(frozen=True, slots=True)
class TorchModel:
    """An imported graph: IR at graph level, and the arrays of its weight symbols.

    The line of an operation's location is that of its node in `listing`. `renamed` says what is called
    otherwise than in PyTorch. With `draws`, the last input of `run` is the seed of its random numbers.
    """

    module: Module
    arrays: Mapping[str, Array]
    listing: str
    nodes: Sequence[Node]
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    warnings: tuple[Diagnostic, ...] = ()
    draws: bool = False
    settled: frozenset[str] = frozenset()
    """Sizes that keep to bounds that were asked for: none, since the program has its own."""


def import_graph(graph: Graph, backward: Graph | None = None) -> TorchModel:
    """The function that a graph computes, called `run`, and its backward pass, called `gradients`.

    The lines of the backward pass follow those of the graph in the listing. Raises Unsupported with every
    operator that is not imported, by kind.
    """
    graphs = (graph,) if backward is None else (graph, backward)
    weights = _Weights("".join([each.listing for each in graphs]), Module.empty(_place(graph, 1)))
    for each in graphs:
        unknown = [node for node in each.nodes if importer_of(node.kind) is None]
        if unknown:
            raise _refused(each, weights.listing, unknown)
    forward = _Import(graph, weights)
    inputs = forward.run(RUN)
    if backward is not None:
        _Import(backward, weights).run(GRADIENTS)
    renamed = {
        declared.label: name
        for declared, name in zip(graph.inputs, inputs, strict=False)
        if declared.label != name
    }
    return TorchModel(
        weights.module,
        weights.arrays,
        weights.listing,
        [node for each in graphs for node in each.nodes],
        renamed,
        draws=len(inputs) > len(graph.inputs),
    )


def _place(graph: Graph, line: int) -> FileLocation:
    return FileLocation(graph.file, line, 1)


def importer_of(kind: str) -> Importer | None:
    """The importer of an operator, with or without its overload."""
    found = IMPORTERS.get(kind)
    return IMPORTERS.get(kind.rpartition(".")[0]) if found is None else found


def _refused(graph: Graph, listing: str, nodes: Sequence[Node]) -> Unsupported:
    """One error for all operators that are not imported, each with its first nodes."""
    kinds: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        kinds[node.kind].append(node)
    problems = [
        Diagnostic(
            "D0710",
            f"{kind} is not imported: {counted(alike)}",
            FileLocation(graph.file, alike[0].line, 1).place,
        )
        for kind, alike in kinds.items()
    ]
    return Unsupported(problems, sources={graph.file: listing})


@dataclass(slots=True)
class _Weights:
    """The module that graphs are imported into, with the weights that they share, by path."""

    listing: str
    module: Module
    arrays: dict[str, Array] = field(default_factory=dict[str, Array])
    called: dict[str, str] = field(default_factory=dict[str, str])
    names: Identifiers = field(default_factory=lambda: Identifiers("w"))

    def symbol(self, declared: Weight, location: Location) -> Symbol:
        """The symbol of a weight, which is declared when it is asked for first."""
        name = self.called.get(declared.path)
        if name is None:
            name = self.called[declared.path] = self.names.of(declared.path)
            source = weight.Source(
                name,
                declared.type,
                declared.path,
                trained=declared.trained,
                constant=declared.constant,
            )
            source.location = location
            self.module.body.append(source)
            self.arrays[name] = declared.array
        return Symbol(name)


class _Import:
    """Imports one graph."""

    def __init__(self, graph: Graph, weights: _Weights) -> None:
        self._graph = graph
        self._held = weights
        self._last = _place(graph, graph.nodes[-1].line if graph.nodes else 1)
        self._block = self._top = Block()
        self._known: dict[str, Operand] = {}
        self._weights = {each.name: each for each in graph.weights}
        self._seed: Value | None = None
        self._drawn = 0
        self.counted: dict[str, tuple[int, int | None]] = {}
        self._places: dict[Value, Value] = {}
        self._alike: dict[str, Size] = {}
        """Dims that are others by another name."""
        self.bounds: Bounds = graph.bounds

    def run(self, name: str) -> tuple[str, ...]:
        """Add the function of this name to the module; returns the names of its inputs."""
        graph = self._graph
        inputs = self._inputs()
        for node in graph.nodes:
            self._node(node)
        results = self._results()
        if self._seed is not None:
            inputs = (*inputs, SEED)
        self._function(name, inputs, results)
        return inputs

    def _place(self, line: int) -> FileLocation:
        return _place(self._graph, line)

    # Inputs, weights and results.

    def _inputs(self) -> tuple[str, ...]:
        called = Identifiers("x", taken=(SEED, RUN))
        names: list[str] = []
        emit = Builder(self._block, self._place(1))
        for declared in self._graph.inputs:
            name = called.of(declared.label)
            names.append(name)
            shape = tuple([declared.type.shape[axis] for axis in declared.order])
            argument = self._block.add_argument(declared.type.with_shape(shape), name)
            self._known[declared.name] = transpose(emit, argument, inverse(declared.order))
        return tuple(names)

    def operand(self, name: str) -> Operand:
        """What a node, an input or a weight made."""
        if name not in self._known and name in self._weights:
            self._known[name] = self._weight(self._weights[name])
        if name not in self._known:
            raise Unsupported(f"{name} is read before it is made", code="D0710")
        return self._known[name]

    def _weight(self, declared: Weight) -> Value:
        """A parameter or a buffer as a weight symbol; a small constant of the graph is in the IR."""
        emit = Builder(self._top, self._place(1), self._top.first)
        type = declared.type
        if declared.constant and declared.array.nbytes <= INLINE_BYTES:
            data = np.ascontiguousarray(declared.array).reshape(declared.array.shape)
            return emit(array.Constant(Dense.of(data, type.dtype)))
        symbol = self._held.symbol(declared, emit.location)
        return emit(weight.Get(symbol, type), symbol.name)

    def places(self, emit: Builder, mask: Value, names: Sequence[str]) -> Value:
        """Where a tensor is not 0, counted once; their number has the first of the names that is free."""
        known = self._places.get(mask)
        if known is not None and known.block in (emit.block, self._top):
            count = tensor_type(known).shape[0]
            self._alike.update({name: count for name in names if name not in self.counted})
            return known
        free = [name for name in names if name not in self.counted]
        name = free[0] if free else f"count_{len(self.counted)}"
        most = interval(tensor_type(mask).size, {**self.bounds, **self.counted})[1]
        self.counted[name] = 0, most
        self._places[mask], _ = emit.all(array.NonZero(mask, name))
        return self._places[mask]

    def random_key(self, emit: Builder) -> Value:
        """The key of the seed, with the number of the node that draws folded in."""
        if self._seed is None:
            self._seed = self._top.add_argument(TensorType(U64), SEED)
        self._drawn += 1
        number = array.fill(emit, self._drawn, TensorType(I64))
        return emit(rng.Fold(emit(rng.Key(self._seed)), number))

    def _results(self) -> list[Value]:
        emit = Builder(self._block, self._last)
        return [self._result(emit, result) for result in self._graph.results]

    def _result(self, emit: Builder, result: Result) -> Value:
        match result.value:
            case Ref(name):
                value = self.operand(name)
                if not isinstance(value, Value):
                    raise Unsupported(f"the result {name} is not imported", code="D0710")
                return transpose(emit, value, result.order) if result.order else value
            case Dim():
                return emit(array.Extent(result.value))
            case int() | float():
                return array.fill(emit, result.value, TensorType(I64))
            case _:
                raise Unsupported(f"the result {result.label} is not a tensor", code="D0710")

    def _function(self, name: str, inputs: Sequence[str], results: Sequence[Value]) -> None:
        graph = self._graph
        emit = Builder(self._block, self._last)
        emit.place(func.Return(tuple(results)))
        function = func.Func(self._block, name, func.signature(self._block, list(results)))
        function.location = self._place(1)
        called = Identifiers("y", NEVER_NAMES)
        if self.bounds:
            function.attributes["dlc.dims"] = bounds_attribute(dict(self.bounds))
        function.attributes["dlc.inputs"] = tuple(inputs)
        function.attributes["dlc.results"] = tuple(
            [called.of(each.label) for each in graph.results]
        )
        self._held.module.body.append(function)

    # Nodes.

    def _node(self, node: Node) -> None:
        importer = importer_of(node.kind)
        if importer is None:
            raise _refused(self._graph, self._held.listing, [node])
        emit = Builder(self._block, node_location(self._graph.file, node, node.name))
        if self._alike:
            node = with_dims(node, self._alike)
        context = NodeContext(node, emit, self)
        try:
            made = importer(context)
            self._known[node.name] = self._fitted(context, made)
        except DlcError as error:
            raise self._located(error, node) from None
        except (ValueError, IndexError, ArithmeticError, AssertionError, TypeError) as error:
            wrong = context.wrong(f"is not understood: {type(error).__name__}: {error}")
            raise self._located(wrong, node) from error

    def _fitted(self, context: NodeContext, made: Operand) -> Operand:
        """The results in the sizes that PyTorch gives them, which are the same in every call."""
        node = context.node
        if isinstance(made, Value):
            return self._sized(context, made, 0)
        if made is None:
            return None
        parts = [
            self._sized(context, part, index) if isinstance(part, Value) else part
            for index, part in enumerate(made)
        ]
        return tuple(parts) if len(parts) == len(node.types) or len(parts) > 1 else parts[0]

    def _sized(self, context: NodeContext, value: Value, index: int) -> Value:
        types = context.node.types
        wanted = types[index] if index < len(types) else None
        if wanted is None:
            return value
        wanted = wanted.with_shape(tuple([substitute(size, self._alike) for size in wanted.shape]))
        found = tensor_type(value)
        if found == wanted:
            return value
        if found.dtype is not wanted.dtype or found.rank != wanted.rank:
            raise context.wrong(f"makes {wanted.text} in PyTorch and {found.text} here")
        return with_sizes(context.emit, value, wanted.shape)

    def block(self, graph: Graph, types: Sequence[Type]) -> tuple[Block, list[Value]]:
        """A graph as a block, and its results in it."""
        outer, outer_known = self._block, self._known
        self._block = Block(list(types))
        self._known = {**outer_known}
        try:
            for declared, argument in zip(graph.inputs, self._block.arguments, strict=True):
                self._known[declared.name] = argument
            for node in graph.nodes:
                self._node(node)
            emit = Builder(self._block, self._place(1))
            return self._block, [self._result(emit, result) for result in graph.results]
        finally:
            self._block, self._known = outer, outer_known

    def _located(self, error: DlcError, node: Node) -> DlcError:
        place = self._place(node.line).place
        diagnostics = [
            Diagnostic(problem.code, f"{node.label}: {problem.message}", place, help=problem.help)
            if problem.place is None
            else problem
            for problem in error.diagnostics
        ]
        kind = Unsupported if isinstance(error, Unsupported) else ModelError
        return kind(diagnostics, sources={self._graph.file: self._held.listing})


__all__ = ["IMPORTERS", "SEED", "Input", "TorchModel", "import_graph", "importer_of"]
