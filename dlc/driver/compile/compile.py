"""Compiling: a module at some level becomes an artifact, by the pipelines of its optimisation level."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from dlc.codegen.engine.assemble import begin_engine
from dlc.codegen.kernels import KernelsInBackground
from dlc.codegen.llvm.background import Background
from dlc.codegen.llvm.begun import BegunObjects, ObjectCache
from dlc.dialects.limits import read_limits
from dlc.driver.compile.build_artifact import Sources, build_artifact
from dlc.driver.compile.cache import DiskCache, open_cache
from dlc.driver.compile.checks.kernel_check import check_kernels, own_texts, plans_of
from dlc.driver.compile.checks.reproduce import reproducer
from dlc.driver.compile.checks.verify_each import EachPass
from dlc.driver.compile.code_maker import CodeMaker
from dlc.driver.compile.compile_cache import key_of, recall, remember
from dlc.driver.compile.copied_updates import copied_updates
from dlc.driver.compile.decisions import recorded
from dlc.driver.compile.entries import interfaces, settle_interfaces
from dlc.driver.compile.job import CompileJob, check_kept
from dlc.driver.compile.memory_limit import check_bounded, kept_within, least_memory
from dlc.driver.compile.native_planner import begin_searches, machine_code
from dlc.driver.compile.pipelines import Device
from dlc.driver.compile.settings import Settings
from dlc.driver.source.dim_bounds import narrow_dims
from dlc.driver.source.source_model import SourceModel
from dlc.driver.source.stages import first_below_graph
from dlc.driver.source.weight_sources import Weights, WeightsArgument, gather
from dlc.errors import (
    ArtifactError,
    DlcError,
    InternalError,
    ModelError,
    SourceLocation,
    Unsupported,
)
from dlc.errors.options import option
from dlc.ir.core import Op
from dlc.ir.passes import Context, Manager, Pass
from dlc.ir.verify import verify
from dlc.lowering.graph_to_kernel.call_conditions import check_least
from dlc.passes.graph.autodiff import autodiff
from dlc.passes.graph.device_placement import unplace
from dlc.passes.graph.mixed_precision import mixed_precision
from dlc.passes.sharding.partition import has_mesh, partition
from dlc.runtime.artifact import manifest
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.model import Model
from dlc.runtime.system.gc_pause import without_collections
from dlc.target.cpu import CpuTarget
from dlc.text.ir.printer import print_module
from dlc.version import VERSION

Observer = Callable[[str, Op], None]

MANY_OPERATIONS = 60
"""Of a graph whose kernels are worth further processes."""
MORE_RECOMPUTED = (0.25, 4.0)
"""Slowdowns by rematerialization that are tried, in order, under a memory limit."""


@dataclass(slots=True)
class Report:
    """The time of each part of a compilation, in seconds."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])
    notes: tuple[str, ...] = ()
    cached: int = 0
    compiled: int = 0
    recalled: bool = False
    """Whether the same graph was compiled before, and everything came from the cache."""
    lowered: SourceModel | None = None
    """The model at loop level, as the artifact was made from it; None if that was recalled."""


# Lowering.


def lower(
    model: SourceModel, settings: Settings, stage: str, after: Observer | None = None
) -> CompileJob:
    """Bring the module of a model to a later stage, in place."""
    job = CompileJob.of(model, settings)
    lower_to(job, stage, after)
    return job


def lower_to(job: CompileJob, stage: str, after: Observer | None = None) -> tuple[str, ...]:
    """Walk down to a stage; `after` sees the module after each pass. Gives what was not verified."""
    model = job.model
    if job.settings.kind == "cuda":
        unplace(model.module)
    check = _run(job, job.pipeline(model.stage, stage), stage, after)
    verify(model.module)
    model.stage = stage
    return () if check is None else check.notes()


def _run(
    job: CompileJob, passes: Sequence[Pass[...]], stage: str, after: Observer | None = None
) -> EachPass | None:
    """Run passes on the way to a stage as the settings say: checked after each, up to a rewrite."""
    model, check = job.model, EachPass() if job.settings.verify_each else None
    model.context.options = job.options
    model.context.compiler = job.compiler
    model.context.rewrites.last = job.settings.bisect

    def observe(name: str, module: Op) -> None:
        if check is not None:
            check.after(name, module)
        if after is not None:
            after(name, module)

    manager = Manager(
        model.context,
        before=None if check is None else check.before,
        after=observe,
        reproduce=_reproducer(job, stage),
    )
    manager.run(model.module, passes)
    return check


