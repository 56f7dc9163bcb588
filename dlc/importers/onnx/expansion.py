"""Operators that ONNX defines by others, and functions of a file's own, as what they are made of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto

DOMAINS = ("", "ai.onnx")
ROUNDS = 8
"""What operators are made of may be made of others again, so deep at most."""


class _Default(Protocol):
    default_value: AttributeProto


class _Schema(Protocol):
    has_function: bool
    has_context_dependent_function: bool
    attributes: Mapping[str, _Default]


def expanded(model: ModelProto, known: Collection[str]) -> ModelProto:
    """The model without functions of its own, and without operators that are not `known` if they have
    a definition. The model itself where there are none, or where ONNX cannot write them out.
    """
    for _ in range(ROUNDS):
        wanted = _to_expand(model, known)
        if not wanted:
            break
        found = _inlined(model, wanted)
        if found is None:
            break
        model = found
    return model


def _inlined(model: ModelProto, wanted: list[tuple[str, str]]) -> ModelProto | None:
    """The model with these written out; None where ONNX's own inliner refuses it.

    Then the operators are still there, and are reported as not imported.
    """
    from onnx import inliner

    try:
        model = _with_defaults(model, {kind for domain, kind in wanted if not domain})
        return inliner.inline_selected_functions(model, wanted, inline_schema_functions=True)
    except (RuntimeError, ValueError, TypeError):
        return None


def _to_expand(model: ModelProto, known: Collection[str]) -> list[tuple[str, str]]:
    """Domain and name of everything that is to be written out."""
    own = {(function.domain, function.name) for function in model.functions}
    if own and _is_recursive(model.functions):
        return []
    opset = _opset(model)
    kinds = {(node.domain, node.op_type) for node in _nodes(model.graph.node)}
    found = kinds & own
    if known:
        plain = [kind for domain, kind in kinds if domain in DOMAINS and kind not in known]
        found |= {("", kind) for kind in plain if _is_defined(kind, opset)}
    return sorted(found)


def _is_defined(kind: str, opset: int) -> bool:
    """Whether ONNX says of what other operators this one is made."""
    schema = _schema(kind, opset)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def _schema(kind: str, opset: int) -> _Schema | None:
    from onnx import defs

    try:
        return cast("_Schema", defs.get_schema(kind, opset, ""))
    except defs.SchemaError:
        return None


def _opset(model: ModelProto) -> int:
    return max([entry.version for entry in model.opset_import if entry.domain in DOMAINS] or [0])


def _with_defaults(model: ModelProto, kinds: Collection[str]) -> ModelProto:
    """The model with every attribute of these operators: the inliner knows no default values."""
    copy = type(model)()
    copy.CopyFrom(model)
    for node in _nodes(copy.graph.node):
        schema = _schema(node.op_type, _opset(model)) if node.op_type in kinds else None
        if schema is None:
            continue
        given = {attribute.name for attribute in node.attribute}
        for name, known in schema.attributes.items():
            if known.default_value.name and name not in given:
                node.attribute.add().CopyFrom(known.default_value)
    return copy


def _is_recursive(functions: Iterable[FunctionProto]) -> bool:
    """Whether a function is made of itself, which has no end."""
    calls = {
        (function.domain, function.name): {
            (node.domain, node.op_type) for node in _nodes(function.node)
        }
        for function in functions
    }
    while calls:
        leaves = [name for name, used in calls.items() if not used & calls.keys()]
        if not leaves:
            return True
        for name in leaves:
            del calls[name]
    return False


def _nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """The nodes, and those of the graphs inside them."""
    pending = list(nodes)
    while pending:
        node = pending.pop()
        yield node
        for attribute in node.attribute:
            pending += attribute.g.node
