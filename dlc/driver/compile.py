"""Compiling: a module at some level becomes an artifact, by the pipelines of its optimisation level."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

from dlc import __version__
from dlc.dialects.limits import limits_of
from dlc.driver.bounds import narrow
from dlc.driver.build import Sources, build_artifact
from dlc.driver.cache import open_cache
from dlc.driver.code import CodeMaker
from dlc.driver.decisions import recorded
from dlc.driver.entries import interfaces, settle_interfaces
from dlc.driver.known import key_of, recall, remember
from dlc.driver.memory_limit import check_bounded, kept_within
from dlc.driver.opened import Opened
from dlc.driver.pipelines import Device, pipeline
from dlc.driver.reproduce import reproducer
from dlc.driver.searches import use_machine_code
from dlc.driver.settings import Settings
from dlc.driver.stages import first_below_graph
from dlc.driver.verify_each import EachPass
from dlc.driver.weights import Given, Weights, gather
from dlc.errors import ArtifactError, DlcError, ModelError, Place, Unsupported
from dlc.ir.core import Op
from dlc.ir.passes import Context, Manager, Options, Pass
from dlc.ir.verify import verify
from dlc.lowering.negative_sizes import check_least
from dlc.passes.devices import unplace, uses_gpu
from dlc.runtime import manifest
from dlc.runtime.artifact import Artifact
from dlc.runtime.collector import without_collections
from dlc.runtime.model import Model
from dlc.text.ir_printer import print_module

Observer = Callable[[str, Op], None]

MORE_RECOMPUTED = (0.25, 4.0)
"""How much longer a call may take for values that are computed again, tried where memory has a limit."""


@dataclass(slots=True)
class Report:
    """How long the parts of a compilation took, in seconds."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])
    notes: tuple[str, ...] = ()
    cached: int = 0
    compiled: int = 0
    recalled: bool = False
    """Whether the same graph was compiled before, and everything came from the cache."""


def lower(opened: Opened, settings: Settings, stage: str, after: Observer | None = None) -> None:
    """Bring the module of an opened model to a later stage, in place."""
    settings = settings.keeping(limits_of(opened.module))
    opened.context.options = _options(opened, settings)
    use_machine_code()
    check = EachPass() if settings.verify_each else None

    def observe(name: str, module: Op) -> None:
        if check is not None:
            check.after(name, module)
        if after is not None:
            after(name, module)

    if settings.kind == "cuda":
        unplace(opened.module)
    device = device_of(opened, settings)
    passes = pipeline(opened.stage, stage, settings.level, device)
    manager = Manager(
        opened.context,
        before=None if check is None else check.before,
        after=observe,
        reproduce=_reproducer(opened, settings, stage, device),
    )
    manager.run(opened.module, passes)
    verify(opened.module)
    opened.stage = stage


def device_of(opened: Opened, settings: Settings) -> Device:
    """What a model is lowered for."""
    if settings.kind == "cuda":
        return Device.CUDA
    return Device.HETERO if uses_gpu(opened.module) else Device.CPU


def _options(opened: Opened, settings: Settings) -> Options:
    """What passes are told of the choices and of the model."""
    # A promise is about the largest sizes that there may be, not about those that are usual.
    training = opened.training if settings.max_memory is None else None
    return replace(settings.options(), batch=None if training is None else training.batch)


def _reproducer(
    opened: Opened, settings: Settings, stage: str, device: Device
) -> Callable[[Pass[...]], str] | None:
    """What writes a file when a pass fails, where the model can be read again."""
    reopen = opened.reopen
    if reopen is None:
        return None

    def read_again() -> tuple[Op, Context]:
        again = reopen()
        return again.module, again.context

    passes = pipeline(opened.read_at, stage, settings.level, device)
    usual = Settings().flags
    flags = [flag for flag in settings.flags if flag not in usual]
    return reproducer(read_again, passes, _options(opened, settings), flags, Path.cwd())


def keep_promises(opened: Opened, settings: Settings) -> Settings:
    """The choices, narrowed to what a text demands.

    Raises Unsupported (D0707) for what compiled code would not keep, and UsageError or ModelError (D0709)
    for demands that exclude each other.
    """
    if opened.unkept:
        raise Unsupported(opened.unkept, sources=opened.texts)
    try:
        return settings.keeping(limits_of(opened.module))
    except DlcError as error:
        error.sources.update(opened.texts)
        raise


def compile_opened(
    opened: Opened,
    settings: Settings,
    weights: Given = None,
    *,
    report: Report | None = None,
    after: Observer | None = None,
) -> Artifact:
    """The artifact of an opened model, at whatever stage it is.

    Raises ArtifactError (D0616) for IR below the graph that nobody said to trust, Unsupported for what its
    text demands and compiled code would not keep.
    """
    _check_trusted(opened)
    settings = keep_promises(opened, settings)
    report = report or Report()
    place = _bounded(opened, settings)
    made = _compiled(opened, settings, weights, report, after)
    if settings.max_memory is None:
        return made
    for effort in MORE_RECOMPUTED:
        try:
            return kept_within(made, settings.max_memory, place)
        except Unsupported:
            if not _can_recompute(opened, settings):
                raise
        assert opened.reopen is not None
        opened = opened.reopen()
        _bounded(opened, settings)
        made = _compiled(opened, replace(settings, recompute=effort), weights, report, after)
    return kept_within(made, settings.max_memory, place)