def _reproducer(job: CompileJob, stage: str) -> Callable[[Pass[...]], str] | None:
    """The hook that writes a reproducer when a pass fails, if the model can be read again."""
    reopen = job.model.reopen
    if reopen is None:
        return None

    def read_again() -> tuple[Op, Context]:
        again = reopen()
        return again.module, again.context

    usual = Settings().flags
    flags = [flag for flag in job.settings.flags if flag not in usual]
    passes = job.pipeline(job.model.read_at, stage)
    return reproducer(read_again, passes, job.options, flags, Path.cwd())


# Compiling.


def compile_model(
    model: SourceModel,
    settings: Settings,
    weights: WeightsArgument = None,
    *,
    report: Report | None = None,
    after: Observer | None = None,
) -> Artifact:
    """The artifact of a model, at whatever stage it is.

    Raises ArtifactError (D0616) for IR below the graph that nobody said to trust, Unsupported for what its
    text demands and compiled code would not keep.
    """
    _check_trusted(model)
    check_kept(model)
    report = report or Report()
    job = CompileJob.of(model, settings)
    if model.staged and job.device is not Device.CPU:
        raise Unsupported(
            f"{model.name} has the stages of a pipeline, which are compiled for processors only",
            code="D0701",
            help=f"write {option('target', 'cpu')}, or leave out --ranks",
        )
    limit_place = _narrow(job)
    artifact = _compiled(job, weights, report, after)
    report.notes = (*report.notes, *copied_updates(artifact))
    most = job.settings.max_memory
    if most is None:
        return artifact
    for thriftier in _thriftier(job):
        try:
            return kept_within(artifact, most, limit_place)
        except Unsupported:
            attempt = thriftier(job)
            _narrow(attempt)
            other = _compiled(attempt, weights, report, after)
            # Direct sums may need more: gradients of kernels are summed from a matrix of windows.
            if least_memory(other) < least_memory(artifact):
                job, artifact = attempt, other
    return kept_within(artifact, most, limit_place)


def _thriftier(job: CompileJob) -> Iterator[Callable[[CompileJob], CompileJob]]:
    """How to change a job into ones that may need less memory and take longer, in order."""
    if not job.can_begin_again:
        return
    if job.settings.conv == "auto":
        yield CompileJob.with_direct_convolutions
    if job.can_recompute:
        for budget in MORE_RECOMPUTED:
            yield partial(CompileJob.with_recompute, budget=budget)


def _check_trusted(model: SourceModel) -> None:
    """Only in a graph is every index checked: below it code may reach any memory of the process."""
    below = None if model.trust_ir else first_below_graph(model.module)
    if below is None:
        return
    name = next(iter(model.listings), model.name)
    with model.quoting():
        raise ArtifactError(
            f"{name} has {below.name}, which is below the graph and may use any memory, as a program may",
            code="D0616",
            place=below.location.place,
            help=f"compile the model's text or its graph; or say {option('trust_ir', True)}, "
            "if you trust it as a program",
        )


def _narrow(job: CompileJob) -> SourceLocation | None:
    """Narrow the dims of a model to what was chosen; gives the place of its limit of the memory.

    Raises ModelError where there is such a limit and dims have no upper bound (D0708), and for values
    whose size the bounds let be below 0 (D0715).
    """
    model, settings = job.model, job.settings
    limits = read_limits(model.module)
    place = next((limit.place for limit in limits if limit.name == "memory"), None)
    try:
        narrow_dims(model, settings.dims)
        check_least(model.module)
        if settings.max_memory is not None:
            check_bounded(interfaces(model.module), place)
    except DlcError as error:
        error.sources.update(model.texts)
        raise
    return place


def _compiled(
    job: CompileJob, weights: WeightsArgument, report: Report, after: Observer | None
) -> Artifact:
    """The artifact, from the cache if the same graph was compiled before."""
    start = time.perf_counter()
    model, settings = job.model, job.settings
    with model.quoting():
        _partition(job)
        settle_interfaces(model.module)
    interface = tuple(interfaces(model.module))
    if not interface:
        raise ModelError(
            f"{model.name} has no entry point",
            code="D0222",
            help="write `export` before the function that the artifact is to have",
        )
    cache = open_cache()
    if cache is None or after is not None or settings.verify_each:
        return _built(job, interface, weights, report, after)
    key = key_of(
        model.module,
        (
            *(model.name, model.stage, *settings.flags, str(settings.recompute)),
            str(job.options.batch),
            *(repr(model.layers), repr(interface), repr(model.staged)),
            *map(str, model.context.log),
        ),
        model.texts,
        settings.processor,
    )
    kept = recall(cache, key)
    if kept is not None:
        gathered = _gathered(model, weights, kept.names)
        report.recalled, report.notes = True, gathered.notes
        report.seconds["recall"] = time.perf_counter() - start
        return kept.complete(gathered, model.training)
    artifact = _built(job, interface, weights, report, after)
    remember(cache, key, artifact)
    return artifact


