"""`%%dlm` cells of notebooks: model text that becomes a model."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from dlc.driver.api import compile
from dlc.errors import DlcError, SourceLocation, UsageError

__all__ = ["Shell", "register"]

EDITION = "dlc 1 "
HAS_EDITION = re.compile(r"(?:\s|#[^\n]*\n)*dlc\s")
"""A text that says its edition, perhaps behind comments."""


class Shell(Protocol):
    """What is needed of IPython's shell."""

    def register_magic_function(
        self, func: Callable[..., object], magic_kind: str, magic_name: str
    ) -> None: ...

    def push(self, variables: dict[str, object]) -> None: ...


def register(shell: Shell) -> None:
    """Make `%%dlm NAME [WEIGHTS]` known: the text of the cell is compiled, and NAME is the model.

    WEIGHTS is what `dlc.compile` takes: a weight file, or `init:SEED`. The first line, `dlc 1`, may be
    left out. The model is shown below the cell; what is wrong in the text is printed there.
    """

    def dlm(line: str, cell: str) -> object:
        try:
            name, weights = _arguments(line)
            model = compile(text=_with_edition(cell), weights=weights)
        except DlcError as error:
            sys.stderr.write(_in_cell(error, cell).render() + "\n")
            return None
        shell.push({name: model})
        return model

    shell.register_magic_function(dlm, "cell", "dlm")


def _arguments(line: str) -> tuple[str, str | None]:
    """The name of the model, and where its weights come from."""
    given = shlex.split(line)
    if not 1 <= len(given) <= 2 or not given[0].isidentifier():
        raise UsageError(
            f"%%dlm takes the name of a variable and perhaps weights, found {line!r}",
            code="D0901",
            help="write %%dlm model, or %%dlm model init:0",
        )
    return given[0], given[1] if len(given) == 2 else None


def _with_edition(text: str) -> str:
    """The text with its edition, before the first line, so that lines keep their numbers."""
    return text if HAS_EDITION.match(text) else EDITION + text


def _in_cell(error: DlcError, cell: str) -> DlcError:
    """The error with the columns of the cell, where the edition was put before its first line."""
    if HAS_EDITION.match(cell):
        return error

    def moved(place: SourceLocation) -> SourceLocation:
        if place.line > 1 or error.sources.get(place.file) != EDITION + cell:
            return place
        by = len(EDITION)
        return replace(place, column=max(1, place.column - by), end=max(1, place.end - by))

    diagnostics = [
        replace(
            each,
            place=each.place and moved(each.place),
            labels=tuple([replace(label, place=moved(label.place)) for label in each.labels]),
        )
        for each in error.diagnostics
    ]
    sources = {name: text.removeprefix(EDITION) for name, text in error.sources.items()}
    return type(error)(diagnostics, sources=sources)
