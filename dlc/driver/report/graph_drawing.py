"""The graph of entry points as a picture: operations as boxes, values with their types on the edges.

Modules are frames around their operations, and loops and branches around those of their bodies. Constants,
weights, and what is computed from these alone, are small print in the boxes that need them, and reshapes
are part of the edges; so the picture shows the way of the data and not a beard of parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from dlc.dialects import array, flow, func, kernel, nn, scalar, weight
from dlc.driver.drawing.layered_layout import Edge
from dlc.driver.drawing.svg import Box, Graph, Line, page
from dlc.driver.report.module_groups import Group, grouped
from dlc.driver.report.module_paths import Path, common, components, module_paths, trained
from dlc.driver.report.sections import sections
from dlc.errors import UsageError
from dlc.ir.attributes import Dense, decode
from dlc.ir.core import Block, Op, Value
from dlc.ir.define import fields_of
from dlc.ir.dims import Size
from dlc.ir.types import INDEX, TensorType

MAX_NODES = 3000
SUMMARY = 5
"""The most operations of a region that its box names."""
NAMED = 2
"""The most weights that small print names."""
LONGEST = 7
"""Letters of a computed size that is still written out."""
REGIONS = {
    "flow.if": ("then", "else"),
    "flow.while": ("condition", "body"),
}
"""What the regions of an operation with several are called."""


def draw(functions: Sequence[func.Func], layers: Mapping[str, str] = MappingProxyType({})) -> str:
    """An SVG picture of functions, one above the other; `layers` has the classes of modules by path.

    The bodies of loops and branches are drawn; an operation with other regions is one box, which names
    what is in them. Raises UsageError (D0916) for functions that are too large to be seen.
    """
    for function in functions:
        count = sum(1 for _ in drawn_ops(function.body))
        if count > MAX_NODES:
            raise UsageError(
                f"{function.sym_name} has {count} operations, too many for a picture",
                code="D0916",
                help="--html draws a page whose modules open and close, --stage graph prints it",
            )
    types = {components(path): type for path, type in layers.items()}
    return page([(f.sym_name, graph_of(f, module_paths(f, layers), types)) for f in functions])


def drawn_ops(block: Block) -> Iterator[Op]:
    """The operations of a block, and of the bodies of its loops and branches."""
    for op in block:
        yield op
        if has_drawn_body(op):
            for region in op.regions:
                yield from drawn_ops(region)


def has_drawn_body(op: Op) -> bool:
    """Whether the regions of an operation are part of the graph."""
    return op.name.startswith("flow.")


def graph_of(
    function: func.Func,
    paths: Mapping[Op, Path] = MappingProxyType({}),
    types: Mapping[Path, str] = MappingProxyType({}),
    key: Callable[[Op], str] = lambda op: "",
) -> Graph:
    """The boxes and edges of a function, in frames for the modules of `paths`.

    `types` says what class a module is of; `key` gives the key of an operation's box.
    """
    scope = _Scope(_Reader(paths, types, key))
    weights = trained(function, [".".join(path) for path in types])
    for name, argument in weights.items():
        scope.reader.parameters[argument] = Line("weight", f"{name}: {_type(argument)}")
    for name, argument in zip(function.input_names, function.body.arguments, strict=True):
        if argument in scope.reader.parameters:
            continue
        scope.add(Box("input", name, notes=(_type(argument),)), (), (argument,))
    scope.fill(function.body)
    for name, value in _results(function):
        scope.add(Box("result", name, ports=1), (value,), ())
    return scope.graph


@dataclass(slots=True)
class _Reader:
    """What is known of the values of a function.

    `parameters` has those that depend on weights and constants alone, as small print; `same` leads from
    the result of a reshape to its operand.
    """

    paths: Mapping[Op, Path]
    types: Mapping[Path, str]
    key: Callable[[Op], str]
    parameters: dict[Value, Line] = field(default_factory=dict[Value, Line])
    same: dict[Value, Value] = field(default_factory=dict[Value, Value])

    def read(self, op: Op) -> bool:
        """Whether an operation is drawn, and not a parameter or a part of an edge."""
        if op.terminator:
            return False
        kind = _kind(op)
        if kind == "weight":
            self.parameters[op.result] = Line(kind, f"{_label(op)}: {_type(op.result)}")
        elif kind == "constant":
            self.parameters[op.result] = Line(kind, _label(op))
        elif self._depends_on_parameters(op):
            line = self._derived(op)
            self.parameters.update((result, line) for result in op.results)
        elif isinstance(op, array.Reshape | array.Broadcast):
            self.same[op.result] = self.origin(op.operands[0])
        else:
            return True
        return False

    def _derived(self, op: Op) -> Line:
        """The small print of what is computed from parameters: the weights among them."""
        lines = [self.parameters[value] for value in op.operands]
        texts = [line.text for line in lines if line.kind == "weight"]
        if not texts:
            return Line("constant", _label(op))
        names = list(dict.fromkeys(name for text in texts for name in _weights_in(text)))
        more = ["…"] if len(names) > NAMED else []
        return Line("weight", f"from {', '.join(names[:NAMED] + more)}")

    def _depends_on_parameters(self, op: Op) -> bool:
        if not op.operands or op.regions:
            return False
        return all(value in self.parameters for value in op.operands)

    def origin(self, value: Value) -> Value:
        """The value whose numbers it has."""
        return self.same.get(value, value)


def _weights_in(text: str) -> list[str]:
    """The names in the small print of a weight, or of what is computed from some.

    >>> _weights_in("w: f32[3, 4]"), _weights_in("from w, net.b")
    (['w'], ['w', 'net.b'])
    """
    several = text.removeprefix("from ")
    return several.split(", ") if several != text else [text.partition(":")[0]]


@dataclass(slots=True)
class _Scope:
    """A graph so far, and where each value leaves in it: the number of the box, and of its result."""

    reader: _Reader
    depth: int = 0
    graph: Graph = field(default_factory=Graph)
    sources: dict[Value, tuple[int, int]] = field(default_factory=dict[Value, tuple[int, int]])

    def add(self, box: Box, inputs: Sequence[Value], results: Sequence[Value]) -> None:
        """Add a box with edges from what it reads."""
        found = [self.source(value) for value in inputs]
        number = self.graph.add(box)
        for port, (source, result) in enumerate(found):
            self.graph.edges.append(Edge(source, number, port, result))
        self.sources.update((value, (number, index)) for index, value in enumerate(results))

    def source(self, value: Value) -> tuple[int, int]:
        """Where a value leaves; a parameter that something else than small print needs gets a box."""
        value = self.reader.origin(value)
        if value not in self.sources:
            line = self.reader.parameters[value]
            self.add(Box(line.kind, line.text, notes=(_type(value),)), (), (value,))
        return self.sources[value]

    def fill(self, block: Block) -> None:
        """Draw the operations of a block."""
        reader = self.reader
        drawn = [op for op in block if reader.read(op)]
        paths = reader.paths
        self.depth = max(self.depth, len(common(paths.get(op, ()) for op in drawn)))
        if all(len(paths.get(op, ())) <= self.depth for op in drawn):
            around = common(paths.get(op, ()) for op in drawn)
            found = sections(drawn, reader.origin)
            paths = {op: (*around, *found.get(op, ())) for op in drawn}
        self.fill_in(grouped(drawn, paths, reader.origin, self.depth))

    def fill_in(self, items: Sequence[Op | Group]) -> None:
        for item in items:
            if isinstance(item, Group):
                self._add_group(item)
            elif has_drawn_body(item):
                self._add_body(item)
            else:
                _add_op(self, item)

    def _add_group(self, group: Group) -> None:
        """A frame around the operations of a module."""
        ops = set(group.ops)
        reader = self.reader
        read = [reader.origin(value) for op in group.ops for value in op.operands]
        inputs = [
            value
            for value in dict.fromkeys(read)
            if value.op not in ops and value not in reader.parameters
        ]
        outputs = [value for op in group.ops for value in op.results if self._is_needed(value, ops)]
        name = Box("name", group.title(self.depth), self._type(group))
        inner = self._entered(name, inputs, len(group.path))
        inner.fill_in(group.items)
        for value in outputs:
            inner.add(Box("leave", "", ports=1), (value,), ())
        notes = tuple(_note(value) for value in outputs)
        box = Box(
            "group", group.title(self.depth), self._type(group), notes, len(inputs), inner.graph
        )
        self.add(box, inputs, outputs)

    def _is_needed(self, value: Value, ops: Collection[Op]) -> bool:
        """Whether something outside reads a value or what is the same."""
        for user in value.uses:
            if user in ops:
                continue
            same = [result for result in user.results if result in self.reader.same]
            if not same or any(self._is_needed(result, ops) for result in same):
                return True
        return False

    def _add_body(self, op: Op) -> None:
        """A frame around the bodies of a loop or of a branch."""
        reader = self.reader
        inputs = [value for value in op.operands if value not in reader.parameters]
        lines = tuple(Line("op", text) for text in [_length(op)] if text)
        name = Box("name", _label(op), lines)
        inner = self._entered(name, inputs, self.depth)
        if len(op.regions) == 1:
            inner.fill_region(op, op.regions[0])
            for value in op.regions[0].terminator.operands:
                inner.add(Box("leave", "", ports=1), (value,), ())
        else:
            inner.add_choices(op)
        notes = tuple(_note(value) for value in op.results)
        box = Box("group", name.title, lines, notes, len(inputs), inner.graph, reader.key(op))
        self.add(box, inputs, op.results)

    def fill_region(self, op: Op, region: Block) -> None:
        """Draw a region, of which the values that enter it have their sources.

        Its last arguments are the last operands; before them may stand the index of a loop.
        """
        reader = self.reader
        counters = len(region.arguments) - len(op.operands)
        for argument in region.arguments:
            operand = op.operands[argument.index - counters] if argument.index >= counters else None
            if not argument.uses:
                continue
            if operand is None:
                self.add(Box("input", argument.name or "index"), (), (argument,))
            elif operand in reader.parameters:
                reader.parameters[argument] = reader.parameters[operand]
            elif argument.name:
                box = Box("input", argument.name, notes=(_type(argument),), ports=1)
                self.add(box, (operand,), (argument,))
            else:
                self.sources[argument] = self.source(operand)
        self.fill(region)

    def add_choices(self, op: Op) -> None:
        """Draw several regions side by side; a result comes from each of those that give it."""
        reader, sources = self.reader, list[tuple[int, int]]()
        for name, region in zip(REGIONS[op.name], op.regions, strict=True):
            used = list(op.operands[len(op.operands) - len(region.arguments) :])
            inputs = [
                value
                for value, argument in zip(used, region.arguments, strict=True)
                if argument.uses and value not in reader.parameters
            ]
            inner = self._entered(Box("name", name), inputs, self.depth)
            inner.fill_region(op, region)
            yielded = region.terminator.operands
            for value in yielded:
                inner.add(Box("leave", "", ports=1), (value,), ())
            notes = tuple(_type(value) for value in yielded)
            box = Box("group", name, (), notes, len(inputs), inner.graph)
            self.add(box, inputs, ())
            sources.append((len(self.graph.boxes) - 1, len(yielded)))
        for number in range(len(op.results)):
            giving = [box for box, count in sources if count == len(op.results)]
            leave = self.graph.add(Box("leave", "", ports=len(giving)))
            self.graph.edges += [Edge(box, leave, k, number) for k, box in enumerate(giving)]

    def _entered(self, name: Box, inputs: Sequence[Value], depth: int) -> _Scope:
        """The inside of a frame that these values enter."""
        inner = _Scope(self.reader, depth)
        inner.graph.add(name)
        for value in inputs:
            value = self.reader.origin(value)
            inner.add(Box("enter", ""), (), (value,))
        return inner

    def _type(self, group: Group) -> tuple[Line, ...]:
        """The module's class with its parameters, where it is known."""
        text = self.reader.types.get(group.path, "")
        return (Line("op", text),) if text else ()