def _partition(job: CompileJob) -> None:
    """Make a program for a mesh that of a rank, before its callers' view of it is settled."""
    model = job.model
    if model.stage == "graph" and has_mesh(model.module):
        _run(job, (mixed_precision, autodiff, partition), "graph")


def _gathered(
    model: SourceModel, weights: WeightsArgument, names: Collection[str] | None = None
) -> Weights:
    """The numbers of the weights of these names, or of all that the module has."""
    seed = 0 if model.training is None else model.training.seed
    if model.arrays is None or not model.is_compiled_once:
        return gather(model.module, weights, model.folder, model.arrays, seed, names)
    own, model.arrays = dict(model.arrays), {}
    return gather(model.module, weights, model.folder, own, seed, names, leave=own)


@dataclass(frozen=True, slots=True)
class _Begun:
    """The kernels that further processes compile, and where the compiler's own code is kept."""

    kernels: KernelsInBackground | None
    own: ObjectCache | None


@without_collections()
def _built(
    job: CompileJob,
    interface: tuple[manifest.Entry, ...],
    weights: WeightsArgument,
    report: Report,
    after: Observer | None,
) -> Artifact:
    """The artifact of a model."""
    settings, cache = job.settings, open_cache()
    target = settings.processor
    if not isinstance(target, CpuTarget) or not _is_large(job):
        return _lowered(job, interface, weights, report, after, cache, _Begun(None, open_cache()))
    with Background() as background:
        own = BegunObjects(open_cache(), background)
        begin_searches(own)
        begin_engine(own)
        job = replace(job, compiler=partial(machine_code, cache=own))
        kernels = KernelsInBackground(target, settings.level, BegunObjects(cache, background))
        return _lowered(job, interface, weights, report, after, cache, _Begun(kernels, own))


def _is_large(job: CompileJob) -> bool:
    """Whether to compile kernels while others are lowered: a process takes as long as some kernels."""
    return (
        job.model.stage == "graph"
        and job.device is Device.CPU
        and not job.settings.kernels
        and sum(1 for _ in job.model.module.walk()) >= MANY_OPERATIONS
    )


def _lowered(
    job: CompileJob,
    interface: tuple[manifest.Entry, ...],
    weights: WeightsArgument,
    report: Report,
    after: Observer | None,
    cache: DiskCache | None,
    begun: _Begun,
) -> Artifact:
    """The same: down to the graph, the plan and the loops, then machine code."""
    model, settings = job.model, job.settings
    if model.stage == "graph":
        lower_to(job, "graph", after)
    gathered = _gathered(model, weights)
    report.notes = gathered.notes
    sources = Sources(
        model.name,
        model.texts,
        print_module(model.module),
        flags=settings.flags,
        layers=model.layers,
        version=VERSION,
        training=model.training,
        staged=model.staged,
    )
    start = time.perf_counter()
    if model.stage != "loop":
        lower_to(job, "plan", after)
        sources = replace(sources, plan=print_module(model.module))
    plans = plans_of(model.module) if settings.kernels else {}
    kernels = begun.kernels
    model.context.kernel_lowered = None if kernels is None else kernels.begin
    report.notes += lower_to(job, "loop", after)
    sources = replace(sources, decisions=recorded(model.context.log))
    lowered = time.perf_counter()
    own = own_texts(settings.kernels, model.module)
    if own:
        check_kernels(own, plans, model.module, settings.processor, settings.level)
    code = CodeMaker(
        settings.processor, settings.level, cache, settings.gpu, own, kernels, begun.own
    )
    artifact = _linked(model, interface, gathered, sources, code)
    report.seconds |= {"lower": lowered - start, "code": time.perf_counter() - lowered}
    report.lowered = model
    if cache is not None:
        report.cached, report.compiled = cache.hits, cache.misses
    return artifact


def _linked(
    model: SourceModel,
    interface: tuple[manifest.Entry, ...],
    weights: Weights,
    sources: Sources,
    code: CodeMaker,
) -> Artifact:
    """The artifact of a lowered module. A plan that users wrote is checked as a loader checks it.

    Raises ModelError (D0164) for what a loader would refuse, InternalError if that is our own plan.
    """
    written = model.read_at in ("plan", "loop")
    try:
        artifact = build_artifact(model.module, interface, weights, sources, code)
        if written:
            Model(artifact, untrusted=True).close()
    except ArtifactError as error:
        why = f"what is made of {model.name} would not be loaded: {error.diagnostics[0].message}"
        if not written:
            raise InternalError(why) from error
        raise ModelError(
            why,
            code="D0164",
            help="compile it from its kernels or its graph",
        ) from None
    return artifact
