"""An imported model as model text, with the weights that it reads."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from dlc.dialects import func, weight
from dlc.dialects.array import tensor_type
from dlc.dialects.measured import Measuring
from dlc.errors import Diagnostic, Unsupported
from dlc.export.model_text import elementwise, functions, layers, shapes
from dlc.export.model_text.blocks import Block, Blocks
from dlc.export.model_text.body import Body, braced, line, write_body
from dlc.export.model_text.expressions import size, type_text
from dlc.export.model_text.graph import Graph
from dlc.export.model_text.hierarchy import Hierarchy
from dlc.export.model_text.names import Names, as_type
from dlc.export.model_text.regions import Reader, opened
from dlc.export.model_text.repetition import Repetition
from dlc.export.model_text.terms import Term, Weight, values_of
from dlc.frontend.sources.imports import library_names
from dlc.importers.imported import ImportedModel, ImportedNode, ImportedScope, counted
from dlc.ir.core import Op, Value
from dlc.runtime.artifact.manifest import Need
from dlc.text.ir.types import read_size
from dlc.text.model.fmt import format_source

SPELLED = (layers, functions, shapes, elementwise)
"""The modules that fill the table of spellings, those that recognise most first."""


@dataclass(frozen=True, slots=True)
class Written:
    """A model text, and the numbers of its weights by their path."""

    text: str
    weights: Mapping[str, Weight]


def write_model(model: ImportedModel, name: str, weight_file: str, docs: str) -> Written:
    """The text of the only function of an imported model.

    `name` is that of the model, `weight_file` that of the file the weights will lie in, beside the text;
    `docs` is said at its head. Raises Unsupported (D0712) with every operator that is not written as text.
    """
    body_of_file = model.module.body
    (original,) = [op for op in body_of_file if isinstance(op, func.Func)]
    sources = [op for op in body_of_file if isinstance(op, weight.Source)]
    origins = {op.sym_name: op.key for op in sources}
    untrained = {op.sym_name for op in sources if not op.trained}
    for tidied in (True, False):
        function = opened(original, tidied=tidied)
        graph = Graph(function.body, model.arrays, origins, untrained)
        reader = Reader(graph)
        terms = reader.terms(function.body, function.results_returned)
        if not reader.missing:
            break
    else:
        raise _unspelled(reader.missing, model)
    inputs = function.input_names
    names = dict(zip(function.body.arguments, inputs, strict=True))
    stored = {value: graph.weight(value) for value in _weights(graph, terms, function)}
    sizes = tuple(function.bounds)
    taken = Names([*sizes, *library_names()])
    root = taken.of(as_type(name))
    blocks = Blocks(terms, stored, taken, sizes, names)
    results = function.results_returned
    nested = any(node.modules for node in model.nodes)
    if nested:
        Hierarchy(blocks, results, partial(_modules, model)).run()
    else:
        Repetition(blocks, results).run()
    counted = {op.dim_name for op in function.walk() if isinstance(op, Measuring)}
    scope = (*sizes, *counted, function.sym_name)
    body = write_body(terms, names, stored, results, scope=scope, named=nested)
    modules = [_module(block, stored, sizes) for block in blocks.made]
    entry = _function(function, body, counted)
    text = _file(function, body, entry, root, weight_file, docs, modules)
    return Written(format_source(text, f"{name}.dlm"), body.weights)


def _modules(model: ImportedModel, value: Value) -> Sequence[ImportedScope]:
    """The modules that the node of a value was computed in."""
    place = None if value.op is None else value.op.location.place
    return () if place is None else model.nodes[place.line - 1].modules


def _weights(graph: Graph, terms: Mapping[Value, Term], function: func.Func) -> Iterable[Value]:
    """The values that are read from the weight file without belonging to a layer."""
    needed = [value for term in terms.values() for value in values_of(term)]
    for value in dict.fromkeys([*needed, *function.results_returned]):
        if value not in terms and value.op is not None:
            yield value


def _unspelled(ops: Iterable[Op], model: ImportedModel) -> Unsupported:
    """The error for operations without a spelling: the nodes that they stand for, by operator."""
    locations = [op.location.place for op in ops]
    places = {place.line: place for place in locations if place is not None}
    nodes: dict[str, list[ImportedNode]] = defaultdict(list)
    for number in sorted(places):
        node = model.nodes[number - 1]
        nodes[node.kind].append(node)
    problems = [
        Diagnostic(
            "D0712",
            f"dlc import does not write {kind} as model text: {counted(alike)}",
            places[alike[0].line],
            help="compile the file itself: dlc compile and dlc run take it",
        )
        for kind, alike in nodes.items()
    ]
    file = next(iter(places.values())).file
    return Unsupported(problems, sources={file: model.listing})


# The text -----------------------------------------------------------------------------------------


def _file(
    function: func.Func,
    body: Body,
    entry: str,
    root: str,
    weight_file: str,
    docs: str,
    modules: Sequence[str],
) -> str:
    lines = ["dlc 1", *[f"## {said}".rstrip() for said in docs.splitlines()], ""]
    declared = "".join([*modules, *[member.text for member in body.members]])
    imported = sorted({*_USED.findall(declared)} & library_names())
    if imported:
        lines.append(f"import nn ({', '.join(imported)})")
    for name, (low, high) in function.bounds.items():
        lines.append(f"dim {name} = {low}..{'' if high is None else high}")
    source = f' from "{weight_file}"' if body.weights else ""
    lines += ["", *modules, f"module {root}{source} {{"]
    lines += [line(member.text, member.remark) for member in body.members]
    lines += ["", entry, "}"]
    return "\n".join(lines) + "\n"


def _module(block: Block, stored: Mapping[Value, Weight], sizes: Sequence[str]) -> str:
    """A module for what is repeated."""
    scope = (*sizes, *block.parameters)
    body = write_body(
        block.terms,
        block.arguments,
        stored,
        [block.result],
        block.shapes,
        scope,
        named=block.named,
    )
    lines = [f"module {block.name}({', '.join(block.parameters)}) {{"]
    lines += [member.text for member in body.members]
    arguments = ", ".join(block.arguments.values())
    lines += [f"fn call({arguments}) {_block(body.statements, body.results[0])}", "}", ""]
    return "\n".join(lines)


def _block(statements: Sequence[str], result: str) -> str:
    """Statements and a result, or the result alone."""
    return braced([*statements, f"return {result}"]) if statements else f"= {result}"


_USED = re.compile(r"\b([A-Z]\w*)\(")


def _function(function: func.Func, body: Body, counted: Collection[str]) -> str:
    """The entry point; `counted` are the sizes that no caller knows."""
    parameters = [
        f"{name}: {type_text(tensor_type(argument))}"
        for name, argument in zip(function.input_names, function.body.arguments, strict=True)
    ]
    types = [type_text(tensor_type(value), counted) for value in function.results_returned]
    results = function.result_names
    fields = ", ".join(f"{name}: {type}" for name, type in zip(results, types, strict=True))
    values = ", ".join(f"{name} = {text}" for name, text in zip(results, body.results, strict=True))
    value = f"({values})" if len(results) > 1 else body.results[0]
    required = [_required(need) for need in function.call_needs]
    head = f"export fn {function.sym_name}({', '.join(parameters)}) -> ({fields})"
    return f"{head} {_block([*required, *body.statements], value)}"


def _required(need: Need) -> str:
    """A condition of each call as a statement."""
    left, right = size(read_size(need.size)).text, "0"
    if need.equals:
        right = size(read_size(need.equals)).text
    return f'require {left} {"==" if need.equals else ">="} {right}, "{need.told}"'
