"""A model brought down to loops, with every value of its graph followed to the kernel that computes it.

The answers of `dlc why MODEL QUESTION` are read from here: the value map says in which kernel a value is
computed and in which memory it lies, the decision log what passes did with it and refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from dlc.dialects import array, func, mem
from dlc.driver.compile.compile import lower
from dlc.driver.compile.entries import find_entry, interfaces, keep_entry, settle_interfaces
from dlc.driver.compile.settings import Settings
from dlc.driver.run.tracking import track_all, track_named
from dlc.driver.run.watch import renamed_values
from dlc.driver.source.source_model import SourceModel
from dlc.errors import UsageError
from dlc.errors.suggest import did_you_mean
from dlc.ir.core import Block, Op, Value
from dlc.ir.log import Decision
from dlc.ir.types import TensorType
from dlc.ir.value_map import Origin, ValueMap

State: TypeAlias = Literal["kernel", "view", "weight", "constant", "control", "input", "dropped"]
"""What became of a value: a kernel computes it; it is the memory of another value; it is computed when
weights are loaded; it is a constant; a loop or a branch gives it; it is passed; nothing is left of it."""

UNBOUNDED = 64
"""The size at which work is told where a size has no upper bound."""
LOADED = "computed when weights are loaded"


@dataclass(frozen=True, slots=True)
class Node:
    """A value of the graph: what computes it, from what, and where it is in the text."""

    name: str
    op: str
    place: str
    type: TensorType
    operands: tuple[str, ...] = ()
    has_regions: bool = False
    block: int = 0
    """The number of the block that it is in: 0 for the entry point, others for bodies of loops."""
    axes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Heard:
    """A decision about values of the graph; `beside` are those of the other kernel, if it was about two."""

    decision: Decision
    names: frozenset[str]
    beside: frozenset[str]


@dataclass(slots=True)
class Traced:
    """An entry point with what became of each value of its graph."""

    entry: str
    settings: Settings
    nodes: dict[str, Node]
    program: mem.Program
    heard: list[Heard]
    origins: Mapping[str, Origin]
    calls: list[mem.Call] = field(default_factory=list[mem.Call])
    waves: list[int] = field(default_factory=list[int])
    """The wave of each call."""
    kernels: dict[str, set[int]] = field(default_factory=dict[str, set[int]])
    """The numbers of the calls that compute each value."""
    stored: dict[str, Value] = field(default_factory=dict[str, Value])
    """The view of each value that is in memory as it is."""

    def node(self, name: str) -> Node:
        """The value of this name, or the last on a line: `h`, `7` or `mlp.dlm:7`.

        Raises UsageError (D0911) where there is none.
        """
        if name in self.nodes:
            return self.nodes[name]
        on_line = [node for node in self.nodes.values() if _is_on(node.place, name)]
        if on_line:
            return on_line[-1]
        raise UsageError(
            f"{self.entry} has no value {name}",
            code="D0911",
            help=did_you_mean(name, self.nodes)
            or "name a value of the text, or its line, such as mlp.dlm:7",
        )

    def state(self, name: str) -> State:
        """What became of a value."""
        node, origin = self.nodes[name], self.origins[name]
        if node.has_regions:
            return "control"
        if self.kernels.get(name):
            return "kernel"
        op = origin.value.op if origin.value is not None else None
        if (origin.gone is not None and origin.gone.why == LOADED) or node.op == "weight.get":
            return "weight"
        if isinstance(op, mem.Constant) or node.op in (
            "array.constant",
            "array.fill",
            "array.iota",
        ):
            return "constant"
        if isinstance(op, mem.View):
            return "input" if node.op == "argument" else "view"
        return "input" if node.op == "argument" else "dropped"

    @property
    def largest_sizes(self) -> dict[str, int]:
        """The upper bound of each named size, or `UNBOUNDED` where it has none."""
        bounds = self.program.bounds.items()
        return {name: max(low, UNBOUNDED) if high is None else high for name, (low, high) in bounds}

    def together(self, numbers: set[int]) -> list[str]:
        """The values that the calls of these numbers compute, in the order of the graph."""
        return [name for name in self.nodes if self.kernels.get(name, set()) & numbers]

    def same_memory(self, name: str) -> list[str]:
        """The values that kernels write to the memory that a value lies in."""
        view = self.stored.get(name)
        root = view.op.root if view is not None and isinstance(view.op, mem.View) else None
        if root is None:
            return []
        return [
            other
            for other, its in self.stored.items()
            if isinstance(its.op, mem.View) and its.op.root is root and self.kernels.get(other)
        ]

    def about(self, name: str, *passes: str) -> list[Decision]:
        """What these passes decided about a value."""
        return [
            each.decision
            for each in self.heard
            if name in each.names and each.decision.pass_name in passes
        ]

    def neighbours(self) -> Iterator[tuple[str, str]]:
        """Each value that is computed, with each value that is computed from it directly."""
        for node in self.nodes.values():
            for operand in dict.fromkeys(node.operands):
                if self.nodes[operand].op != "argument":
                    yield operand, node.name


def _is_on(place: str, name: str) -> bool:
    """Whether a place `file:line:column` is on a line that is given with its file or without."""
    file, _, line = place.rpartition(":")[0].rpartition(":")
    return name in (line, f"{file}:{line}", f"{file.rpartition('/')[2]}:{line}")


def _names_of(subject: Op | Value | None, values: ValueMap) -> frozenset[str]:
    """The names of the user's values that a value, or the results of an operation, now stand for."""
    results = (
        [subject] if isinstance(subject, Value) else [] if subject is None else subject.results
    )
    return frozenset(
        origin.name
        for value in results
        for origin in (*values.origins_of(value), *values.inside(value))
    )


