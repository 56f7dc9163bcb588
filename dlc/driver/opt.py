"""Passes by name on IR text: `dlc opt`, and how the tests in text are run.

A pass that is asked for and has nothing to work on, because the passes before it did not run, is
refused: to do nothing silently would look like a result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from dlc.dialects.builtin import Module
from dlc.driver.extensions import load_extensions
from dlc.driver.open import open_model, read_ir
from dlc.driver.pipelines import LOADED, STAGES
from dlc.driver.searches import use_machine_code
from dlc.driver.settings import Settings
from dlc.driver.stages import has_kernels, stages_of
from dlc.driver.verify_each import EachPass
from dlc.errors import UsageError
from dlc.ir.core import Op
from dlc.ir.passes import PASSES, Context, Manager
from dlc.ir.verify import verify
from dlc.runtime.collector import without_collections
from dlc.text.ir_printer import print_module
from dlc.text.ir_short import print_short

assert LOADED and PASSES, "the modules that define the passes are loaded"


def optimise_text(text: str, passes: Sequence[str], *, file: str, verify_each: bool = False) -> str:
    """The text of a module after the passes, in order. `file` is what messages call it.

    Raises ModelError for a text that is wrong, UsageError for a pass that does not exist.
    """
    load_extensions()
    settings = Settings(verify_each=verify_each)
    return print_module(_after(read_ir(text, file), Context(), passes, settings))


def optimise_file(
    path: str, passes: Sequence[str], settings: Settings, *, short: bool = False
) -> str:
    """The IR of a model in a file after the passes, in order; `settings` are what passes are told.

    It is in MLIR's generic form, or with `short` in the short spelling (`dlc.text.ir_short`).
    Raises UsageError: D0901 for a pass that does not exist, D0905 for one that the module is not ready for.
    """
    opened = open_model(Path(path))

    def check(name: str, module: Op) -> None:
        assert isinstance(module, Module)
        _check_ready(name, module, opened.name)

    module = _after(opened.module, opened.context, passes, settings, check)
    return print_short(module) if short else print_module(module)


GRAPH_ONLY = frozenset(
    {"algebra", "autodiff", "decompose", "fold_scales", "fold_weights", "layout"}
)
KERNELS = frozenset({"collapse", "fuse", "keep_wide", "make_prepare", "pack"})
"""Passes that look for kernels, with whatever else there is."""
LEADING = {
    "kernel": ("autodiff", "decompose", "lower_to_kernels"),
    "plan": ("plan_memory",),
    "loop": ("lower_to_loops",),
}
"""The passes without which there is no such level."""


def _check_ready(name: str, module: Module, file: str) -> None:
    """Whether the module is at a level that the pass works on."""
    stages = stages_of(module)
    if name in GRAPH_ONLY:
        wanted, ready = "graph", "graph" in stages
    elif name in KERNELS:
        early = stages == ("graph",) and not has_kernels(module)
        wanted, ready = "kernel", not early and bool({"graph", "kernel"} & {*stages})
    elif name == "lower_to_kernels":
        wanted, ready = "graph", bool({"graph", "kernel"} & {*stages})
    elif name == "plan_memory":
        wanted, ready = "kernel", "kernel" in stages
    elif name == "lower_to_loops":
        wanted, ready = "plan", "plan" in stages
    else:
        return
    if not ready:
        raise _not_ready(name, wanted, stages[0], file)


def _not_ready(name: str, wanted: str, stage: str, file: str) -> UsageError:
    first, last = STAGES.index(stage), STAGES.index(wanted)
    missing = [step for later in STAGES[first + 1 : last + 1] for step in LEADING[later]]
    return UsageError(
        f"{name} works at {wanted} level, and {file} is at {stage} level when its turn comes",
        code="D0905",
        help=f"put {', '.join(missing)} before it" if missing else "put it before what lowers",
    )


@without_collections()
def _after(
    module: Op,
    context: Context,
    passes: Sequence[str],
    settings: Settings,
    ready: Callable[[str, Op], None] | None = None,
) -> Op:
    """The module after the passes, verified."""
    context.options = settings.options()
    use_machine_code()
    check = EachPass() if settings.verify_each else None

    def before(name: str, module: Op) -> None:
        if ready is not None:
            ready(name, module)
        if check is not None:
            check.before(name, module)

    manager = Manager(context, before=before, after=None if check is None else check.after)
    manager.run(module, passes)
    verify(module)
    return module
