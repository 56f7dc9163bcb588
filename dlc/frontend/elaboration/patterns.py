"""Giving names to values: `let (q, k, v) = t`."""

from __future__ import annotations

from dlc.dialects import array
from dlc.dialects.array.shape import reshape
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.problems import Poisoned
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.elaboration.tensors import tensor_type
from dlc.frontend.elaboration.values import PLACEHOLDER, UNKNOWN, Datum, Items, Record, describe
from dlc.ir.core import Value
from dlc.text.model import ast
from dlc.text.source import Span

__all__ = ["names_of", "row", "unpack"]

MAX_ROWS = 64
"""The most rows that a tensor is unpacked into."""


def names_of(pattern: ast.Pattern) -> list[str]:
    """The names that a pattern gives."""
    match pattern:
        case ast.NamePattern(name=name):
            return [name]
        case ast.TuplePattern(items=items):
            return [name for item in items for name in names_of(item)]
        case _:
            return []


def unpack(ev: Evaluator, pattern: ast.Pattern, value: Datum, scope: Scope, span: Span) -> None:
    """Give the names of a pattern to a value and its parts; `span` is where the value stands."""
    match pattern:
        case ast.NamePattern():
            if value is PLACEHOLDER:
                raise ev.at.fail("D0326", "`_` is not a value", span)
            scope.names[pattern.name] = value
            if isinstance(value, Value):
                ev.at.called(value, pattern.name, pattern.span)
        case ast.TuplePattern(items=items):
            _unpack_tuple(ev, pattern, items, value, scope, span)
        case _:
            pass


def _unpack_tuple(
    ev: Evaluator,
    pattern: ast.TuplePattern,
    items: tuple[ast.Pattern, ...],
    value: Datum,
    scope: Scope,
    span: Span,
) -> None:
    parts = _parts(ev, value, span)
    rest = next((k for k, item in enumerate(items) if isinstance(item, ast.RestPattern)), None)
    wanted = len(items) - (rest is not None)
    if len(parts) < wanted or (rest is None and len(parts) != wanted):
        least = "at least " if rest is not None else ""
        raise ev.at.fail(
            "D0330",
            f"cannot unpack {describe(value)} into {least}{wanted} names",
            pattern.span,
            help=f"it has {len(parts)} parts" if parts else None,
        )
    if rest is not None:
        after = len(items) - rest - 1
        items = (*items[:rest], *items[rest + 1 :])
        parts = [*parts[:rest], *parts[len(parts) - after :]]
    for item, part in zip(items, parts, strict=True):
        if isinstance(part, int) and isinstance(value, Value):
            if isinstance(item, ast.IgnorePattern):
                continue
            ev.at.stand(item.span)
            part = row(ev, value, part)
        unpack(ev, item, part, scope, span)


def _parts(ev: Evaluator, value: Datum, span: Span) -> list[Datum]:
    """The parts of a value; for a tensor the numbers of its rows, which are taken when needed."""
    match value:
        case Record(items) | Items(items):
            return list(items)
        case Value():
            shape = tensor_type(value).shape
            if shape and isinstance(shape[0], int) and shape[0] <= MAX_ROWS:
                return list(range(shape[0]))
            raise ev.at.fail(
                "D0330",
                f"cannot unpack {describe(value)}: its first size is not a small number",
                span,
                help="take its rows by index: x[0]",
            )
        case _:
            if value is UNKNOWN:
                raise Poisoned
            raise ev.at.fail("D0330", f"cannot unpack {describe(value)}", span)


def row(ev: Evaluator, value: Value, index: int) -> Value:
    """`value[index]` along the first axis."""
    shape = tensor_type(value).shape
    rank = len(shape) - 1
    part = ev.at(
        array.Slice(value, (index, *[0] * rank), (index + 1, *shape[1:]), (1,) * (rank + 1))
    )
    return reshape(ev.at, part, shape[1:])