def _length(op: Op) -> str:
    """How often the body of a loop runs, where that is known."""
    return f"{op.length} times" if isinstance(op, flow.Scan) else ""


def _results(function: func.Func) -> Iterator[tuple[str, Value]]:
    """The results as the command line calls them, then what is written over arguments, by their names.

    A single result without name has that of its function. Sizes that the call measures are left out.
    """
    values, hidden = function.results_returned, function.hidden_results
    seen = len(values) - hidden
    nameless = [function.sym_name] if seen == 1 else [f"result {k}" for k in range(seen)]
    names = function.result_names or nameless
    shown = zip(names, nameless, values[:seen], strict=True)
    yield from [(name or other, value) for name, other, value in shown]
    for result, argument in function.updates.items():
        if result >= seen:
            yield function.input_names[argument], values[result]


def _add_op(scope: _Scope, op: Op) -> None:
    reader = scope.reader
    inputs = [value for value in op.operands if value not in reader.parameters]
    module = " ".join(reader.paths.get(op, ())[scope.depth :])
    texts = [module, _axes(op), *_reshapes(reader, op), _summary(op)]
    lines = tuple(Line("op", text) for text in texts if text)
    around = "".join(f"{part}." for part in reader.paths.get(op, ())[: scope.depth])
    lines += tuple(
        _line(op, position, reader.parameters[value], around)
        for position, value in enumerate(op.operands)
        if value in reader.parameters
    )
    notes = tuple([_note(result) for result in op.results])
    box = Box("op", _label(op), lines, notes, len(inputs), None, reader.key(op))
    scope.add(box, inputs, op.results)


