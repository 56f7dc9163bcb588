"""An imported model as model text, with the weights that it reads."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dlc.dialects import func, weight
from dlc.dialects.array import tensor_type
from dlc.errors import Diagnostic, Unsupported
from dlc.frontend.imports import library_names
from dlc.importers.model_text import elementwise, functions, layers, shapes
from dlc.importers.model_text.blocks import Block, Repetition
from dlc.importers.model_text.body import Body, BodyWriter
from dlc.importers.model_text.expressions import type_text
from dlc.importers.model_text.graph import Graph
from dlc.importers.model_text.names import Names, as_type
from dlc.importers.model_text.spelling import spelled
from dlc.importers.model_text.terms import Term, Weight, values_of
from dlc.importers.onnx import OnnxModel
from dlc.importers.onnx.facts import Node, counted
from dlc.ir.core import Op, Value
from dlc.text.fmt import format_source

SPELLED = (layers, functions, shapes, elementwise)
"""The modules that fill the table of spellings, those that recognise most first."""
ROOM = 90
"""Signs of a statement and its remark in one line."""


@dataclass(frozen=True, slots=True)
class Written:
    """A model text, and the numbers of its weights by their path."""

    text: str
    weights: Mapping[str, Weight]


def write_model(made: OnnxModel, name: str, weight_file: str, docs: str) -> Written:
    """The text of the only function of an imported model.

    `name` is that of the model, `weight_file` that of the file the weights will lie in, beside the text;
    `docs` is said at its head. Raises Unsupported (D0712) with every operator that is not written as text.
    """
    body_of_file = made.module.body
    (function,) = [op for op in body_of_file if isinstance(op, func.Func)]
    origins = {op.sym_name: op.key for op in body_of_file if isinstance(op, weight.Source)}
    graph = Graph(function.body, made.arrays, origins)
    terms = _terms(graph, function, made)
    inputs = function.input_names
    given = dict(zip(function.body.arguments, inputs, strict=True))
    stored = {value: graph.weight(value) for value in _weights(graph, terms, function)}
    sizes = tuple(function.bounds)
    taken = Names([*sizes, *library_names()])
    root = taken.of(as_type(name))
    blocks = Repetition(terms, stored, function.results_returned, taken, sizes).run()
    scope = (*sizes, function.sym_name)
    body = BodyWriter(terms, given, stored, function.results_returned, scope=scope).run()
    modules = [_module(block, stored, sizes) for block in blocks]
    text = _file(function, body, inputs, root, weight_file, docs, modules)
    return Written(format_source(text, f"{name}.dlm"), body.weights)


def _terms(graph: Graph, function: func.Func, made: OnnxModel) -> dict[Value, Term]:
    """The term of every value that results follow from, in the order of the operations."""
    found: dict[Value, Term] = {}
    missing: list[Op] = []
    pending = list(function.results_returned)
    seen = {*pending}
    while pending:
        value = pending.pop()
        if value.op is None or _is_weight(graph, value):
            continue
        term = spelled(graph, value)
        if term is None:
            missing.append(value.op)
        else:
            found[value] = term
        for needed in value.op.operands if term is None else values_of(term):
            if needed not in seen:
                seen.add(needed)
                pending.append(needed)
    if missing:
        raise _unspelled(missing, made)
    order = {result: (k, result.index) for k, op in enumerate(graph.block) for result in op.results}
    return dict(sorted(found.items(), key=lambda pair: order[pair[0]]))


def _is_weight(graph: Graph, value: Value) -> bool:
    """Whether a value is read from the weight file, which numbers are not."""
    return graph.is_stored(value) and graph.number(value) is None


def _weights(graph: Graph, terms: Mapping[Value, Term], function: func.Func) -> Iterable[Value]:
    """The values that are read from the weight file without belonging to a layer."""
    needed = [value for term in terms.values() for value in values_of(term)]
    for value in dict.fromkeys([*needed, *function.results_returned]):
        if value not in terms and value.op is not None:
            yield value


def _unspelled(ops: Iterable[Op], made: OnnxModel) -> Unsupported:
    """The error for operations without a spelling: the nodes that they stand for, by operator."""
    found = [op.location.place for op in ops]
    places = {place.line: place for place in found if place is not None}
    nodes: dict[str, list[Node]] = defaultdict(list)
    for line in sorted(places):
        node = made.nodes[line - 1]
        nodes[node.kind].append(node)
    problems = [
        Diagnostic(
            "D0712",
            f"dlc import does not write {kind} as model text: {counted(alike)}",
            places[alike[0].line],
            help="compile the ONNX file itself: dlc compile and dlc run take it",
        )
        for kind, alike in nodes.items()
    ]
    file = next(iter(places.values())).file
    return Unsupported(problems, sources={file: made.listing})


# The text -----------------------------------------------------------------------------------------


def _file(
    function: func.Func,
    body: Body,
    inputs: Sequence[str],
    root: str,
    weight_file: str,
    docs: str,
    modules: Sequence[str],
) -> str:
    lines = ["dlc 1", *[f"## {line}".rstrip() for line in docs.splitlines()], ""]
    declared = "".join([*modules, *[member.text for member in body.members]])
    imported = sorted({*_USED.findall(declared)} & library_names())
    if imported:
        lines.append(f"import nn ({', '.join(imported)})")
    for name, (low, high) in function.bounds.items():
        lines.append(f"dim {name} = {low}..{'' if high is None else high}")
    source = f' from "{weight_file}"' if body.weights else ""
    lines += ["", *modules, f"module {root}{source} {{"]
    lines += [_line(member.text, member.remark) for member in body.members]
    lines += ["", *_function(function, body, inputs), "}"]
    return "\n".join(lines) + "\n"


def _module(block: Block, stored: Mapping[Value, Weight], sizes: Sequence[str]) -> str:
    """A module for what is repeated."""
    given = {block.source: block.argument}
    scope = (*sizes, *block.parameters)
    body = BodyWriter(block.terms, given, stored, [block.result], block.shapes, scope).run()
    lines = [f"module {block.name}({', '.join(block.parameters)}) {{"]
    lines += [member.text for member in body.members]
    # What is said of one instance is not true of the others.
    statements = [(text, "") for text, _ in body.statements]
    lines += [f"fn call({block.argument}) " + _block(statements, body.results[0]), "}", ""]
    return "\n".join(lines)


def _block(statements: Sequence[tuple[str, str]], result: str) -> str:
    """Statements and a result, or the result alone."""
    if not statements:
        return f"= {result}"
    return "\n".join(
        ["{", *[_line(text, why) for text, why in statements], f"return {result}", "}"]
    )


_USED = re.compile(r"use \w+ = (\w+)\(")


def _function(function: func.Func, body: Body, inputs: Sequence[str]) -> list[str]:
    parameters = [
        f"{name}: {type_text(tensor_type(argument))}"
        for name, argument in zip(inputs, function.body.arguments, strict=True)
    ]
    types = [type_text(tensor_type(value)) for value in function.results_returned]
    results = function.result_names
    fields = ", ".join(f"{name}: {type}" for name, type in zip(results, types, strict=True))
    values = ", ".join(f"{name} = {text}" for name, text in zip(results, body.results, strict=True))
    value = f"({values})" if len(results) > 1 else body.results[0]
    head = f"export fn {function.sym_name}({', '.join(parameters)}) -> ({fields})"
    return [f"{head} {_block(body.statements, value)}"]


def _line(text: str, remark: str) -> str:
    """A statement with a remark, behind it if both fit in a line, else before it."""
    plain = "".join(sign if sign.isprintable() else "?" for sign in remark)
    if not plain:
        return text
    if len(text) + len(plain) <= ROOM:
        return f"{text}  # {plain}"
    return f"# {plain}\n{text}"
