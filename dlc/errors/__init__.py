"""Errors: the exceptions, which carry diagnostics (`dlc.errors.diagnostic` has these, and renders them).

Every error a user can cause is a `DlcError`; its class decides the exit code of the command line.
A diagnostic names a location, the two things that disagree, and one way out; it has a code whose
page `dlc explain CODE` prints (the pages are in `dlc.errors.catalog`). An `assert` is for our own
mistakes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, ParamSpec, Self, TypeVar

from dlc.errors.diagnostic import (
    Diagnostic,
    Label,
    SourceLocation,
    diagnostic_data,
    render,
    visible,
)

__all__ = [
    "ArtifactError",
    "CallError",
    "Diagnostic",
    "DlcError",
    "DlcWarning",
    "InternalError",
    "Label",
    "ModelError",
    "NumbersDiffer",
    "SourceLocation",
    "Unsupported",
    "UsageError",
    "diagnostic_data",
    "memory_needed",
    "no_memory",
    "not_installed",
    "render",
    "visible",
]

P = ParamSpec("P")
R = TypeVar("R")


class DlcError(Exception):
    """Any error that dlc reports. `diagnostics` has at least one entry; `sources` maps file to text.

    It can be raised with diagnostics, or with a code, a message and perhaps a help and a place. A help that
    takes time to find is a function, called when somebody looks at the diagnostics.
    """

    exit_code: ClassVar[int] = 1
    default_code: ClassVar[str] = "D0999"

    def __init__(
        self,
        message: str | Sequence[Diagnostic],
        *,
        code: str | None = None,
        place: SourceLocation | None = None,
        help: str | Callable[[], str | None] | None = None,
        sources: Mapping[str, str] | None = None,
    ) -> None:
        self._find_help = None if isinstance(help, str) else help
        if isinstance(message, str):
            told = help if isinstance(help, str) else None
            message = [Diagnostic(code or self.default_code, message, place, help=told)]
        self._told = tuple(message)
        self.sources: dict[str, str] = dict(sources or {})
        super().__init__(self._told)  # so that it can be pickled

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """What is told."""
        if self._find_help is not None:
            help, self._find_help = self._find_help(), None
            self._told = tuple([replace(each, help=each.help or help) for each in self._told])
            self.args = (self._told,)
        return self._told

    def __reduce__(self) -> str | tuple[object, ...]:
        """What is pickled: the diagnostics, with their help."""
        assert self.diagnostics
        return super().__reduce__()

    def anew(self) -> Self:
        """The same error without the traceback, which holds what callers have in their hands."""
        return type(self)(self._told, help=self._find_help, sources=self.sources)

    def __str__(self) -> str:
        """The whole report, as people see it where nothing catches the error."""
        return self.render()

    def render(self) -> str:
        """The whole report as the command line prints it."""
        return "\n\n".join(render(diagnostic, self.sources) for diagnostic in self.diagnostics)


class ModelError(DlcError):
    """The model (text, IR or imported file) is wrong."""

    exit_code = 1
    default_code = "D0301"


class CallError(DlcError):
    """A call of a compiled entry point was refused or failed: wrong inputs, an index out of range."""

    exit_code = 1
    default_code = "D0801"


class UsageError(DlcError):
    """The command line or the API was used in a way that has no meaning."""

    exit_code = 2
    default_code = "D0901"


class NumbersDiffer(DlcError):
    """Two computations that must agree do not."""

    exit_code = 3
    default_code = "D0951"


class Unsupported(DlcError):
    """The model is right, but dlc cannot do it; said before work begins, with every place concerned."""

    exit_code = 4
    default_code = "D0701"


class ArtifactError(DlcError):
    """A `.dlc` file or another input file was refused; names the section and the offset."""

    exit_code = 5
    default_code = "D0601"


class InternalError(DlcError):
    """A mistake of ours; a reproducer file was written where that was possible."""

    exit_code = 70
    default_code = "D0999"


class DlcWarning(UserWarning):
    """What is probably a mistake: weights of a file that the model does not use, or a cache that cannot be
    trusted. It is not an error, and a result is what it would be without it.
    """


def no_memory() -> InternalError:
    """The error for memory that the system refused."""
    return InternalError(
        "the system has no more memory",
        code="D0998",
        help="use smaller sizes, or a machine with more memory",
    )


def memory_needed(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which raises InternalError (D0998) if the system refuses memory."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except MemoryError as error:
            raise no_memory() from error

    return called


def not_installed(error: ModuleNotFoundError) -> DlcError:
    """The error for a required package that is missing: dlc was installed without its dependencies."""
    package = (error.name or str(error)).partition(".")[0]
    return UsageError(
        f"{package} is not installed",
        code="D0923",
        help=f"pip install {package} brings it, and pip install -e . in a clone of dlc all that is needed; "
        "with NumPy alone dlc runs artifacts",
    )