def _check_trusted(opened: Opened) -> None:
    """Only in a graph is every index checked: below it code may reach any memory of the process."""
    found = None if opened.trust_ir else first_below_graph(opened.module)
    if found is None:
        return
    name = next(iter(opened.listings), opened.name)
    with opened.quoting():
        raise ArtifactError(
            f"{name} has {found.name}, which is below the graph and may use any memory, as a program may",
            code="D0616",
            place=found.location.place,
            help="compile the model's text or its graph; or say --trust-ir, if you trust it as a program",
        )


def _bounded(opened: Opened, settings: Settings) -> Place | None:
    """Narrow the dims of a model to what was chosen; gives the place of its limit of the memory.

    Raises ModelError where there is such a limit and dims have no upper bound (D0708), and for values
    whose size the bounds let be below 0 (D0715).
    """
    limits = limits_of(opened.module)
    place = next((limit.place for limit in limits if limit.name == "memory"), None)
    try:
        named = {n: bound for n, bound in settings.dims.items() if n not in opened.numbers}
        narrow(opened.module, named)
        check_least(opened.module)
        if settings.max_memory is not None:
            check_bounded(interfaces(opened.module), place)
    except DlcError as error:
        error.sources.update(opened.texts)
        raise
    return place


def _can_recompute(opened: Opened, settings: Settings) -> bool:
    """Whether compiling it once more could need less memory."""
    again = opened.reopen is not None and opened.read_at == "graph"
    return again and settings.level > 0 and "recompute" not in settings.disabled


def _compiled(
    opened: Opened, settings: Settings, weights: Given, report: Report, after: Observer | None
) -> Artifact:
    """The artifact, from the cache if the same graph was compiled before."""
    start = time.perf_counter()
    with opened.quoting():
        settle_interfaces(opened.module)
    interface = tuple(interfaces(opened.module))
    if not interface:
        raise ModelError(
            f"{opened.name} has no entry point",
            code="D0222",
            help="write `export` before the function that the artifact is to have",
        )
    cache = open_cache()
    if cache is None or after is not None or settings.verify_each:
        return _finished(opened, settings, interface, weights, report, after)
    key = key_of(
        opened.module,
        (
            *(opened.name, opened.stage, *settings.flags, str(settings.recompute)),
            str(_options(opened, settings).batch),
            *(repr(opened.layers), repr(interface)),
            *map(str, opened.context.log),
        ),
        opened.texts,
        settings.processor,
    )
    kept = recall(cache, key)
    if kept is not None:
        gathered = _gathered(opened, weights, kept.names)
        report.recalled, report.notes = True, gathered.notes
        report.seconds["recall"] = time.perf_counter() - start
        return kept.complete(gathered, opened.training)
    made = _finished(opened, settings, interface, weights, report, after)
    remember(cache, key, made)
    return made


def _gathered(opened: Opened, weights: Given, names: Collection[str] | None = None) -> Weights:
    """The numbers of the weights of these names, or of all that the module has."""
    seed = 0 if opened.training is None else opened.training.seed
    return gather(opened.module, weights, opened.folder, opened.arrays, seed, names)


@without_collections()
def _finished(
    opened: Opened,
    settings: Settings,
    interface: tuple[manifest.Entry, ...],
    weights: Given,
    report: Report,
    after: Observer | None,
) -> Artifact:
    """The artifact of an opened model, compiled."""
    if opened.stage == "graph":
        lower(opened, settings, "graph", after)
    gathered = _gathered(opened, weights)
    report.notes = gathered.notes
    sources = Sources(
        opened.name,
        opened.texts,
        print_module(opened.module),
        flags=settings.flags,
        layers=opened.layers,
        version=__version__,
        training=opened.training,
    )
    start = time.perf_counter()
    if opened.stage != "loop":
        lower(opened, settings, "plan", after)
        sources = replace(sources, plan=print_module(opened.module))
    lower(opened, settings, "loop", after)
    sources = replace(sources, decisions=recorded(opened.context.log))
    lowered = time.perf_counter()
    cache = open_cache()
    code = CodeMaker(settings.processor, settings.level, cache, settings.gpu)
    artifact = _built(opened, interface, gathered, sources, code)
    report.seconds |= {"lower": lowered - start, "code": time.perf_counter() - lowered}
    if cache is not None:
        report.cached, report.compiled = cache.hits, cache.misses
    return artifact


def _built(
    opened: Opened,
    interface: tuple[manifest.Entry, ...],
    weights: Weights,
    sources: Sources,
    code: CodeMaker,
) -> Artifact:
    """The artifact of a lowered module. A plan that users wrote is checked as a loader checks it.

    Raises ModelError (D0164) for what a loader would refuse.
    """
    try:
        artifact = build_artifact(opened.module, interface, weights, sources, code)
        if opened.read_at in ("plan", "loop"):
            Model(artifact, untrusted=True).close()
    except ArtifactError as error:
        raise ModelError(
            f"what is made of {opened.name} would not be loaded: {error.diagnostics[0].message}",
            code="D0164",
            help="compile it from its kernels or its graph",
        ) from None
    return artifact
