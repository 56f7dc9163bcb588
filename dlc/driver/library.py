"""The library as its readers see it: each layer, loss and optimizer with its head, docs and text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from dlc.frontend.imports import library_source
from dlc.text import ast
from dlc.text.parser import parse_or_raise

TEXTS: Mapping[str, str] = {"nn": "nn.dlm", "optimizers": "optimizers.dlm"}
"""The texts that gather the library, by the group that `dlc ops` shows."""


@dataclass(frozen=True, slots=True)
class LibraryEntry:
    """A module or a function of the library; `name` is how a reader finds it, such as `nn.Conv2d`."""

    name: str
    group: str
    signature: str
    doc: str
    text: str


@cache
def library_entries() -> Mapping[str, LibraryEntry]:
    """Everything that a model may import from the library, by name."""
    found = [entry for group, text in TEXTS.items() for entry in _gathered(group, text)]
    return {entry.name: entry for entry in found}


def _gathered(group: str, text: str) -> Iterator[LibraryEntry]:
    """The documented items of a text, and what it imports by name from others."""
    file = parse_or_raise(library_source(text))
    for item in file.items:
        match item:
            case ast.Import(is_file=True, names=(*names,), source=source):
                items = _items(parse_or_raise(library_source(source)))
                for name in names:
                    yield _entry(group, name.alias or name.name, *items[name.name])
            case ast.Module() | ast.Fn():
                yield _entry(group, item.name, item, file)
            case _:
                continue


def _items(file: ast.File) -> dict[str, tuple[ast.Module | ast.Fn, ast.File]]:
    return {item.name: (item, file) for item in file.items if isinstance(item, ast.Module | ast.Fn)}


def _entry(group: str, name: str, item: ast.Module | ast.Fn, file: ast.File) -> LibraryEntry:
    text = file.source.text
    body = text[item.span.start : item.span.end]
    return LibraryEntry(f"{group}.{name}", group, name + _head(item, text), item.docs, body)


def _head(item: ast.Module | ast.Fn, text: str) -> str:
    """The parameters in brackets, in one line; of a function also what it gives."""
    start = text.index("(", item.span.start)
    if isinstance(item, ast.Fn):
        end = item.body.span.start
    else:
        end = text.index(")", item.parameters[-1].span.end if item.parameters else start) + 1
    return " ".join(text[start:end].split()).removesuffix("=").rstrip()
