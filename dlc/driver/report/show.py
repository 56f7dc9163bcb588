"""A model at any stage of its way to machine code, as text; the steps between; a graph as a picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from dlc.codegen.kernels import assembly
from dlc.dialects import loop, mem, simt
from dlc.dialects.builtin import Module
from dlc.driver.compile import pipelines
from dlc.driver.compile.code_maker import KernelKind, texts_of
from dlc.driver.compile.compile import lower
from dlc.driver.compile.entries import (
    entry_functions,
    find_entry,
    find_function,
    parts_of,
    settle_interfaces,
)
from dlc.driver.compile.job import CompileJob
from dlc.driver.compile.settings import Settings
from dlc.driver.report.graph_drawing import draw
from dlc.driver.run.request import CompileRequest
from dlc.driver.source.dim_bounds import narrow_dims
from dlc.driver.source.source_model import SourceModel
from dlc.driver.source.training_text import write_training
from dlc.errors import UsageError
from dlc.ir.clone import clone, clone_block
from dlc.ir.core import Op
from dlc.ir.passes import PASSES, unknown_pass
from dlc.passes.graph.device_placement import uses_gpu
from dlc.runtime.system.atomic_write import make_folder, write_file
from dlc.text.ir.printer import print_module
from dlc.text.ir.short import print_short
from dlc.text.model.fmt import format_source

STAGES = ("text", *pipelines.STAGES, "llvm", "asm", "ptx")


@dataclass(frozen=True, slots=True)
class Shown:
    """The view that is asked for. `after` names a pass: the module after that pass (the last time it
    runs); with `changed` every pass that changes anything is shown. `folder` receives one numbered file
    for each of these steps. `short` spells IR so that types are inferred (`dlc.text.ir.short`)."""

    stage: str = "graph"
    entry: str | None = None
    after: str | None = None
    changed: bool = False
    folder: str | None = None
    svg: bool = False
    short: bool = False


def show_stage(request: CompileRequest, shown: Shown) -> str:
    """The text of a model at a stage, or its graph as SVG.

    Stage `ptx` is the code for a GPU, also where the target is none; of a model on a processor and a GPU it
    is what the GPU runs, and `asm` the rest. Raises UsageError: D0915 for a stage or a pass that is not on
    the way, D0904 for an entry point that does not exist.
    """
    _check_stage(shown.stage)
    _check_together(shown)
    model = request.open()
    if shown.stage == "ptx" and request.settings.kind == "cpu" and not uses_gpu(model.module):
        request = replace(request, settings=replace(request.settings, target="cuda"))
    if shown.entry is not None:
        find_entry(model.module, shown.entry)
    if shown.stage == "text":
        return _source(model)
    _check_ahead(model, shown.stage)
    with model.quoting():
        narrow_dims(model, request.settings.dims)
        settle_interfaces(model.module)
    write_training(model.module, model.training)
    steps = _Steps(shown, last=_printed(model.module, shown))
    stage = shown.stage if shown.stage in pipelines.STAGES else "loop"
    job = lower(model, request.settings, stage, steps.see)
    if shown.after is not None or shown.changed:
        return steps.text(job, stage)
    if shown.svg:
        return _picture(model, shown)
    match shown.stage:
        case "llvm":
            kinds = (loop.Func, simt.Func)
            return "\n".join([text for kind in kinds for text in _llvm(model, shown.entry, kind)])
        case "asm" | "ptx":
            return _assembly(model, request.settings, shown)
        case _:
            return _printed(model.module, shown)


def _check_ahead(model: SourceModel, stage: str) -> None:
    """Lowering goes one way: IR of a later level does not come back to an earlier one."""
    if STAGES.index(stage) < STAGES.index(model.stage):
        raise UsageError(
            f"{model.name} is at {model.stage} level, past {stage}",
            code="D0915",
            help=f"--stage {model.stage} shows it as it is",
        )


def _check_stage(stage: str) -> None:
    if stage not in STAGES:
        raise UsageError(
            f"there is no stage {stage!r}", code="D0915", help=f"stages are {', '.join(STAGES)}"
        )


def _check_together(shown: Shown) -> None:
    """Refuse combinations of options that would ignore one of them."""
    options = {
        "--after": shown.after is not None,
        "--changed": shown.changed,
        "--svg": shown.svg,
        "--dump-dir": shown.folder is not None,
    }
    chosen = [option for option, is_chosen in options.items() if is_chosen]
    if shown.short and (shown.svg or shown.stage in ("text", "llvm", "asm", "ptx")):
        other = "--svg" if shown.svg else f"--stage {shown.stage}"
        raise UsageError(
            f"--short is a spelling of IR, and {other} shows none",
            code="D0915",
            help="leave one of them out, or choose --stage graph, kernel, plan or loop",
        )
    if shown.stage == "text" and chosen:
        raise UsageError(
            f"{chosen[0]} is about passes, and --stage text is the source, before any pass",
            code="D0915",
            help=f"leave one of them out, or say --stage graph {chosen[0]}",
        )
    if shown.svg and shown.stage not in ("graph", "kernel"):
        raise UsageError(
            f"stage {shown.stage} is not a graph",
            code="D0915",
            help="--svg draws graph and kernel; dlc memory MODEL --svg FILE draws the plan",
        )
    views = [option for option in chosen if option != "--dump-dir"]
    if len(views) > 1:
        raise UsageError(
            f"{views[0]} and {views[1]} ask for different things", code="D0915", help="choose one"
        )


def _source(model: SourceModel) -> str:
    """The user's own text, laid out; IR as it was written."""
    name = model.name
    text = model.texts.get(name, "")
    return format_source(text, name) if name.endswith(".dlm") else text


