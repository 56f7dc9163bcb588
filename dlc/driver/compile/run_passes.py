"""Passes by name on IR text: `dlc opt`, and how the tests in text are run.

A pass that is asked for and has nothing to work on, because the passes before it did not run, is
refused: to do nothing silently would look like a result.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dlc.dialects.builtin import Module
from dlc.driver.compile.checks.verify_each import EachPass
from dlc.driver.compile.native_planner import machine_code
from dlc.driver.compile.op_counts import BEFORE, OpCounts
from dlc.driver.compile.pipelines import STAGES
from dlc.driver.compile.settings import Settings
from dlc.driver.source.extensions import load_extensions
from dlc.driver.source.open import open_model, read_ir
from dlc.driver.source.stages import has_kernels, stages_of
from dlc.errors import UsageError
from dlc.ir.core import Op
from dlc.ir.passes import Context, Manager, Pipeline, parse_passes
from dlc.ir.verify import verify
from dlc.runtime.system.gc_pause import without_collections
from dlc.text.ir.printer import print_module
from dlc.text.ir.short import print_short


def optimise_text(text: str, passes: str, *, file: str, verify_each: bool = False) -> str:
    """The text of a module after passes such as `fuse{max_inputs=4},dce`, in order.

    `file` is what messages call it. Raises ModelError for a text that is wrong, UsageError for a pass or
    an option that does not exist.
    """
    load_extensions()
    settings = Settings(verify_each=verify_each)
    return print_module(_after(read_ir(text, file), Context(), parse_passes(passes), settings))


def optimise_file(
    path: str,
    passes: str,
    settings: Settings,
    *,
    short: bool = False,
    counts: OpCounts | None = None,
) -> tuple[str, list[str]]:
    """The IR of a model in a file after passes such as `fuse{max_inputs=4},dce`, and these, one by one.

    It is in MLIR's generic form, or with `short` in the short spelling (`dlc.text.ir.short`). `settings`
    are what passes are told, `counts` receives the operations before and after each pass. Raises
    UsageError: D0901 for a pass that does not exist, D0902 for an option that it does not take, D0905 for
    a pass that the module is not ready for.
    """
    model = open_model(Path(path))
    steps = parse_passes(passes)

    def check(name: str, module: Op) -> None:
        assert isinstance(module, Module)
        _check_ready(name, module, model.name)

    if counts is not None:
        counts.see(BEFORE, model.module)
    module = _after(model.module, model.context, steps, settings, check, counts)
    return print_short(module) if short else print_module(module), list(map(str, steps))


GRAPH_ONLY = frozenset(
    {"algebra", "autodiff", "decompose", "fold_scales", "fold_weights", "layout"}
)
KERNELS = frozenset({"collapse", "fuse", "elide_narrowing", "make_prepare", "pack"})
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
    passes: Pipeline,
    settings: Settings,
    ready: Callable[[str, Op], None] | None = None,
    counts: OpCounts | None = None,
) -> Op:
    """The module after the passes, verified; they are told what the settings say."""
    context.options = settings.options()
    context.compiler = machine_code
    return passed(module, context, passes, settings.verify_each, ready, counts)


def passed(
    module: Op,
    context: Context,
    passes: Pipeline,
    verify_each: bool,
    ready: Callable[[str, Op], None] | None = None,
    counts: OpCounts | None = None,
) -> Op:
    """The module after the passes, verified, with `verify_each` evaluated after each.

    `ready` sees the module before each pass, `counts` what is in it after each. Raises what the passes
    refuse, NumbersDiffer for one that changes what is computed.
    """
    check = EachPass() if verify_each else None

    def before(name: str, module: Op) -> None:
        if ready is not None:
            ready(name, module)
        if check is not None:
            check.before(name, module)

    def after(name: str, module: Op) -> None:
        if check is not None:
            check.after(name, module)
        if counts is not None:
            counts.see(name, module)

    manager = Manager(context, before=before, after=after)
    manager.run(module, passes)
    verify(module)
    return module