def trace(model: SourceModel, settings: Settings, entry: str) -> Traced:
    """Bring a model down to loops and follow the values of one of its entry points."""
    with model.quoting():
        settle_interfaces(model.module)
    if model.training is None:
        keep_entry(model.module, entry)
    values, function = model.context.values, find_entry(model.module, entry)
    if not isinstance(function, func.Func) or model.stage != "graph":
        raise UsageError(
            f"{model.name} is at {model.stage} level, where nothing is left to decide about its graph",
            code="D0905",
            help="ask about the text of the model, or its graph",
        )
    renamed = renamed_values(function, model.texts.values())
    track_named(values, function, renamed)
    of_text = _nodes(model, function)
    heard: list[Heard] = []

    def hear(decision: Decision, subject: Op | Value, beside: Op | None) -> None:
        heard.append(Heard(decision, _names_of(subject, values), _names_of(beside, values)))

    lower(model, settings, "graph")
    function = find_entry(model.module, entry)
    assert isinstance(function, func.Func)
    track_all(values, function, renamed)
    nodes = _nodes(model, function)
    # What simplifying the graph has left nothing of is still asked about.
    nodes |= {name: _alone(node) for name, node in of_text.items() if name not in nodes}
    model.context.log.listener = hear
    lower(model, settings, "loop")
    program = find_entry(model.module, entry)
    assert isinstance(program, mem.Program)
    found = Traced(entry, settings, nodes, program, heard, values.of(entry))
    _follow(found, model)
    return found


def entries_of(model: SourceModel) -> list[str]:
    """The entry points of a model, in its order."""
    return [each.name for each in interfaces(model.module)]


def _alone(node: Node) -> Node:
    """A value of which nothing is left, so that it has no neighbours."""
    return replace(node, operands=())


def _nodes(model: SourceModel, function: func.Func) -> dict[str, Node]:
    """The values of a graph by name: arguments, and results of operations."""
    values = model.context.values
    found: dict[str, Node] = {}
    blocks = {function.body: 0}
    named: dict[Value, str] = {}

    def add_arguments(block: Block, op: str) -> None:
        for argument in block.arguments:
            for origin in values.origins_of(argument):
                named[argument] = origin.name
                place, number = origin.place, blocks[block]
                found[origin.name] = Node(origin.name, op, place, origin.type, block=number)

    add_arguments(function.body, "argument")
    for op in function.walk(formulas=False):
        for region in op.regions:
            blocks.setdefault(region, len(blocks))
            add_arguments(region, op.name)
        place = str(op.location.place or "")
        for result in op.results:
            origins = values.origins_of(result)
            type = result.type
            if not origins or not isinstance(type, TensorType):
                continue
            named[result] = origins[0].name
            assert op.parent is not None
            for origin in origins:
                found[origin.name] = Node(
                    origin.name,
                    op.name,
                    place,
                    type,
                    tuple([named[value] for value in op.operands if value in named]),
                    bool(op.regions),
                    blocks.get(op.parent, 0),
                    op.axes if isinstance(op, array.Transpose) else (),
                )
    return found


def _follow(found: Traced, model: SourceModel) -> None:
    """Find the call that computes each value, and its memory."""
    values = model.context.values
    wave = -1
    for op in found.program.walk():
        if isinstance(op, mem.Wave):
            wave += 1
        if isinstance(op, mem.Call):
            number = len(found.calls)
            found.calls.append(op)
            found.waves.append(wave)
            for view in op.views[len(op.views) - op.writes :]:
                for origin in (*values.origins_of(view), *values.inside(view)):
                    found.kernels.setdefault(origin.name, set()).add(number)
    for origin in values:
        value = origin.value
        if value is not None and isinstance(value.op, mem.View | mem.Constant | mem.Weight):
            found.stored[origin.name] = value
