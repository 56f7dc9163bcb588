"""The command line: `dlc VERB ...`, one module for each verb below `dlc.cli.verbs`.

Two answers come before the command line's library is loaded: the version, and the plain run of an
artifact, so that small models answer at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlc.cli import quick
from dlc.cli.report import guarded, say_version, spell_out

if TYPE_CHECKING:
    from dlc.cli import app

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments (default: those of the process) say; gives the exit code.

    0 done, 1 the model is wrong, 2 usage, 3 numbers differ, 4 unsupported, 5 artifact refused, 70
    internal failure, 130 interrupted.
    """
    if arguments is None:
        spell_out()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    return guarded(lambda: _answered(arguments), as_json="--json" in arguments)


def _answered(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--version"] and set(arguments[1:]) <= {"--json"}:
        say_version(as_json="--json" in arguments)
        return 0
    plain = quick.plain_run(arguments)
    if plain is None:
        return _app().run(arguments)
    plain.do()
    return 0


def _app() -> type[app.App]:
    """The command line with all verbs, imported when it is needed."""
    from dlc.cli.app import App

    return App
