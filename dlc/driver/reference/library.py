"""The pages of the library: each layer, loss and optimizer with its head, its example and its text.

The last line of a documentation is its example: ``Example: `Linear(3, 4)` f32[2, 3] -> f32[2, 4]`` of a
layer, ``Example: `mse([1.0], [3.0])` -> 4.0: f32`` of a function, and of an optimizer the `train` entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dlc.driver.reference.page import Page, Part
from dlc.frontend.sources.imports import library_source
from dlc.text.model import ast
from dlc.text.model.parser import parse_or_raise

TEXTS: Final[Mapping[str, str]] = {"nn": "nn.dlm", "optimizers": "optimizers.dlm"}
"""The texts that gather the library, by the group that `dlc ops` shows."""

EXAMPLE: Final = re.compile(r"\n*Example: `(.+)`(?: (?:(.+?) )?-> (.+))?\s*$")


@dataclass(frozen=True, slots=True)
class Example:
    """An example in the documentation: a layer with the type of its input, or a call; and the result."""

    text: str
    takes: str
    """The type that a layer is applied to; empty for a call."""
    gives: str


def pages() -> Iterator[Page]:
    """Everything that a model may import from the library."""
    for group, text in TEXTS.items():
        yield from _gathered(group, text)


def example_of(docs: str) -> Example | None:
    """The example at the end of a documentation."""
    found = EXAMPLE.search(docs)
    return found and Example(found[1], found[2] or "", found[3] or "")


def group_summary(group: str) -> str:
    """The subject of a text of the library, in one line."""
    return parse_or_raise(library_source(TEXTS[group])).docs.partition("\n")[0]


def _gathered(group: str, text: str) -> Iterator[Page]:
    """The documented items of a text, and what it imports by name from others."""
    file = parse_or_raise(library_source(text))
    for item in file.items:
        match item:
            case ast.Import(is_file=True, names=(*names,), source=source):
                other = parse_or_raise(library_source(source))
                items = {i.name: i for i in other.items if isinstance(i, ast.Module | ast.Fn)}
                for name in names:
                    yield _page(group, name.alias or name.name, items[name.name], other)
            case ast.Module() | ast.Fn():
                yield _page(group, item.name, item, file)
            case _:
                continue


def _page(group: str, name: str, item: ast.Module | ast.Fn, file: ast.File) -> Page:
    text = file.source.text
    example = example_of(item.docs)
    first, _, rest = EXAMPLE.sub("", item.docs).partition("\n\n")
    use = f"import nn ({name})" if group == "nn" else "Known by name in a `train` block."
    return Page(
        f"{group}.{name}",
        f"library: {group}",
        name + _head(item, text),
        " ".join(first.split()),
        f"{rest}\n\n{use}".strip(),
        tuple([_part(parameter, text) for parameter in item.parameters]),
        example=_shown(example).replace(f"{item.name}(", f"{name}("),
        gives="" if example is None else example.gives,
        derivative="of what it is made of"
        if group == "nn"
        else "none: it is applied to derivatives",
        source=text[item.span.start : item.span.end],
    )


def _shown(example: Example | None) -> str:
    if example is None:
        return ""
    return f"{example.text} on {example.takes}" if example.takes else example.text


def _part(parameter: ast.Parameter, text: str) -> Part:
    type, default = parameter.type, parameter.default
    kind = "any" if type is None else text[type.span.start : type.span.end]
    given = "" if default is None else f"by default {text[default.span.start : default.span.end]}"
    return Part(parameter.name, kind, given)


def _head(item: ast.Module | ast.Fn, text: str) -> str:
    """The parameters in brackets, in one line; of a function also what it gives."""
    start = text.index("(", item.span.start)
    if isinstance(item, ast.Fn):
        end = item.body.span.start
    else:
        end = text.index(")", item.parameters[-1].span.end if item.parameters else start) + 1
    return " ".join(text[start:end].split()).removesuffix("=").rstrip()
