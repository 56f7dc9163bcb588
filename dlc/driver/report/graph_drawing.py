"""The graph of entry points as a picture: operations as boxes, values with their types on the edges.

Constants, and weights that one operation alone uses, are small print in its box; so the picture shows
the way of the data and not a beard of parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from dlc.dialects import array, func, kernel, nn, scalar, weight
from dlc.driver.layered_layout import Edge
from dlc.driver.svg import Box, Graph, Line, page
from dlc.errors import UsageError
from dlc.ir.attributes import Dense, decode
from dlc.ir.core import Op, Value
from dlc.ir.define import fields_of
from dlc.ir.types import INDEX

MAX_NODES = 3000
SUMMARY = 5
"""The most operations of a region that its box names."""


def draw(functions: Sequence[func.Func]) -> str:
    """An SVG picture of functions, one above the other.

    Regions are not drawn: an operation that has some is one box, which names what is in them. Raises
    UsageError (D0916) for functions that are too large to be seen.
    """
    for function in functions:
        count = len(function.body)
        if count > MAX_NODES:
            raise UsageError(
                f"{function.sym_name} has {count} operations, too many for a picture",
                code="D0916",
                help="--stage graph without --svg prints it",
            )
    return page([(function.sym_name, graph_of(function)) for function in functions])


@dataclass(slots=True)
class _Drawing:
    """The graph so far, and where each value leaves: the number of the box, and of its result."""

    graph: Graph = field(default_factory=Graph)
    sources: dict[Value, tuple[int, int]] = field(default_factory=dict[Value, tuple[int, int]])

    def add(self, box: Box, inputs: Sequence[Value], results: Sequence[Value]) -> None:
        number = self.graph.add(box)
        for port, value in enumerate(inputs):
            source, result = self.sources[value]
            self.graph.edges.append(Edge(source, number, port, result))
        self.sources.update((value, (number, index)) for index, value in enumerate(results))


def graph_of(function: func.Func) -> Graph:
    """The boxes and edges of a function."""
    drawing = _Drawing()
    for name, argument in zip(function.input_names, function.body.arguments, strict=True):
        drawing.add(Box("input", name, notes=(array.show(argument),)), (), (argument,))
    for op in function.body:
        if not op.terminator and not _is_small_print(op):
            _add_op(drawing, op)
    for name, value in zip(_result_names(function), function.results_returned, strict=True):
        drawing.add(Box("result", name, ports=1), (value,), ())
    return drawing.graph


def _result_names(function: func.Func) -> Sequence[str]:
    """As the command line calls them: a single result without name has that of its function."""
    count = len(function.results_returned)
    nameless = [function.sym_name] if count == 1 else [f"result {k}" for k in range(count)]
    names = function.result_names or nameless
    return [name or other for name, other in zip(names, nameless, strict=True)]


def _add_op(drawing: _Drawing, op: Op) -> None:
    printed = {value for value in op.operands if value.op and _is_printed_by(op, value.op)}
    inputs = [value for value in op.operands if value not in printed]
    summary = _summary(op)
    lines = tuple(Line("op", text) for text in (_axes(op), summary) if text)
    lines += tuple(
        _line(op, position, value) for position, value in enumerate(op.operands) if value in printed
    )
    kind = _kind(op)
    notes = tuple([_note(result, kind) for result in op.results])
    drawing.add(Box(kind, _label(op), lines, notes, len(inputs)), inputs, op.results)


def _is_small_print(op: Op) -> bool:
    """Whether it needs no box of its own, because all its users print it in theirs."""
    users = [user for result in op.results for user in result.uses]
    return bool(users) and all(_is_printed_by(user, op) for user in users)


def _is_printed_by(user: Op, op: Op) -> bool:
    if user.terminator:
        return False
    kind = _kind(op)
    return kind == "constant" or (kind == "weight" and len(op.result.uses) == 1)


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
            return symbol.name
        case array.Fill(value=value):
            return f"{value:g}" if isinstance(value, float) else str(value)
        case array.Constant(value=dense):
            small = dense.array.size <= 4
            return _numbers(dense) if small else f"constant {array.show(op.result)}"
        case array.Compare(predicate=predicate):
            return f"compare {predicate}"
        case _:
            return op.name.removeprefix("array.")


def _numbers(dense: Dense) -> str:
    """A few numbers, as short as they can be told apart."""
    return np.array2string(decode(dense.array, dense.type.dtype), separator=", ", precision=6)


def _line(op: Op, position: int, value: Value) -> Line:
    """A constant, with the name of the operand where places matter; a weight with its type."""
    assert value.op is not None
    kind, label = _kind(value.op), _label(value.op)
    if kind == "weight":
        return Line(kind, f"{label}: {array.show(value)}")
    names = [field.name for field in fields_of(type(op)) if field.kind == "operand"]
    says_more = position < len(names) > 1 and not op.commutative
    return Line(kind, f"{names[position]} {label}" if says_more else label)


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


def _note(value: Value, kind: str) -> str:
    named = value.name and kind == "op"
    return f"{value.name}: {array.show(value)}" if named else array.show(value)
