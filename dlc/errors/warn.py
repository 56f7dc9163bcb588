"""Warnings: what is probably a mistake, but not an error.

In Python each is a `DlcWarning` at the line that calls dlc, which the module `warnings` shows once, hides,
or makes an error; the command line says it as a note.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache

from dlc.errors import DlcWarning

__all__ = ["told_to", "warn", "warn_once"]


def warn(text: str) -> None:
    """Warn at the line outside of dlc that has called it."""
    frame, level, outermost = inspect.currentframe(), 0, 0
    while frame is not None:
        level += 1
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        # Functions of the API are wrapped by those of contextlib.
        if package == "dlc" or (package == "contextlib" and level == outermost + 1):
            outermost = level
        frame = frame.f_back
    warnings.warn(text, DlcWarning, stacklevel=outermost + 1)


@cache
def warn_once(text: str) -> None:
    """The same, once in a process, wherever dlc is called from."""
    warn(text)


@contextmanager
def told_to(say: Callable[[str], None]) -> Generator[None]:
    """Hand the text of each warning of dlc to a function meanwhile; others are shown as ever."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", DlcWarning)
        usual = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            *rest: object,
        ) -> None:
            if issubclass(category, DlcWarning):
                say(str(message))
            else:
                usual(message, category, filename, lineno)

        warnings.showwarning = show
        yield
