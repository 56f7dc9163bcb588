"""From the facts of a StableHLO module to graph IR: one function, its large constants as weights."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dlc.dialects import flow, func, weight
from dlc.dialects.array import tensor_type
from dlc.dialects.builtin import Module
from dlc.dialects.interface import NEEDS, bounds_attribute
from dlc.errors import Diagnostic, DlcError, ModelError, Unsupported
from dlc.importers.identifiers import Identifiers
from dlc.importers.imported import counted, node_location
from dlc.importers.solved_sizes import with_sizes
from dlc.importers.stablehlo.facts import Array, Declared, Function, Node, Program, Region
from dlc.importers.stablehlo.known import Known
from dlc.importers.stablehlo.node_context import Body, Importer, Made, NodeContext
from dlc.importers.stablehlo.operators import (
    bits,
    control,
    convolution,
    elementwise,
    gathering,
    ordering,
    products,
    reductions,
    scattering,
    shapes,
    slices,
    special_functions,
    windows,
)
from dlc.importers.stablehlo.polymorphism import Conditions, dim_names, label_of, labels_of
from dlc.ir.attributes import Symbol
from dlc.ir.core import Block, Builder, Value
from dlc.ir.dims import Bounds, Shape, names
from dlc.ir.location import FileLocation
from dlc.ir.types import TensorType, Type
from dlc.runtime.artifact.manifest import Need
from dlc.text.model.words import NEVER_NAMES

IMPORTERS: dict[str, Importer] = {
    **bits.IMPORTERS,
    **control.IMPORTERS,
    **convolution.IMPORTERS,
    **elementwise.IMPORTERS,
    **gathering.IMPORTERS,
    **ordering.IMPORTERS,
    **products.IMPORTERS,
    **reductions.IMPORTERS,
    **scattering.IMPORTERS,
    **shapes.IMPORTERS,
    **slices.IMPORTERS,
    **special_functions.IMPORTERS,
    **windows.IMPORTERS,
}
"""The importer of each operation, by its name; of a custom call by its name and its target."""


@dataclass(frozen=True, slots=True)
class StableHloModel:
    """An imported module: IR at graph level, and the arrays of its weight symbols.

    The line of an operation's location is that of its node in `listing`. `renamed` says what is called
    otherwise than in the module.
    """

    module: Module
    arrays: Mapping[str, Array]
    listing: str
    nodes: Sequence[Node]
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    warnings: tuple[Diagnostic, ...] = ()
    settled: frozenset[str] = frozenset()
    """Sizes that keep to bounds that were asked for: none, since the module has its own."""


def import_program(program: Program) -> StableHloModel:
    """The function that the main function of a module computes, called `run`.

    Raises Unsupported with every type (D0718) and every operation (D0710) that is not imported, by kind.
    """
    _check(program)
    shapes, bounds = dim_names(program), dict[str, tuple[int, int | None]]()
    if any(names(size) for shape in shapes for size in shape):
        first = _Import(program, shapes, {})
        first.body()
        shapes, bounds = first.conditions.solved(first.shapes)
    return _Import(program, shapes, bounds).run()


def _check(program: Program) -> None:
    """Raise Unsupported with all types and operations that are not imported."""
    types: dict[str, list[Node]] = defaultdict(list)
    kinds: dict[str, list[Node]] = defaultdict(list)
    _check_inputs(program)
    for node in _reached(program):
        for type in (*node.operand_types, *node.types):
            if type.dtype is None and node not in types[_kind_of(type)]:
                types[_kind_of(type)].append(node)
        if node.kind not in IMPORTERS:
            kinds[node.kind].append(node)
    refused = [
        *[
            ("D0718", f"dlc has no numbers of type {kind}", nodes)
            for kind, nodes in types.items()
            if nodes
        ],
        *[("D0710", f"{kind} is not imported", nodes) for kind, nodes in kinds.items()],
    ]
    if refused:
        problems = [
            Diagnostic(code, f"{told}: {counted(nodes)}", _place(program, nodes[0].line).place)
            for code, told, nodes in refused
        ]
        raise Unsupported(problems, sources={program.file: program.listing})


def _check_inputs(program: Program) -> None:
    """Raise Unsupported for an input of the main function of a type that dlc does not have."""
    for type in program.functions[program.main].body.types:
        if type.dtype is None:
            raise Unsupported(f"an input is {type.text}, which dlc has no type for", code="D0718")


def _kind_of(type: Declared) -> str:
    """What is refused of a type: its element type, where it is a tensor."""
    found = re.fullmatch(r"tensor<(?:[\d?]+x)*(.*)>", type.text)
    return found[1] if found else type.text


def _reached(program: Program) -> Iterator[Node]:
    """The operations of all functions that a call of the main one comes to, each once."""
    left, seen = [program.main], {program.main}
    while left:
        function = program.functions[left.pop()]
        for node in _inside(function.body):
            yield node
            for name in called_by(node):
                if name in program.functions and name not in seen:
                    seen.add(name)
                    left.append(name)


def called_by(node: Node) -> tuple[str, ...]:
    """The functions that an operation calls."""
    if node.attributes.get("name") in special_functions.IMPORTERS:
        return ()
    named = (node.attributes.get("callee"), node.attributes.get("decomposition"))
    return tuple([name for name in named if isinstance(name, str)])


def _inside(region: Region) -> Iterator[Node]:
    for node in region.nodes:
        yield node
        for inner in node.regions:
            yield from _inside(inner)


def _place(program: Program, line: int) -> FileLocation:
    return FileLocation(program.file, line, 1)


class _Import:
    """One import; `shapes` are those of the inputs of the main function."""

    def __init__(self, program: Program, shapes: Sequence[Shape], bounds: Bounds) -> None:
        self._program = program
        self._block = self._top = Block()
        self._module = Module.empty(_place(program, 1))
        self._values: dict[str, Value] = {}
        self._names = Identifiers("w")
        self._arrays: dict[str, Array] = {}
        self._calls: list[str] = []
        self._is_lifted = False
        self._line = 1
        self.shapes = tuple(shapes)
        dims = {name for shape in shapes for size in shape for name in names(size)}
        self.bounds = {name: bounds.get(name, (1, None)) for name in sorted(dims)}
        self.known = Known(self.bounds)
        self.conditions = Conditions(self.known)

    def run(self) -> StableHloModel:
        """Import everything as one function."""
        inputs, labels = self._inputs()
        results = self._applied(self._main.body, self._top.arguments)
        self._function(inputs, results)
        renamed = {
            label: name
            for label, name in zip(labels, inputs, strict=True)
            if label not in ("", name)
        }
        program = self._program
        return StableHloModel(self._module, self._arrays, program.listing, program.nodes, renamed)

    def body(self) -> None:
        """Import the operations alone, for what they say of the dims."""
        self._inputs()
        self._applied(self._main.body, self._top.arguments)

    @property
    def _main(self) -> Function:
        return self._program.functions[self._program.main]

    # Inputs, constants and results.

    def _inputs(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        called = Identifiers("x", taken=("run",))
        labels = labels_of(self._program)
        found: list[str] = []
        for label, type, shape in zip(labels, self._main.body.types, self.shapes, strict=True):
            assert type.dtype is not None
            found.append(called.of(label_of(label)))
            self._top.add_argument(TensorType(type.dtype, shape), found[-1])
        return tuple(found), labels

    def large_constant(self, elements: Array, type: TensorType) -> Value:
        """The elements of a large tensor, as a weight."""
        emit = Builder(self._top, _place(self._program, self._line), self._top.first)
        name = self._names.of("constant")
        source = weight.Source(name, type, name, trained=False, constant=True)
        source.location = emit.location
        self._module.body.append(source)
        self._arrays[name] = elements
        return emit(weight.Get(Symbol(name), type), name)

    def _function(self, inputs: Sequence[str], results: Sequence[Value]) -> None:
        last = _place(self._program, max(1, len(self._program.nodes)))
        Builder(self._block, last).place(func.Return(tuple(results)))
        function = func.Func(self._block, "run", func.signature(self._block, list(results)))
        function.location = _place(self._program, 1)
        called = Identifiers("y", NEVER_NAMES)
        if self.bounds:
            function.attributes["dlc.dims"] = bounds_attribute(dict(self.bounds))
        function.attributes["dlc.inputs"] = tuple(inputs)
        function.attributes["dlc.results"] = tuple(
            [called.of(label_of(label)) for label in self._main.result_labels]
        )
        place = str(function.location.place or "")
        needs = [
            Need(size, "D0804", told, place, equals=equals)
            for size, told, equals in self.conditions.open_needs()
        ]
        if needs:
            function.attributes[NEEDS] = tuple(map(tuple, needs))
        self._module.body.append(function)

    def required(self, condition: Value) -> None:
        """Note what JAX says that every call fulfils."""
        self.conditions.note(condition)

    # Regions and functions.

    def block(self, types: Sequence[Type], body: Body) -> Block:
        """A block with arguments of these types, which hands over what `body` gives for them."""
        outer = self._block, self._is_lifted
        block = self._block = Block(list(types))
        self._is_lifted = False
        try:
            emit = Builder(block, _place(self._program, self._line))
            emit.place(flow.Yield(tuple(body(emit, block.arguments))))
            return block
        finally:
            self._block, self._is_lifted = outer

    def inlined(self, region: Region, values: Sequence[Value], emit: Builder) -> list[Value]:
        """What a region hands over for these values."""
        outer, self._block = self._block, emit.block
        try:
            return self._applied(region, values)
        finally:
            self._block = outer

    def applied(self, region: Region, values: Sequence[Value], emit: Builder) -> list[Value]:
        """What a region on numbers hands over for whole tensors; a constant of it stays a number."""
        was_lifted, self._is_lifted = self._is_lifted, True
        try:
            return self.inlined(region, values, emit)
        finally:
            self._is_lifted = was_lifted

    def outer(self, name: str) -> Value:
        """A value that is known around the operation."""
        return self._values[name]

    def called(self, name: str, values: Sequence[Value], emit: Builder) -> list[Value]:
        """The results of a function of the module."""
        function = self._program.functions.get(name)
        if function is None or name in self._calls:
            why = "calls itself" if function else "is not in the module"
            raise ModelError(f"the function {name} {why}", code="D0521")
        self.conditions.name_dims(function.globals, values)
        outer, self._values = self._values, {}
        self._calls.append(name)
        try:
            return self.inlined(function.body, values, emit)
        finally:
            self._calls.pop()
            self._values = outer

    def function(self, name: str) -> Region:
        """The body of a function of the module."""
        return self._program.functions[name].body

    def _applied(self, region: Region, values: Sequence[Value]) -> list[Value]:
        outer = self._values
        self._values = {**outer, **dict(zip(region.arguments, values, strict=True))}
        try:
            for node in region.nodes:
                self._node(node)
            return [self._values[name] for name in region.results]
        finally:
            self._values = outer

    # Nodes.

    def _node(self, node: Node) -> None:
        self._line = node.line
        emit = Builder(self._block, node_location(self._program.file, node, node.comment))
        context = NodeContext(node, [self._values[name] for name in node.operands], emit, self)
        try:
            made = self._results(context, IMPORTERS[node.kind](context))
        except DlcError as error:
            raise self._located(error, node) from None
        except (ValueError, IndexError, ArithmeticError, AssertionError, TypeError) as error:
            wrong = context.wrong(f"is not understood: {type(error).__name__}: {error}")
            raise self._located(wrong, node) from error
        self._values.update(zip(node.results, made, strict=True))

    def _results(self, context: NodeContext, made: Made) -> list[Value]:
        """The results of an operation, with the sizes that the module gives them."""
        values = [made] if isinstance(made, Value) else list(made)
        if self._is_lifted:
            return values
        pairs = zip(values, context.node.types, strict=True)
        return [self._sized(context, value, wanted) for value, wanted in pairs]

    def _sized(self, context: NodeContext, value: Value, wanted: Declared) -> Value:
        found = tensor_type(value)
        if found.dtype is not wanted.dtype or found.rank != len(wanted.shape):
            raise context.wrong(f"makes {wanted.text} in StableHLO and {found.text} here")
        pairs = zip(found.shape, wanted.shape, strict=True)
        shape = tuple([size if known is None else known for size, known in pairs])
        return value if shape == found.shape else with_sizes(context.emit, value, shape)

    def _located(self, error: DlcError, node: Node) -> DlcError:
        place = _place(self._program, node.line).place
        diagnostics = [
            Diagnostic(problem.code, f"{node.label}: {problem.message}", place, help=problem.help)
            if problem.place is None
            else problem
            for problem in error.diagnostics
        ]
        kind = Unsupported if isinstance(error, Unsupported) else ModelError
        return kind(diagnostics, sources={self._program.file: self._program.listing})


__all__ = ["IMPORTERS", "StableHloModel", "import_program"]
