"""Compiling: a module at some level becomes an artifact, by the pipelines of its optimisation level."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dlc import __version__
from dlc.codegen.llvm import TARGETS, Target
from dlc.dialects.builtin import Module
from dlc.dialects.limits import Limit, limits_of
from dlc.driver.bounds import narrow
from dlc.driver.build import CodeMaker, Sources, build_artifact
from dlc.driver.cache import open_cache
from dlc.driver.entries import interfaces, return_all_counts
from dlc.driver.known import key_of, recall, remember
from dlc.driver.memory_limit import check_bounded, kept_within
from dlc.driver.pipelines import pipeline
from dlc.driver.reproduce import reproducer
from dlc.driver.verify_each import EachPass
from dlc.driver.weights import Array, Given, Weights, gather
from dlc.errors import (
    ArtifactError,
    Diagnostic,
    DlcError,
    ModelError,
    Unsupported,
    UsageError,
    render,
)
from dlc.ir.core import Op
from dlc.ir.passes import PASSES, Context, Manager, Options, unknown_pass
from dlc.ir.verify import verify
from dlc.runtime import manifest
from dlc.runtime.artifact import Artifact
from dlc.runtime.model import Model
from dlc.text.ir_printer import print_module

Observer = Callable[[str, Op], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user chooses about a compilation.

    `level` is 0 to 3; `target` is `cpu` (this machine) or `cpu:NAME` (an x86-64 level or a processor);
    `matmul` says who computes products: `blas`, `generated`, or `auto`; `disabled` names passes to
    leave out. With `verify_each` the module is verified and evaluated after every pass. `max_memory` is
    the most bytes that a call may need, `dims` are narrower bounds of named sizes, and `fast_narrow` is
    the limit of that name.
    """

    level: int = 2
    target: str = "cpu"
    matmul: str = "auto"
    disabled: frozenset[str] = frozenset()
    verify_each: bool = False
    max_memory: int | None = None
    dims: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    fast_narrow: bool = False

    def __post_init__(self) -> None:
        if self.level not in range(4):
            raise UsageError(f"there is no -O{self.level}", code="D0902", help="use -O0 to -O3")
        if self.matmul not in ("blas", "generated", "auto"):
            raise UsageError(
                f"{self.matmul!r} computes no products",
                code="D0902",
                help="use --matmul blas, generated or auto",
            )
        for name in sorted(self.disabled):
            if name not in PASSES:
                raise unknown_pass(name)
            if PASSES[name].required:
                raise UsageError(
                    f"the pass {name} cannot be left out: what follows needs it", code="D0902"
                )

    @property
    def processor(self) -> Target:
        """The processor that code is made for."""
        kind, _, name = self.target.partition(":")
        if kind != "cpu":
            raise UsageError(
                f"there is no target {self.target!r}",
                code="D0902",
                help=f"use cpu, or cpu:NAME with one of {', '.join(TARGETS)}",
            )
        return Target.named(name or "host")

    @property
    def flags(self) -> tuple[str, ...]:
        """The choices that could change a byte of the artifact, as on the command line."""
        further = [f"--disable-pass={name}" for name in sorted(self.disabled)]
        if self.max_memory is not None:
            further.append(f"--max-memory={self.max_memory}")
        further += [f"--dim={name}={low}..{high}" for name, (low, high) in self.dims.items()]
        return (f"-O{self.level}", f"--target={self.target}", f"--matmul={self.matmul}", *further)

    def keeping(self, limits: Sequence[Limit]) -> Settings:
        """These choices, narrowed to what a text promises.

        Raises UsageError (D0709) where the two exclude each other, ModelError where two promises do.
        """
        found = self
        names = {limit.name for limit in limits}
        for limit in limits:
            match limit.name:
                case "deterministic":
                    if self.matmul == "blas":
                        why = "the bits are the library's"
                        raise UsageError([_contradiction(limit, "--matmul blas", why)])
                    found = replace(found, matmul="generated")
                case "exact":
                    if "fast_narrow" in names:
                        why = "that changes bits"
                        raise ModelError([_contradiction(limit, "limit fast_narrow", why)])
                    found = replace(found, level=min(found.level, 1))
                case "fast_narrow":
                    found = replace(found, fast_narrow=True)
                case _:
                    most = min(limit.bytes, found.max_memory or limit.bytes)
                    found = replace(found, max_memory=most)
        return found

    def options(self) -> Options:
        """What passes are told."""
        return Options(
            level=self.level,
            matmul=self.matmul,
            disabled=self.disabled,
            fast_narrow=self.fast_narrow,
            vector_bytes=self.processor.vector_bytes,
            fma="fma" in self.processor.features,
            half="f16c" in self.processor.features,
            rounding="sse4.1" in self.processor.features,
        )