def _reshapes(reader: _Reader, op: Op) -> Iterator[str]:
    """The shapes in which it reads what was reshaped on the way."""
    for value in op.operands:
        if value in reader.same and isinstance(value.op, array.Reshape):
            yield f"as {_type(value)}"


def _kind(op: Op) -> str:
    match op:
        case weight.Get():
            return "weight"
        case array.Constant() | array.Fill():
            return "constant"
        case _:
            return "op"


def _label(op: Op) -> str:
    match op:
        case weight.Get(symbol=symbol):
            return re.sub(r"(\.derived\d+)+$", "", symbol.name)
        case array.Fill(value=value):
            return f"{value:g}" if isinstance(value, float) else str(value)
        case array.Constant(value=dense):
            small = dense.array.size <= 4
            return _numbers(dense) if small else f"constant {_type(op.result)}"
        case array.Compare(predicate=predicate):
            return f"compare {predicate}"
        case _:
            return op.name.removeprefix("array.").removeprefix("flow.")


def _numbers(dense: Dense) -> str:
    """A few numbers, as short as they can be told apart."""
    return np.array2string(decode(dense.array, dense.type.dtype), separator=", ", precision=6)


def _line(op: Op, position: int, line: Line, around: str) -> Line:
    """A parameter: a constant with the name of the operand where places matter, a weight without what its
    name has in common with the frame around.
    """
    if line.kind == "weight":
        return Line(line.kind, line.text.removeprefix(around))
    names = [field.name for field in fields_of(type(op)) if field.kind == "operand"]
    says_more = position < len(names) > 1 and not op.commutative
    if line.kind == "constant" and says_more:
        name = names[position]
        choice = {"yes": "if so,", "no": "else"} if isinstance(op, array.Select) else {}
        return Line(line.kind, f"{choice.get(name, name)} {line.text}")
    return line


