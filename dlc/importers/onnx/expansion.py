"""Expansion of operators that ONNX defines by other operators, and of a file's own functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

from dlc.errors import Unsupported
from dlc.importers.onnx.facts import Operator

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto

DOMAINS = ("", "ai.onnx")
"""Both mean the operators of ONNX itself."""
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
    attributes: Mapping[str, _Default]


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


def _inlined(model: ModelProto, names: list[Operator]) -> ModelProto | None:
    """The model with these written out; None where ONNX's own inliner refuses it.

    Then the operators are still there, and are reported as not imported.
    """
    from onnx import inliner

    try:
        model = _inlinable(model, names)
        return inliner.inline_selected_functions(model, names, inline_schema_functions=True)
    except (RuntimeError, ValueError, TypeError):
        return None


def _to_expand(model: ModelProto, importable: Collection[Operator]) -> list[Operator]:
    """Domain and name of everything that is to be written out."""
    if not importable:
        return []
    kinds = {_kind(node) for node in _nodes(model.graph.node)}
    return sorted([kind for kind in kinds - {*importable} if _is_defined(model, kind)])


def _kind(node: NodeProto) -> Operator:
    """Domain and name of an operator; "" is the domain of ONNX's own."""
    return "" if node.domain in DOMAINS else node.domain, node.op_type


def _is_defined(model: ModelProto, kind: Operator) -> bool:
    """Whether ONNX says of what other operators this one is made."""
    schema = _schema(model, kind)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def _schema(model: ModelProto, kind: Operator) -> _Schema | None:
    from onnx import defs

    domain, name = kind
    try:
        return cast("_Schema", defs.get_schema(name, _opset(model, domain), domain))
    except defs.SchemaError:
        return None


def _opset(model: ModelProto, domain: str) -> int:
    """The version of the operators, as far as ONNX has one: others are refused when nodes are read."""
    from onnx import defs

    alike = (domain,) if domain else DOMAINS
    versions = [entry.version for entry in model.opset_import if entry.domain in alike]
    version = max([*versions, 0])
    return version if domain else min(version, defs.onnx_opset_version())


def _inlinable(model: ModelProto, kinds: Collection[Operator]) -> ModelProto:
    """The model with every attribute of these operators: the inliner knows no default values.

    It has a value without name and type besides: the inliner asks for the type of each input of such a
    node, also of one that is left out in the middle, whose name is empty.
    """
    copy = type(model)()
    copy.CopyFrom(model)
    copy.graph.value_info.add()
    for node in _nodes(copy.graph.node):
        schema = _schema(model, _kind(node)) if _kind(node) in kinds else None
        if schema is None:
            continue
        names = {attribute.name for attribute in node.attribute}
        for name, attribute in schema.attributes.items():
            if attribute.default_value.name and name not in names:
                node.attribute.add().CopyFrom(attribute.default_value)
    return copy


def _nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """The nodes, and those of the graphs inside them."""
    pending = list(nodes)
    while pending:
        node = pending.pop()
        yield node
        for attribute in node.attribute:
            pending += attribute.g.node