def _contradiction(limit: Limit, other: str, why: str) -> Diagnostic:
    return Diagnostic(
        "D0709",
        f"limit {limit.name} and {other} exclude each other: {why}",
        limit.place,
        help="leave one of them out",
    )


@dataclass(slots=True)
class Opened:
    """A model that was read: its module at `stage`, and what is known about where it came from."""

    module: Module
    context: Context
    name: str
    texts: Mapping[str, str]
    folder: Path
    stage: str = "graph"
    layers: tuple[manifest.Layer, ...] = ()
    read_at: str = "graph"
    """The stage at which it was read."""
    stages: tuple[str, ...] = ("graph",)
    """The stages at which it may be taken to be."""
    reopen: Callable[[], Opened] | None = None
    """Reads it once more."""
    warnings: tuple[Diagnostic, ...] = ()

    @property
    def remarks(self) -> tuple[str, ...]:
        """The warnings about its text, as they are shown."""
        return tuple(render(warning, self.texts) for warning in self.warnings)

    unkept: tuple[Diagnostic, ...] = ()
    """What its text demands and compiled code would not keep: limits and devices."""

    arrays: Mapping[str, Array] | None = None
    """The numbers of its weights, where the file itself has them."""
    training: manifest.Training | None = None
    """How it trains, if its functions are those that train it."""
    can_train: bool = False
    """Whether its text says how it trains."""


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
    opened.context.options = settings.options()
    check = EachPass() if settings.verify_each else None

    def observe(name: str, module: Op) -> None:
        if check is not None:
            check.after(name, module)
        if after is not None:
            after(name, module)

    passes = pipeline(opened.stage, stage, settings.level)
    manager = Manager(
        opened.context,
        before=None if check is None else check.before,
        after=observe,
        reproduce=_reproducer(opened, settings, stage),
    )
    manager.run(opened.module, passes)
    verify(opened.module)
    opened.stage = stage


def _reproducer(opened: Opened, settings: Settings, stage: str) -> Callable[[str], str] | None:
    """What writes a file when a pass fails, where the model can be read again."""
    reopen = opened.reopen
    if reopen is None:
        return None

    def read_again() -> tuple[Op, Context]:
        again = reopen()
        return again.module, again.context

    passes = pipeline(opened.read_at, stage, settings.level)
    usual = Settings().flags
    flags = [flag for flag in settings.flags if flag not in usual]
    return reproducer(read_again, passes, settings.options(), flags, Path.cwd())


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

    Raises Unsupported for what its text demands and compiled code would not keep.
    """
    settings = keep_promises(opened, settings)
    limits = limits_of(opened.module)
    place = next((limit.place for limit in limits if limit.name == "memory"), None)
    try:
        narrow(opened.module, settings.dims)
        if settings.max_memory is not None:
            check_bounded(interfaces(opened.module), place)
    except DlcError as error:
        error.sources.update(opened.texts)
        raise
    made = _compiled(opened, settings, weights, report or Report(), after)
    if settings.max_memory is None:
        return made
    return kept_within(made, settings.max_memory, place)


def _compiled(
    opened: Opened, settings: Settings, weights: Given, report: Report, after: Observer | None
) -> Artifact:
    """The artifact, from the cache if the same graph was compiled before."""
    start = time.perf_counter()
    return_all_counts(opened.module)
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
        (opened.name, opened.stage, *settings.flags, repr(opened.layers), repr(interface)),
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
    lowered = time.perf_counter()
    cache = open_cache()
    code = CodeMaker(settings.processor, settings.level, cache)
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