def _printed(module: Op, shown: Shown) -> str:
    """The module, or one function or program of it with the weights and kernels that it needs.

    What the module itself says holds for each part: then the parts are printed as a module, too.
    """
    assert isinstance(module, Module)
    write = print_short if shown.short else print_module
    if shown.entry is None:
        return write(module)
    parts = parts_of(module, shown.entry)
    if not module.attributes:
        return "\n".join(map(write, parts))
    alone = Module.empty(module.location)
    alone.attributes.update(module.attributes)
    for op in parts:
        alone.body.append(clone(op, (), [clone_block(region) for region in op.regions]))
    return write(alone)


def _kernels_of(module: Op, entry: str) -> set[str]:
    """The names of the lowered kernels that the program of an entry point calls."""
    return {
        inner.kernel.name
        for op in module.regions[0]
        if isinstance(op, mem.Program) and op.sym_name == entry
        for inner in op.walk()
        if isinstance(inner, mem.Call)
    }


def _llvm(model: SourceModel, entry: str | None, kind: KernelKind) -> list[str]:
    """The LLVM text of each kernel of a kind, or of those of one entry point."""
    texts = texts_of(model.module, kind)
    kernels = texts.keys() if entry is None else _kernels_of(model.module, entry)
    return [text for name, text in texts.items() if name in kernels]


def _assembly(model: SourceModel, settings: Settings, shown: Shown) -> str:
    if shown.stage == "ptx" or settings.kind == "cuda":
        return assembly(_llvm(model, shown.entry, simt.Func), settings.gpu, settings.level)
    texts = _llvm(model, shown.entry, loop.Func)
    return assembly(texts, settings.processor, settings.level)


def _picture(model: SourceModel, shown: Shown) -> str:
    layers = {layer.path: layer.type for layer in model.layers}
    if shown.entry is None and len(entry_functions(model.module)) > 1:
        return draw(entry_functions(model.module), layers)
    return draw([find_function(model.module, shown.entry)], layers)


@dataclass(slots=True)
class _Steps:
    """The module after each pass, as far as the user asked for it."""

    shown: Shown
    last: str
    observed: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    count: int = 0

    @property
    def see(self) -> Callable[[str, Op], None] | None:
        """The observer of the passes, if one is needed."""
        shown = self.shown
        is_observed = shown.after is not None or shown.changed or shown.folder is not None
        return self._see if is_observed else None

    def _see(self, name: str, module: Op) -> None:
        text = _printed(module, self.shown)
        changed, self.last = text != self.last, text
        self.count += 1
        if self.shown.folder is not None and (changed or not self.shown.changed):
            _write_step(Path(self.shown.folder), f"{self.count:02}-{name}.dlir", text)
        if name == self.shown.after or (self.shown.changed and changed):
            self.observed.append((name, text))

    def text(self, job: CompileJob, stage: str) -> str:
        """The steps that were asked for."""
        if self.shown.after is not None:
            if not self.observed:
                raise _not_on_the_way(self.shown.after, job, stage)
            return self.observed[-1][1]
        return "\n".join(f"// after {name}\n{text}" for name, text in self.observed)


def _write_step(folder: Path, name: str, text: str) -> None:
    make_folder(folder)
    write_file(folder / name, [text.encode()])


def _not_on_the_way(name: str, job: CompileJob, stage: str) -> UsageError:
    if name not in PASSES:
        return unknown_pass(name)
    steps = job.pipeline(job.model.read_at, stage)
    passes = dict.fromkeys(step.name for step in steps)
    return UsageError(
        f"{name} does not run on the way to stage {stage}",
        code="D0915",
        help=f"passes are {', '.join(passes)}; --stage says how far to go",
    )