def _axes(op: Op) -> str:
    """Along which axes an operation that makes one of many does so."""
    match op:
        case array.Reduction(axes=axes):
            return f"axes {', '.join(map(str, axes))}"
        case array.ArgMax(axis=axis) | array.ArgMin(axis=axis) | nn.Softmax(axis=axis):
            return f"axis {axis}"
        case _:
            return ""


def _summary(op: Op) -> str:
    """A summary of the regions of an operation: the names of their first operations."""
    names = list(dict.fromkeys(_inner(op)))
    more = f" and {len(names) - SUMMARY} more" if len(names) > SUMMARY else ""
    return " · ".join(names[:SUMMARY]) + more


def _inner(op: Op) -> Iterator[str]:
    """The operations of the regions, without those that only compute indices."""
    for block in op.regions:
        for outer in block:
            for inner in outer.walk():
                match inner:
                    case kernel.Reduce(combine=combine):
                        yield f"fold {combine}"
                    case kernel.Load() | scalar.Constant() | array.Constant() | array.Fill():
                        pass
                    case _ if inner.results and inner.results[0].type is not INDEX:
                        yield inner.name.rpartition(".")[2]
                    case _:
                        pass


def _note(value: Value) -> str:
    """The type of a value, after its name in the text where it has one."""
    name = (value.name or "").rpartition(".")[2]
    named = name and "/" not in name and value.op is not None
    return f"{name}: {_type(value)}" if named else _type(value)


def _type(value: Value) -> str:
    """A type whose computed sizes are left out: `f32[B, 64, …, …]`."""
    match value.type:
        case TensorType(dtype, shape):
            return f"{dtype.name}[{', '.join(map(_size, shape))}]"
        case _:
            return array.show(value)


def _size(size: Size) -> str:
    text = str(size)
    return text if len(text) <= LONGEST or text.isidentifier() else "…"
