"""Names, literals, tuples, lists and attributes."""

from __future__ import annotations

from collections.abc import Callable

from dlc.errors import Diagnostic, ModelError
from dlc.errors.suggest import did_you_mean
from dlc.frontend.builtins.registry import BUILTINS, CONSTANTS, SPECIALS
from dlc.frontend.elaboration.evaluator import Evaluator, attributes_of, evaluates
from dlc.frontend.elaboration.other_languages import attribute_help, name_help
from dlc.frontend.elaboration.patterns import unpack
from dlc.frontend.elaboration.problems import Poisoned
from dlc.frontend.elaboration.scope import MISSING, Scope
from dlc.frontend.elaboration.types import DTYPES
from dlc.frontend.elaboration.values import (
    PLACEHOLDER,
    UNKNOWN,
    Datum,
    Hole,
    Items,
    Range,
    Record,
    Stored,
    describe,
)
from dlc.frontend.weights.stored_tensors import stored_value
from dlc.ir.core import Value
from dlc.runtime.system.counts import whole_number
from dlc.text.model import ast
from dlc.text.source import Source, Span

__all__ = ["MAX_COMPREHENSION", "TRAINING", "comprehended", "unknown_name"]

MAX_COMPREHENSION = 10_000
"""The most items that a comprehension makes."""
TRAINING = ("training", "total_steps")
"""Names that every text knows and whose value depends on what is made of it."""


@evaluates(ast.Name)
def _name(ev: Evaluator, node: ast.Name, scope: Scope) -> Datum:
    value = scope.find(node.name)
    if value is UNKNOWN:
        raise Poisoned
    if value is MISSING:
        return _known_everywhere(ev, node, scope)
    if isinstance(value, Hole) and value.size is not None:
        return value.size
    if isinstance(value, Stored):
        return stored_value(ev.at, value)
    return value


def _known_everywhere(ev: Evaluator, node: ast.Name, scope: Scope) -> Datum:
    name = node.name
    if name == "training":
        return ev.at.training
    if name == "total_steps":
        return _total_steps(ev, node)
    for table in (BUILTINS, CONSTANTS, DTYPES, SPECIALS):
        if name in table:
            return table[name]
    raise ModelError([unknown_name(scope.home.source, name, node.span, list(scope.known()))])


def _total_steps(ev: Evaluator, node: ast.Name) -> Value:
    """The total number of training steps: an input of the step, for the optimizer."""
    if ev.at.total_steps is None:
        raise ev.at.fail(
            "D0536",
            "total_steps is known only to the functions that an update of a weight calls",
            node.span,
            help="use it in a schedule: fn falling(step: i32) -> f32 = 1 - f32(step) / f32(total_steps)",
        )
    return ev.at.total_steps


def unknown_name(source: Source, name: str, span: Span, known: list[str]) -> Diagnostic:
    """The error for a name that means nothing, with the known one that is most like it."""
    candidates = [*dict.fromkeys(known), *BUILTINS, *CONSTANTS, *DTYPES, *SPECIALS, *TRAINING]
    return Diagnostic(
        "D0201",
        f"nothing is called {name} here",
        source.place(span),
        help=name_help(name) or did_you_mean(name, candidates),
    )


@evaluates(ast.Number)
def _number(ev: Evaluator, node: ast.Number, scope: Scope) -> Datum:
    return node.value


@evaluates(ast.Bool)
def _bool(ev: Evaluator, node: ast.Bool, scope: Scope) -> Datum:
    return node.value


@evaluates(ast.String)
def _string(ev: Evaluator, node: ast.String, scope: Scope) -> Datum:
    return node.value


@evaluates(ast.Placeholder)
def _placeholder(ev: Evaluator, node: ast.Placeholder, scope: Scope) -> Datum:
    return PLACEHOLDER


