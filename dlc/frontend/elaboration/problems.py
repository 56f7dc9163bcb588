"""Diagnostics of a model, gathered while elaboration goes on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dlc.errors import Diagnostic, Label, ModelError, SourceLocation

__all__ = [
    "MAX_PROBLEMS",
    "Poisoned",
    "Problems",
    "Settled",
    "Stop",
    "add_labels",
    "at_place",
    "with_help",
]

MAX_PROBLEMS = 50
"""After as many errors nothing more is looked at."""


class Poisoned(Exception):
    """A value is used that an error has left unknown; the error has been reported."""


class Settled(ModelError):
    """An error whose place and whose calls have been filled in."""


class Stop(Exception):
    """Nothing more is looked at: there are too many errors, or the model has no end. `last` says so."""

    def __init__(self, last: Diagnostic) -> None:
        super().__init__(last.message)
        self.last = last


class Problems:
    """Errors and warnings, each once, in the order in which they were found."""

    __slots__ = ("_seen", "errors", "warnings")

    def __init__(self) -> None:
        self.errors: list[Diagnostic] = []
        self.warnings: list[Diagnostic] = []
        self._seen: set[tuple[str, str, SourceLocation | None]] = set()

    def report(self, found: Iterable[Diagnostic]) -> None:
        """Record what was not said before: a function that is called twice is wrong once."""
        for diagnostic in found:
            key = (diagnostic.code, diagnostic.message, diagnostic.place)
            if key in self._seen:
                continue
            self._seen.add(key)
            if diagnostic.severity == "warning":
                self.warnings.append(diagnostic)
                continue
            self.errors.append(diagnostic)
            if len(self.errors) >= MAX_PROBLEMS:
                raise Stop(Diagnostic("D0119", f"stopped after {MAX_PROBLEMS} errors"))

    def in_order(self) -> list[Diagnostic]:
        """All of them in the order of the texts."""
        return sorted([*self.errors, *self.warnings], key=_position)


def _position(diagnostic: Diagnostic) -> tuple[str, int, int]:
    place = diagnostic.place
    return ("", 0, 0) if place is None else (place.file, place.line, place.column)


def at_place(error: ModelError, place: SourceLocation) -> ModelError:
    """The error with a place for those of its diagnostics that have none."""
    if all(diagnostic.place is not None for diagnostic in error.diagnostics):
        return error
    return ModelError([replace(d, place=d.place or place) for d in error.diagnostics])


def with_help(error: ModelError, help: str | None) -> ModelError:
    """The error with a way out for those of its diagnostics that have none."""
    return ModelError([d if d.help else replace(d, help=help) for d in error.diagnostics])


def add_labels(error: ModelError, labels: Iterable[Label]) -> ModelError:
    """The error with labels for those of its diagnostics that have none."""
    added = tuple(labels)
    return ModelError([d if d.labels else replace(d, labels=added) for d in error.diagnostics])
