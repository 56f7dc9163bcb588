"""From a compile request to an artifact, or to a model that can be called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dlc.driver.compile.compile import Observer, Report, compile_model
from dlc.driver.compile.entries import interfaces
from dlc.driver.compile.gradient_entry import add_gradient, gradient_function
from dlc.driver.compile.host_target import placed_here, to_run_here
from dlc.driver.compile.op_counts import BEFORE, OpCounts
from dlc.driver.compile.pipelines import STAGES
from dlc.driver.compile.rank_programs import mesh_of_ranks
from dlc.driver.compile.settings import AUTO, Settings
from dlc.driver.compile.shared_calls import share_calls
from dlc.driver.compile.stage_programs import divide_stages, has_stages
from dlc.driver.entry_choice import choose
from dlc.driver.run.calls import (
    Arguments,
    CallRequest,
    call,
    call_with,
    load_model,
    random_indices_told,
)
from dlc.driver.run.index_limits import limits_of
from dlc.driver.run.interpret import evaluate_entry
from dlc.driver.run.results import Results
from dlc.driver.run.watch import Watch
from dlc.driver.source.import_request import ImportRequest
from dlc.driver.source.open import open_model, open_training
from dlc.driver.source.source_model import SourceModel
from dlc.driver.source.weight_sources import INIT, WeightsArgument, lacks_file
from dlc.errors import UsageError
from dlc.frontend.elaboration.values import Datum
from dlc.ir.log import Decision
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.cpu.threads import check_threads
from dlc.runtime.model import Model
from dlc.runtime.ranks.agreement import made_once
from dlc.runtime.ranks.links import ranks_of


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """A request to compile: the model, and the options that the user chose.

    With `text` the model is that text, called `path`. `gradient` is `(entry, y, x)`: the entry point
    also gives the derivative of its result `y` by its input `x`. With `untrusted` the machine code of an
    artifact is never run: what runs is compiled from its graph. IR below the graph is compiled only with
    `trust_ir`. `places` has devices of submodules by path, `device` is the one that the model runs on,
    where that is not the first GPU, or the processor. `to_train` is for the functions that train the model
    instead of those that it exports, as the `train` block called `block` says. `decided` is what was chosen
    for the user, which the decision log begins with. `shapes` and `fixed` are what is asked of an ONNX
    file, as texts; one that does not come in for any sizes is imported for `call_sizes`. `ranks` is how
    many processes share the calls of what is compiled.
    """

    path: str
    text: str | None = None
    module: str | None = None
    parameters: Mapping[str, Datum] = field(default_factory=dict[str, Datum])
    places: Mapping[str, str] = field(default_factory=dict[str, str])
    device: str | None = None
    weights: WeightsArgument = None
    settings: Settings = field(default_factory=Settings)
    gradient: tuple[str | None, str, str] | None = None
    untrusted: bool = False
    trust_ir: bool = False
    to_train: bool = False
    block: str | None = None
    decided: tuple[Decision, ...] = ()
    shapes: Mapping[str, str] = field(default_factory=dict[str, str])
    fixed: Mapping[str, str] = field(default_factory=dict[str, str])
    call_sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    ranks: int = 1

    @property
    def is_undecided(self) -> bool:
        """Whether devices are still to be chosen (`dlc.driver.run.auto_device`)."""
        return self.settings.target.partition(":")[0] == AUTO

    @property
    def is_compiled(self) -> bool:
        """Whether the file is an artifact that can be used as it is."""
        fresh = isinstance(self.weights, str) and self.weights.startswith(INIT)
        return (
            self.path.endswith(".dlc")
            and not (fresh or self.untrusted)
            and self.text is None
            and self.gradient is None
            and self.settings == Settings()
            and not self.parameters
            and not self.places
            and self.module is None
            and not self.shapes
            and not self.fixed
        )

    def to_run_here(self) -> CompileRequest:
        """The same request for this machine. Raises Unsupported (D0714) where there is no GPU."""
        return replace(self, settings=to_run_here(self.settings, self.device))

    def with_gpu_for(self, model: SourceModel) -> CompileRequest:
        """The same request, with this machine's GPU if the model uses one.

        Raises Unsupported (D0714) where it has, and there is no GPU.
        """
        return replace(self, settings=placed_here(self.settings, model.module, self.device))

    def meant(self, model: SourceModel, call_request: CallRequest) -> CallRequest:
        """The call request with its defaults made explicit.

        Where it names no entry point, that is the one that the derivative is of. Where a weight file of
        the model is missing, the command that it suggests does without.
        """
        if self.weights is None and lacks_file(model.module, model.folder):
            call_request = replace(
                call_request, words=(*call_request.words, "--weights", f"{INIT}0")
            )
        call_request = replace(call_request, dims=model.open_sizes(call_request.dims))
        if self.gradient is None or call_request.entry is not None:
            return call_request
        entry, result, _ = self.gradient
        return replace(call_request, entry=gradient_function(model, entry, result).sym_name)

    def arguments_for(self, model: SourceModel, call_request: CallRequest) -> Arguments:
        """The checked arguments of a call of the model, which is not compiled yet.

        Random integers are indices that there are, as far as the graph tells. Raises what
        `CallRequest.arguments` does.
        """
        meant = self.meant(model, call_request)
        entries = interfaces(model.module)
        name = choose([entry.name for entry in entries], meant.entry)
        return meant.arguments(entries, limits_of(model.module, name), model.training)

    def open(self) -> SourceModel:
        """Read the model."""
        model = self._open_training() if self.to_train else self._open_model()
        model.trust_ir = self.trust_ir
        if self.gradient is not None:
            add_gradient(model, *self.gradient)
            model.reopen = self.open
        for decision in self.decided:
            model.context.log.add(decision)
        return model

    def _open_model(self) -> SourceModel:
        return open_model(
            self.path,
            text=self.text,
            module=self.module,
            settings=self.parameters,
            places=self.places,
            import_request=ImportRequest(
                self.shapes, self.fixed, self.settings.dims, self.call_sizes
            ),
        )

    def _open_training(self) -> SourceModel:
        return open_training(
            self.path,
            text=self.text,
            module=self.module,
            settings=self.parameters,
            places=self.places,
            block=self.block,
        )


@dataclass(frozen=True, slots=True)
class CompileResult:
    """An artifact, what is to be said about it, and how long its making took."""

    artifact: Artifact
    report: Report
    passes: Mapping[str, float]
    """Seconds spent in each pass."""


def make_artifact(
    request: CompileRequest, *, stage: str | None = None, counts: OpCounts | None = None
) -> CompileResult:
    """Compile a model from the stage that it is at, which is `stage` where one is named.

    `counts` receives the operations before and after each pass; nothing is recalled from the cache then.
    Raises UsageError: D0905 for a model at another stage, D0915 for what is not a stage of IR.
    """
    model = request.open()
    # With a limit of memory there may be further attempts.
    model.is_compiled_once = request.settings.max_memory is None
    if stage is not None:
        _begin_at(model, stage)
    if counts is not None:
        counts.see(BEFORE, model.module)
    return _compiled(request, model, None if counts is None else counts.see)


def make_model(request: CompileRequest, threads: int | None = None) -> tuple[Model, CompileResult]:
    """Compile a model to be called in this process. Raises Unsupported (D0714) where there is no GPU."""
    result = make_here(request)
    return Model(result.artifact, threads=threads, device=request.device), result


def prepare_call(request: CompileRequest, call_request: CallRequest) -> tuple[Artifact, Arguments]:
    """The artifact for this machine, compiled where it is not, and the arguments of a call of it.

    What is wrong about the call is said before anything is compiled.
    """
    if request.is_compiled:
        artifact = Artifact.read(request.path)
        facts = artifact.manifest
        return artifact, call_request.arguments(facts.called, training=facts.training)
    model = request.open()
    arguments = request.arguments_for(model, call_request)
    return _compiled(request.with_gpu_for(model), model).artifact, arguments


def make_here(request: CompileRequest) -> CompileResult:
    """Compile a model for this machine. Raises Unsupported (D0714) where it lacks the GPU for it."""
    request = request.to_run_here()
    model = request.open()
    return _compiled(request.with_gpu_for(model), model)


def run_model(
    request: CompileRequest,
    call_request: CallRequest,
    threads: int | None = None,
    max_memory: int | None = None,
    comm: object = None,
) -> tuple[Results, tuple[str, ...]]:
    """Call the entry point that is meant, compiling the model if it is not: results and notes.

    What is wrong about the call is said before anything is compiled. `max_memory` is the most bytes that
    a call may work in, `comm` the communicator of the ranks that share the call.
    """
    check_threads(threads)
    request = replace(request.to_run_here(), ranks=ranks_of(comm))
    if request.is_compiled:
        return _run_artifact(request, call_request, threads, max_memory, comm), ()
    source = request.open()
    arguments = request.arguments_for(source, call_request)
    report = Report()

    def make() -> Artifact:
        result = _compiled(request.with_gpu_for(source), source)
        report.notes = result.report.notes
        return result.artifact

    artifact, device = made_once(comm, make), request.device
    called = Model(artifact, threads=threads, max_memory=max_memory, device=device, comm=comm)
    with called as model, random_indices_told(call_request):
        return call_with(model, arguments), report.notes


def evaluate_model(
    request: CompileRequest, call_request: CallRequest, watch: Watch
) -> tuple[Results, tuple[str, ...]]:
    """The same without compiling: each operation says in NumPy what it computes."""
    model = request.open()
    return evaluate_entry(model, request.meant(model, call_request), request.weights, watch)


def _run_artifact(
    request: CompileRequest,
    call_request: CallRequest,
    threads: int | None,
    max_memory: int | None,
    comm: object,
) -> Results:
    with load_model(
        request.path,
        weights=request.weights,
        threads=threads,
        max_memory=max_memory,
        device=request.device,
        comm=comm,
    ) as model:
        return call(model, call_request)


def _begin_at(model: SourceModel, stage: str) -> None:
    """Take a model to be at a stage."""
    if stage not in STAGES:
        raise UsageError(
            f"there is no stage {stage!r} of IR",
            code="D0915",
            help=f"stages of IR are {', '.join(STAGES)}",
        )
    if stage not in model.stages:
        raise UsageError(
            f"{model.name} is at {model.stage} level, not at {stage}",
            code="D0905",
            help=f"say --from {model.stage}, or leave it out",
        )
    model.stage = model.read_at = stage


def _compiled(
    request: CompileRequest, model: SourceModel, after: Observer | None = None
) -> CompileResult:
    report = Report()
    if request.ranks > 1:
        mesh = mesh_of_ranks(model, request.ranks)
        if has_stages(model.module):
            model.change(lambda each: divide_stages(each, mesh))
        else:
            model.change(lambda each: share_calls(each.module, mesh, each.context))
    artifact = compile_model(model, request.settings, request.weights, report=report, after=after)
    report.notes = (*model.warn(), *report.notes)
    return CompileResult(artifact, report, model.context.seconds)