@attributes_of(Value)
def _of_tensor(ev: Evaluator, value: Value, node: ast.Attribute) -> Datum:
    """Tensors have no attributes: what others write so is a function."""
    message = f"{describe(value)} has no `.{node.name}`"
    help = attribute_help(node.name, BUILTINS)
    raise ev.at.fail("D0206", message, node.name_span, help=help)


@evaluates(ast.Tuple)
def _tuple(ev: Evaluator, node: ast.Tuple, scope: Scope) -> Datum:
    items = [ev.eval(item.value, scope) for item in node.items]
    record = Record(tuple(items), tuple([item.name for item in node.items]))
    ev.at.count_items(record.size)
    return record


@evaluates(ast.List)
def _list(ev: Evaluator, node: ast.List, scope: Scope) -> Datum:
    items = [ev.eval(item, scope) for item in node.items]
    if UNKNOWN in items:
        raise Poisoned
    result = Items(tuple(items), ev.at.source.place(node.span))
    ev.at.count_items(result.size)
    return result


@evaluates(ast.Range)
def _range(ev: Evaluator, node: ast.Range, scope: Scope) -> Datum:
    return Range(ev.size(node.start, scope), ev.size(node.stop, scope))


@evaluates(ast.Comprehension)
def _comprehension(ev: Evaluator, node: ast.Comprehension, scope: Scope) -> Datum:
    return comprehended(ev, node, scope, ev.eval)


def comprehended(
    ev: Evaluator,
    node: ast.Comprehension,
    scope: Scope,
    make: Callable[[ast.Expr, Scope], Datum],
) -> Items:
    """`[for pattern in source: body]`: a list that is made when compiling, its items by `make`."""
    items: list[Datum] = []
    for part in _steps(ev, ev.eval(node.source, scope), node.source.span):
        inner = scope.inner()
        ev.at.count()
        unpack(ev, node.pattern, part, inner, node.source.span)
        items.append(make(node.body, inner))
    result = Items(tuple(items))
    ev.at.count_items(result.size)
    return result


def _steps(ev: Evaluator, source: Datum, span: Span) -> list[Datum]:
    match source:
        case Items(items) | Record(items):
            return list(items)
        case Range(int() as start, int() as stop):
            if stop - start > MAX_COMPREHENSION:
                raise ev.at.fail(
                    "D0216",
                    f"a list of {stop - start:,} items is too long",
                    span,
                    help="loop with scan",
                )
            return list(range(start, stop))
        case Range():
            raise ev.at.fail(
                "D0328",
                f"the range {source.start}..{source.stop} is not known when compiling",
                span,
                help="loop with scan",
            )
        case Value():
            raise ev.at.fail(
                "D0327", "a list is made from a list or a range", span, help="loop with scan"
            )
        case _:
            raise ev.not_known(source, "a list or a range", span)


@evaluates(ast.Attribute)
def _attribute(ev: Evaluator, node: ast.Attribute, scope: Scope) -> Datum:
    return ev.attribute(ev.eval(node.value, scope), node)


@attributes_of(Items)
def _numbered(ev: Evaluator, items: Items, node: ast.Attribute) -> Datum:
    """`layers.0`, as the weights of a list are called."""
    number = whole_number(node.name)
    if number is None or number >= len(items.items):
        help = f"its items are 0 to {len(items.items) - 1}" if items.items else None
        raise ev.at.fail(
            "D0206", f"{describe(items)} has no `.{node.name}`", node.name_span, help=help
        )
    value = items.items[number]
    if value is UNKNOWN:
        raise Poisoned
    return value


@attributes_of(Record)
def _field(ev: Evaluator, record: Record, node: ast.Attribute) -> Datum:
    value = record.field(node.name)
    if value is None:
        names = [name for name in record.names if name is not None]
        help = did_you_mean(node.name, names) or f"it has {', '.join(names)}" if names else None
        raise ev.at.fail(
            "D0206", f"{describe(record)} has no `.{node.name}`", node.name_span, help=help
        )
    if value is UNKNOWN:
        raise Poisoned
    return value
