"""Passes by name on IR text: `dlc opt`, and how the tests in text are run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dlc.driver.compile import Settings
from dlc.driver.extensions import load_extensions
from dlc.driver.open import open_model, read_ir
from dlc.driver.pipelines import LOADED
from dlc.driver.verify_each import EachPass
from dlc.ir.core import Op
from dlc.ir.passes import PASSES, Context, Manager
from dlc.ir.verify import verify
from dlc.text.ir_printer import print_module

assert LOADED and PASSES, "the modules that define the passes are loaded"


def optimise_text(text: str, passes: Sequence[str], *, file: str, verify_each: bool = False) -> str:
    """The text of a module after the passes, in order. `file` is what messages call it.

    Raises ModelError for a text that is wrong, UsageError for a pass that does not exist.
    """
    load_extensions()
    return _run(read_ir(text, file), Context(), passes, Settings(verify_each=verify_each))


def optimise_file(path: str, passes: Sequence[str], settings: Settings) -> str:
    """The IR of a model in a file after the passes, in order; `settings` are what passes are told."""
    opened = open_model(Path(path))
    return _run(opened.module, opened.context, passes, settings)


def _run(module: Op, context: Context, passes: Sequence[str], settings: Settings) -> str:
    context.options = settings.options()
    check = EachPass() if settings.verify_each else None
    manager = Manager(
        context,
        before=None if check is None else check.before,
        after=None if check is None else check.after,
    )
    manager.run(module, passes)
    verify(module)
    return print_module(module)
