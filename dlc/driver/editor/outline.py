"""The outline of a text, and the types that it leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from dlc.driver.editor.meanings import Reading
from dlc.driver.editor.observed import Observed
from dlc.frontend.sources.bindings import given
from dlc.text.model import ast
from dlc.text.model.tree import walk
from dlc.text.source import Span

__all__ = ["Hint", "Symbol", "hints", "symbols"]

SymbolKind: TypeAlias = Literal[
    "module", "function", "weight", "layer", "constant", "size", "training"
]


@dataclass(frozen=True, slots=True)
class Symbol:
    """A declaration: its name, what it is, where all of it stands and where its name does."""

    name: str
    kind: SymbolKind
    detail: str
    span: Span
    name_span: Span
    members: tuple[Symbol, ...] = ()


@dataclass(frozen=True, slots=True)
class Hint:
    """What a text does not say and the compiler found, to be shown after a character."""

    offset: int
    text: str


def symbols(file: ast.File) -> tuple[Symbol, ...]:
    """The declarations of a text, those of modules inside them."""
    return tuple([symbol for item in file.items for symbol in _of_item(file, item)])


def _of_item(file: ast.File, item: ast.Item) -> Iterator[Symbol]:
    match item:
        case ast.Module(members=members):
            inner = [s for member in members if (s := _of_member(file, member)) is not None]
            yield Symbol(item.name, "module", "", item.span, item.name_span, tuple(inner))
        case ast.Fn() | ast.Const():
            symbol = _of_member(file, item)
            if symbol is not None:
                yield symbol
        case ast.Let():
            for node in given(item.pattern):
                yield Symbol(node.name, "constant", "", item.span, node.span)
        case ast.Dims(entries=entries):
            for entry in entries:
                yield Symbol(entry.name, "size", "", entry.span, entry.name_span)
        case ast.Train():
            yield Symbol(f"train {item.name}", "training", "", item.span, item.name_span)
        case _:
            return


def _of_member(file: ast.File, member: ast.Member | ast.Const) -> Symbol | None:
    text = file.source.text
    match member:
        case ast.Param(type=type) | ast.State(type=type):
            detail, kind = text[type.span.start : type.span.end], "weight"
        case ast.Use(value=value):
            detail, kind = " ".join(text[value.span.start : value.span.end].split()), "layer"
        case ast.Const():
            detail, kind = "", "constant"
        case ast.Fn():
            detail, kind = "entry point" if member.exported else "", "function"
        case _:
            return None
    return Symbol(member.name, kind, detail, member.span, member.name_span)


def hints(reading: Reading, observed: Observed) -> Iterator[Hint]:
    """The types of what `let` names and of what functions give, where the text does not write them."""
    for node in walk(reading.file.tree):
        match node:
            case ast.Let(type=None, pattern=pattern, value=value):
                yield from _of_pattern(observed, pattern, value)
            case ast.Fn(result=None, body=body):
                tensor = observed.tensor_of(body)
                if tensor is not None:
                    yield Hint(_head_end(reading, node), f" -> {observed.type_of(body)}")
            case _:
                continue


def _of_pattern(observed: Observed, pattern: ast.Pattern, value: ast.Expr) -> Iterator[Hint]:
    if isinstance(pattern, ast.NamePattern):
        if observed.tensor_of(value) is not None:
            yield Hint(pattern.span.end, f": {observed.type_of(value)}")
    elif isinstance(pattern, ast.TuplePattern):
        types = observed.types_of_items(value)
        if len(types) == len(pattern.items):
            for item, type in zip(pattern.items, types, strict=True):
                if isinstance(item, ast.NamePattern) and type is not None:
                    yield Hint(item.span.end, f": {type}")


def _head_end(reading: Reading, fn: ast.Fn) -> int:
    """The end of the parameters of a function."""
    last = fn.parameters[-1].span.end if fn.parameters else fn.name_span.end
    return reading.source.text.index(")", last) + 1
