"""Operators that ONNX defines by others, and functions of a file's own, as what they are made of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

from dlc.errors import Unsupported
from dlc.importers.onnx.facts import Operator

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto

DOMAINS = ("", "ai.onnx")
OWN_DOMAIN = "dlc.definition"
"""The domain of functions that stand for nodes of operators which ONNX defines."""
ROUNDS = 8
"""The deepest nesting of functions that define operators."""
MAX_NODES = 1 << 15
MAX_BYTES = 1 << 28
MAX_CALLS = 100
"""Functions of a file's own that are more, or call each other deeper, are not written out: each that calls
another twice doubles them.
"""


_Name: TypeAlias = tuple[str, str, str]
"""Domain, name and overload of a function."""


class _Default(Protocol):
    default_value: AttributeProto


class _Schema(Protocol):
    has_function: bool
    has_context_dependent_function: bool
    context_dependent_function_opset_versions: Sequence[int]
    attributes: Mapping[str, _Default]

    def get_context_dependent_function_with_opset_version(
        self, opset_version: int, bytes: bytes, input_types_bytes: list[bytes]
    ) -> bytes: ...


def expanded(model: ModelProto, importable: Collection[Operator], file: str) -> ModelProto:
    """The model without functions of its own, and without operators that are not `importable` if they have
    a definition that ONNX can write out. The model itself where there are none.

    Raises Unsupported for functions that call themselves, or that would be more than MAX_NODES nodes.
    """
    if model.functions:
        model = _without_functions(model, file)
    for _ in range(ROUNDS):
        names = _to_expand(model, importable)
        if not names:
            break
        inlined = _inlined(model, names)
        if inlined is None:
            break
        model = inlined
    return model


# Functions of a file's own ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Extent:
    """Inline a call of a function, with all that it calls."""

    nodes: int
    bytes: int
    depth: int


def _without_functions(model: ModelProto, file: str) -> ModelProto:
    """The model with its functions written out where they are called."""
    from onnx import checker, inliner

    whole = _extent(model.graph.node, _extents(model.functions, file))
    if whole.nodes > MAX_NODES or whole.bytes > MAX_BYTES:
        raise _refused(file, f"its functions, written out, are more than {MAX_NODES} nodes")
    if whole.depth > MAX_CALLS:
        raise _refused(file, f"its functions call each other more than {MAX_CALLS} deep")
    try:
        return inliner.inline_local_functions(model)
    except (RuntimeError, ValueError, TypeError, checker.ValidationError) as error:
        raise _refused(file, f"ONNX itself cannot write out its functions ({error})") from None


def _refused(file: str, why: str) -> Unsupported:
    help = "export the model without functions of its own"
    return Unsupported(f"{file}: {why}", code="D0710", help=help)


def _extents(functions: Iterable[FunctionProto], file: str) -> dict[_Name, _Extent]:
    """Each function as it is where it is called. Raises Unsupported for one that calls itself."""
    bodies = {(one.domain, one.name, one.overload): one.node for one in functions}
    extents: dict[_Name, _Extent] = {}
    for first in bodies:
        todo, waiting = [first], set[_Name]()
        while todo:
            name = todo[-1]
            called = {_called(node) for node in _nodes(bodies[name])} & bodies.keys()
            left = sorted(called - extents.keys())
            if not left:
                extents[todo.pop()] = _extent(bodies[name], extents)
                continue
            waiting.add(name)
            if waiting & {*left}:
                raise _refused(file, f"its function {name[1]} calls itself")
            todo += left
    return extents


def _extent(nodes: Sequence[NodeProto], extents: Mapping[_Name, _Extent]) -> _Extent:
    own = list(_nodes(nodes))
    calls = [extents[_called(node)] for node in own if _called(node) in extents]
    return _Extent(
        len(own) - len(calls) + sum(call.nodes for call in calls),
        sum(node.ByteSize() for node in nodes) + sum(call.bytes for call in calls),
        1 + max([call.depth for call in calls], default=0),
    )


def _called(node: NodeProto) -> _Name:
    return node.domain, node.op_type, node.overload


# Operators that ONNX defines by others ------------------------------------------------------------


def _inlined(model: ModelProto, operators: list[Operator]) -> ModelProto | None:
    """The model with these written out; None where ONNX's own inliner refuses it.

    Then the operators are still there, and are reported as not imported.
    """
    from onnx import inliner

    try:
        model = _with_defaults(model, operators)
        model = _with_gaps_as_functions(model, operators)
        return inliner.inline_selected_functions(model, operators, inline_schema_functions=True)
    except (RuntimeError, ValueError, TypeError):
        return None


def _to_expand(model: ModelProto, importable: Collection[Operator]) -> list[Operator]:
    """Domain and name of everything that is to be written out."""
    if not importable:
        return []
    versions = _versions(model)
    operators = {_operator(node) for node in _nodes(model.graph.node)} - {*importable}
    return sorted(one for one in operators if _is_defined(_schema(one, versions)))


def _operator(node: NodeProto) -> Operator:
    return "" if node.domain in DOMAINS else node.domain, node.op_type


def _is_defined(schema: _Schema | None) -> bool:
    """Whether ONNX says of what other operators this one is made."""
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def _schema(operator: Operator, versions: Mapping[str, int]) -> _Schema | None:
    from onnx import defs

    domain, kind = operator
    try:
        return cast("_Schema", defs.get_schema(kind, versions.get(domain, 0), domain))
    except defs.SchemaError:
        return None


def _versions(model: ModelProto) -> dict[str, int]:
    """The version of each domain's operators, as far as ONNX has one for its own.

    Others are refused when nodes are read.
    """
    from onnx import defs

    versions: dict[str, int] = {}
    for entry in model.opset_import:
        domain = "" if entry.domain in DOMAINS else entry.domain
        versions[domain] = max(versions.get(domain, 0), entry.version)
    versions[""] = min(versions.get("", 0), defs.onnx_opset_version())
    return versions


def _with_defaults(model: ModelProto, operators: Collection[Operator]) -> ModelProto:
    """The model with every attribute of these operators: the inliner knows no default values."""
    copy = type(model)()
    copy.CopyFrom(model)
    versions = _versions(model)
    for node in _nodes(copy.graph.node):
        operator = _operator(node)
        schema = _schema(operator, versions) if operator in operators else None
        if schema is None:
            continue
        names = {attribute.name for attribute in node.attribute}
        for name, attribute in schema.attributes.items():
            if attribute.default_value.name and name not in names:
                node.attribute.add().CopyFrom(attribute.default_value)
    return copy


def _with_gaps_as_functions(model: ModelProto, operators: Collection[Operator]) -> ModelProto:
    """The model without these operators where they leave out an input in the middle.

    ONNX's inliner asks for the type of each input of a definition that depends on types, and refuses one
    that is left out. The definition itself does not: it becomes a function of the file for each such node.
    """
    from onnx import inliner

    gaps = [node for node in model.graph.node if "" in node.input and _operator(node) in operators]
    types = _types(model) if gaps else {}
    versions, made = _versions(model), 0
    for node in gaps:
        schema = _schema(_operator(node), versions)
        if schema is None or not schema.has_context_dependent_function:
            continue
        body = _definition(node, schema, versions, [types.get(name, b"") for name in node.input])
        made += 1
        body.domain, body.name = OWN_DOMAIN, f"{node.op_type}{made}"
        node.domain, node.op_type = OWN_DOMAIN, body.name
        model.functions.append(body)
    if not made:
        return model
    model.opset_import.add(domain=OWN_DOMAIN, version=1)
    return inliner.inline_local_functions(model)


def _types(model: ModelProto) -> dict[str, bytes]:
    """The types of the values of a graph by name, as far as they follow, serialized."""
    from onnx import helper, shape_inference

    graph = shape_inference.infer_shapes(model).graph
    values = [*graph.input, *graph.value_info, *graph.output]
    types = {value.name: value.type.SerializeToString() for value in values}
    for tensor in graph.initializer:
        type = helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
        types[tensor.name] = type.SerializeToString()
    return types


def _definition(
    node: NodeProto, schema: _Schema, versions: Mapping[str, int], types: list[bytes]
) -> FunctionProto:
    """The function that an operator is for inputs of these types, those that are left out being empty."""
    from onnx import FunctionProto

    known = [
        version
        for version in schema.context_dependent_function_opset_versions
        if version <= versions[""]
    ]
    data = schema.get_context_dependent_function_with_opset_version(
        max(known), node.SerializeToString(), types
    )
    return FunctionProto.FromString(data)


def _nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """The nodes, and those of the graphs inside them."""
    pending = list(nodes)
    while pending:
        node = pending.pop()
        yield node
        for attribute in node.attribute:
            pending += attribute.g.node
