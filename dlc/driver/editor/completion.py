"""Completion: members behind a dot, parameters in a call, names, words of the language.

The unfinished word is replaced by a name before the text is read, so that `net.` and `x + ` are whole
expressions there, and the tree tells what they are in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from dlc.driver.editor.hover import head_of
from dlc.driver.editor.meanings import Place, Reading
from dlc.frontend.builtins.registry import BUILTINS, CONSTANTS, SPECIALS
from dlc.frontend.elaboration.types import DTYPES
from dlc.frontend.sources.files import File
from dlc.frontend.sources.imports import LIBRARY
from dlc.frontend.weights.initialisers import INITIALISERS
from dlc.text.model import ast
from dlc.text.model.tree import walk
from dlc.text.model.words import (
    EXPRESSION_WORDS,
    ITEM_WORDS,
    MEMBER_WORDS,
    NEVER_NAMES,
    STATEMENT_WORDS,
    TRAIN_WORDS,
)
from dlc.text.source import Source

__all__ = ["Proposal", "complete"]

Kind: TypeAlias = Literal["member", "parameter", "name", "function", "module", "keyword", "type"]

HOLE = "dlc_here"
"""The name that stands for the unfinished word."""

HOMES: Final[Mapping[type[ast.Node], frozenset[str]]] = {
    ast.File: ITEM_WORDS,
    ast.Module: MEMBER_WORDS,
    ast.Train: TRAIN_WORDS,
    ast.Block: STATEMENT_WORDS,
}
"""The keywords that begin what may be in each."""

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*$")
_REST = re.compile(r"[A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Proposal:
    """One thing that may be written: what to insert, what it is, and what is known of it."""

    text: str
    kind: Kind
    detail: str = ""


def complete(
    source: Source, offset: int, path: Path | None = None, unsaved: Mapping[Path, str] | None = None
) -> list[Proposal]:
    """The proposals for the word that ends at a place, the nearest first, each text once."""
    begun = _WORD.search(source.text, 0, offset)
    start = begun.start() if begun else offset
    rest = _REST.match(source.text, offset)
    text = source.text[:start] + HOLE + source.text[rest.end() if rest else offset :]
    reading = Reading(Source(source.name, text), path, unsaved=unsaved or {})
    found: dict[str, Proposal] = {}
    for proposal in _proposals(reading, start):
        found.setdefault(proposal.text, proposal)
    found.pop(HOLE, None)
    return list(found.values())


def _proposals(reading: Reading, start: int) -> Iterator[Proposal]:
    around = [
        n for n in walk(reading.file.tree) if n.span.start <= start <= n.span.end
    ]  # parents first
    for node in reversed(around):
        match node:
            case ast.Attribute(value=value) if node.name_span.start == start:
                yield from _members(reading, value)
                return
            case ast.Import():
                yield from _importable(reading, node, start)
                return
            case _:
                continue
    if reading.source.text[:start].rstrip().endswith("."):
        return
    for node in reversed(around):
        if isinstance(node, ast.Call) and start > node.function.span.end:
            yield from _parameters(reading, node)
            break
    yield from _visible(reading, start)
    yield from _words(around)
    yield from _everywhere()


def _members(reading: Reading, value: ast.Expr) -> Iterator[Proposal]:
    owner = reading.meaning(reading.file, value)
    if owner is not None and isinstance(owner.node, ast.File):
        yield from _declared(reading, owner.file)
        return
    found = reading.instance(reading.file, value)
    if found is None:
        return
    home, module = found
    for node in (*module.members, *module.parameters):
        if isinstance(node, ast.Named):
            yield Proposal(node.name, "member", head_of(Place(home, node, node.name_span)))


def _declared(reading: Reading, file: File) -> Iterator[Proposal]:
    for name in file.known():
        place = reading.declared(file, name)
        if place is not None:
            yield Proposal(name, _kind(place.node), head_of(place))


def _importable(reading: Reading, node: ast.Import, start: int) -> Iterator[Proposal]:
    if node.source_span.start <= start <= node.source_span.end:
        for name in LIBRARY:
            yield Proposal(name, "module", "library")
        return
    for entry in node.names or ():
        origin = reading.file.imported.get(entry.alias or entry.name)
        if origin is not None:
            yield from _declared(reading, origin[0])
            return


def _parameters(reading: Reading, call: ast.Call) -> Iterator[Proposal]:
    given = {argument.name for argument in call.arguments}
    found = reading.parameters(reading.file, call)
    if found is not None:
        for parameter in found[1]:
            if parameter.name not in given:
                place = Place(found[0], parameter, parameter.name_span)
                yield Proposal(f"{parameter.name}=", "parameter", head_of(place))
    elif isinstance(call.function, ast.Name) and call.function.name in BUILTINS:
        for known in BUILTINS[call.function.name].parameters:
            if not known.name.startswith("*") and known.name not in given:
                yield Proposal(f"{known.name}=", "parameter", known.kind)


def _visible(reading: Reading, start: int) -> Iterator[Proposal]:
    bindings = list(reading.visible(start).values())
    bindings.sort(key=lambda b: (b.scope.end - b.scope.start, -b.span.start))
    for binding in bindings:
        place = reading.meaning_of(reading.file, binding)
        yield Proposal(binding.name, _kind(place.node), head_of(place))


def _kind(node: ast.Node) -> Kind:
    match node:
        case ast.Fn():
            return "function"
        case ast.Module() | ast.File():
            return "module"
        case _:
            return "name"


def _words(around: list[ast.Node]) -> Iterator[Proposal]:
    """The keywords that may be in what is around, those that begin something first."""
    for node in reversed(around):
        words = next((words for kind, words in HOMES.items() if isinstance(node, kind)), None)
        if words is not None:
            yield from (Proposal(word, "keyword") for word in sorted(words))
            break
    yield from (Proposal(word, "keyword") for word in sorted(EXPRESSION_WORDS | NEVER_NAMES))


def _everywhere() -> Iterator[Proposal]:
    for name, builtin in {**BUILTINS, **SPECIALS}.items():
        yield Proposal(name, "function", builtin.signature)
    for name in INITIALISERS:
        yield Proposal(name, "function", "initial values")
    yield from (Proposal(name, "type", "dtype") for name in DTYPES)
    yield from (Proposal(name, "name", "constant") for name in CONSTANTS)
    yield Proposal("training", "name", "whether a training step is being made")
