"""Reproducers: the input of a pass that failed by a bug of dlc, in a file that repeats the failure."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from dlc.driver.compile.native_planner import machine_code
from dlc.errors import DlcError
from dlc.ir.core import Op
from dlc.ir.passes import Context, Manager, Options, Pass, Pipeline
from dlc.runtime.system.atomic_write import write_file
from dlc.text.ir.printer import print_module

Reopen = Callable[[], tuple[Op, Context]]
"""Reads the user's model once more."""


def reproducer(
    reopen: Reopen, passes: Pipeline, options: Options, flags: Sequence[str], folder: Path
) -> Callable[[Pass[...]], str]:
    """The hook that a pass manager calls with a pass that failed.

    It runs `passes` again on the model as it was read, up to the failure, writes what the pass was given
    to `dlc-reproducer-HASH.dlir` in `folder`, and says the file and the command, with `flags`, which are
    the options on a command line; empty where the failure does not come again or the file cannot be
    written.
    """

    def reproduce(failed: Pass[...]) -> str:
        given = ""

        def before(which: str, module: Op) -> None:
            nonlocal given
            if which == failed.name:
                given = print_module(module, locations=True)

        module, context = reopen()
        context.options, context.compiler = options, machine_code
        try:
            Manager(context, before=before).run(module, passes)
        except DlcError:
            passes_option = shlex.join(("--passes", str(failed)))
            return _written(given, " ".join((passes_option, *flags)), folder)
        return ""

    return reproduce


def _written(text: str, arguments: str, folder: Path) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    file = f"dlc-reproducer-{digest}.dlir"
    try:
        write_file(folder / file, [text.encode()])
    except DlcError:
        return ""  # the failure itself must be reported, wherever we are
    return f"{file} (dlc opt {file} {arguments} shows it)"
