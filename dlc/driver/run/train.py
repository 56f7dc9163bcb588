"""Training: from the text of a model to a trainer, and from a trained model to one that is called."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from dlc.dialects.text_mesh import read_text_mesh
from dlc.driver.compile.compile import Report, compile_model
from dlc.driver.compile.entries import interfaces
from dlc.driver.compile.host_target import placed_here
from dlc.driver.compile.rank_programs import compile_for_mesh, mesh_of_ranks
from dlc.driver.compile.settings import Settings
from dlc.driver.compile.stage_programs import has_stages
from dlc.driver.run.calls import Arguments
from dlc.driver.run.interpret import evaluate_arguments
from dlc.driver.run.request import CompileRequest, CompileResult, make_artifact
from dlc.driver.run.watch import Watch
from dlc.driver.source.open import open_training
from dlc.driver.source.source_model import SourceModel
from dlc.driver.source.weight_sources import Weights
from dlc.errors import CallError, UsageError
from dlc.errors.options import option
from dlc.frontend.elaboration.values import Datum
from dlc.frontend.training.blocks import BlockName
from dlc.frontend.training.entries import MOST
from dlc.ir.passes import Manager
from dlc.passes.graph.autodiff import autodiff
from dlc.runtime.artifact.contents import SUFFIX, Artifact
from dlc.runtime.artifact.manifest import DATA, STEP, Training
from dlc.runtime.data import Dataset
from dlc.runtime.data.opening import Given
from dlc.runtime.ranks.agreement import check_same, digest_of, made_once
from dlc.runtime.ranks.links import ranks_of
from dlc.runtime.ranks.parts import Shard
from dlc.runtime.training.batch_sizes import check_batches
from dlc.runtime.training.checkpoint import Facts, read_checkpoint
from dlc.runtime.training.trained_artifact import (
    PROGRESS,
    open_examples,
    progress_of,
    training_of,
)
from dlc.runtime.training.trainer import Trainer
from dlc.version import VERSION

OWN = ("batch", "epochs", "seed")
"""Entries of a `train` block that may be set from outside."""


def make_trainer(request: CompileRequest, threads: int | None = None) -> tuple[Trainer, Report]:
    """A trainer for a model with a `train` block, or for an artifact that was made to train.

    `request.parameters` may also set `batch`, `epochs` and `seed`. Data is looked for beside the model.
    Raises Unsupported (D0714) where it is to run on a GPU and there is none.
    """
    return plan_training(request.to_run_here()).trainer(threads)


def make_trainers(request: CompileRequest, threads: int | None = None) -> dict[str, Trainer]:
    """A trainer for each `train` block of a module, by name, with common weights.

    Raises UsageError (D0905) for a file that is not model text, and as `make_trainer` does.
    """
    request = request.to_run_here()
    model = _without_training(request)
    module = request.module or next(iter(model.blocks), BlockName("", "")).module
    names = [row.name for row in model.blocks if row.module == module] or [""]
    plans = [plan_training(replace(request, block=name or None)) for name in names]
    artifacts = [plan.artifact(Report()) for plan in plans]
    return Trainer.sharing(
        artifacts, threads=threads, folder=plans[0].folder, device=request.device
    )


def _without_training(request: CompileRequest) -> SourceModel:
    if request.text is None and not request.path.endswith(".dlm"):
        raise UsageError(
            f"{request.path} is not model text, and only that has several train blocks",
            code="D0905",
            help="train the text of the model, or the artifact with dlc.trainer",
        )
    return without_own(request).open()


def plan_training(request: CompileRequest, resume: str | None = None) -> TrainingPlan:
    """A training that was read and checked, to be compiled; with `resume` it goes on from a checkpoint.

    Raises UsageError: D0814 for an artifact that does not train, D0925 where the request contradicts the
    checkpoint, or how far a saved trainer had come.
    """
    progress: Mapping[str, Facts] = {} if resume is None else read_checkpoint(resume).progress
    if request.text is None and request.path.endswith(SUFFIX):
        artifact = Artifact.read(request.path)
        facts = training_of(artifact)
        if resume is None and artifact.section(PROGRESS):
            seed = _seed_of(request.path, progress_of(artifact), request)
        else:
            seed = _resumed_seed(resume, progress, facts, request)
        artifact = _set(artifact, request)
        return TrainingPlan(request, artifact, training_of(artifact), resume, seed)
    model = _open(request)
    assert model.training is not None
    seed = _resumed_seed(resume, progress, model.training, request)
    if resume is not None:
        request = replace(request, weights=resume)
    return TrainingPlan(request, model, model.training, resume, seed)


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """A checked training before it is compiled.

    `seed` is that of the checkpoint `resume`, or of the saved trainer, if it goes on from one.
    """

    request: CompileRequest
    source: SourceModel | Artifact
    facts: Training
    resume: str | None
    seed: int | None

    def data(self, data: Given | None = None) -> Dataset:
        """The examples that the model names, or those given in their place, checked.

        Raises what `open_data` and `check_batches` do, at the place in the text that names them.
        """
        seed = self.facts.seed if self.seed is None else self.seed
        match self.source:
            case Artifact(manifest=manifest):
                entries = manifest.interfaces
            case model:
                entries = interfaces(model.module)
        with self._blaming(*["data"] if data is None else []):
            examples = open_examples(self.facts, entries, self.folder, data, seed=seed)
        with self._blaming("batch", *["data"] if data is None else []):
            check_batches(self.facts, entries, examples)
        return examples

    def _blaming(self, *entries: str) -> AbstractContextManager[None]:
        """Errors that are raised meanwhile are told where the text has these entries, if there are any."""
        if isinstance(self.source, SourceModel) and entries:
            return self.source.blaming(*entries)
        return nullcontext()

    @property
    def files(self) -> list[str]:
        """The files of examples that the model names."""
        named = (self.facts.data.path, self.facts.data.test_path)
        return [os.path.join(self.folder, path) for path in named if path]

    def trainer(
        self,
        threads: int | None = None,
        comm: object = None,
        split: Shard | None = None,
        *,
        check_nan: bool = False,
    ) -> tuple[Trainer, Report]:
        """The trainer, compiled where it is not, and what is to be said about that.

        `comm` is the communicator of the ranks that train together, `split` says of which arrays each rank
        has a part. Raises UsageError (D0905) for a `split` of what is compiled.
        """
        report = Report()
        same = {"way of splitting arrays": split, "--check-nan": check_nan}
        check_same(comm, {**self._facts_of_ranks(), **same})
        if check_nan and ranks_of(comm) > 1 and self._has_stages:
            raise UsageError(
                "--check-nan evaluates the last step from all weights, of which a stage has its own",
                code="D0901",
                help="leave out one of --check-nan and --ranks",
            )
        artifact = made_once(comm, lambda: self.artifact(report, ranks_of(comm), split))
        device = self.request.device
        trainer = Trainer(artifact, threads=threads, folder=self.folder, device=device, comm=comm)
        if self.resume is not None:
            trainer.resume(self.resume)
        check_same(comm, {"number of finished steps": trainer.steps, "weights": trainer.digest()})
        return trainer, report

    def ranks_without_one(self, ranks: int) -> int:
        """With how many ranks to go on where one of so many is lost.

        With those that are left, as far as they divide the batch; with all where their number is settled.
        """
        match self.source:
            case SourceModel(module=module) if read_text_mesh(module) is None:
                return next(n for n in reversed(range(1, ranks)) if self.facts.batch % n == 0)
            case _:
                return ranks

    @property
    def _has_stages(self) -> bool:
        """Whether stages train it, where there are several ranks."""
        match self.source:
            case Artifact(manifest=manifest):
                return bool(manifest.staged)
            case model:
                return has_stages(model.module)

    def _facts_of_ranks(self) -> dict[str, object]:
        """What ranks that train together must have in common."""
        facts = self.facts
        seed = facts.seed if self.seed is None else self.seed
        match self.source:
            case Artifact() as artifact:
                texts = artifact.texts()
            case model:
                texts = model.texts
        request = self.request
        return {
            "version of dlc": VERSION,
            "model text": digest_of(name + text for name, text in sorted(texts.items())),
            "module": request.module,
            "train block": facts.block,
            "checkpoint to resume from": self.resume is not None,
            "seed": seed,
            "batch": facts.batch,
            "number of epochs": facts.epochs,
            "list of settings": digest_of(repr(sorted(request.parameters.items()))),
            "list of options": " ".join(request.settings.flags),
            "device": request.device,
            "choice of weights": str(request.weights) if isinstance(request.weights, str) else "",
        }

    def artifact(self, report: Report, ranks: int = 1, split: Shard | None = None) -> Artifact:
        """The artifact that trains, compiled where it is not; the report gains what is to be said."""
        match self.source:
            case Artifact() as artifact:
                if split is not None:
                    raise _is_compiled(self.request, option("shard"))
                return artifact
            case model:
                request = self.request
                if ranks > 1:
                    compile_for_mesh(model, self.facts, _mesh(model, ranks, split), split)
                settings = placed_here(request.settings, model.module, request.device)
                artifact = compile_model(model, settings, request.weights, report=report)
                report.notes = (*model.warn(), *report.notes)
                return artifact

    @property
    def folder(self) -> str:
        """The folder that paths of the text are relative to."""
        return os.path.dirname(self.request.path) or "."


def without_own(request: CompileRequest) -> CompileRequest:
    """The request without the settings that only training knows."""
    kept = {name: value for name, value in request.parameters.items() if name not in OWN}
    return replace(request, parameters=kept)


def _resumed_seed(
    resume: str | None, progress: Mapping[str, Facts], facts: Training, request: CompileRequest
) -> int | None:
    """The seed of a checkpoint, if it has the progress of this `train` block."""
    done = progress.get(facts.block)
    return None if resume is None or done is None else _seed_of(resume, done, request)


def _seed_of(path: str, done: Facts, request: CompileRequest) -> int:
    """The seed that a training goes on with, of which a file says how far it has come."""
    saved_seed = done.seed
    seed = request.parameters.get("seed", saved_seed)
    if request.weights is not None or seed != saved_seed:
        brings = f"the seed {saved_seed}, which --set makes {seed}"
        raise UsageError(
            f"{path} brings {brings if request.weights is None else 'weights, and so does --weights'}",
            code="D0925",
            help="leave that out, or begin anew: --weights FILE without --resume",
        )
    return saved_seed


def make_trained(
    request: CompileRequest, weights: Mapping[str, NDArray[np.generic]]
) -> CompileResult:
    """The artifact with the model's entry points and these weights, as `Trainer.trained` gives them."""
    return make_artifact(replace(without_own(request), weights=weights))


def check_last_step(request: CompileRequest, trainer: Trainer) -> None:
    """Evaluate the last step of a trainer that remembers it, as `dlc run --check-nan` does.

    Raises CallError (D0912) at the example or the first operation that the trouble begins with.
    """
    model = _open(request)
    Manager(model.context).run(model.module, (autodiff,))
    arguments = Arguments(STEP, trainer.last_inputs())
    try:
        evaluate_arguments(model, arguments, Weights((), memoryview(b"")), Watch(check_nan=True))
    except CallError as error:
        step = f"this was step {trainer.steps}"
        advice = f"{step}; keep what it is computed from where it has a value"
        diagnostics = [
            replace(diagnostic, help=advice if diagnostic.place else step)
            for diagnostic in error.diagnostics
        ]
        raise CallError(diagnostics, sources=error.sources) from None


def _open(request: CompileRequest) -> SourceModel:
    own = {name: value for name, value in request.parameters.items() if name in OWN}
    rest = {name: value for name, value in request.parameters.items() if name not in OWN}
    model = open_training(
        request.path,
        text=request.text,
        module=request.module,
        settings=rest,
        places=request.places,
        block=request.block,
    )
    for decision in request.decided:
        model.context.log.add(decision)
    assert model.training is not None
    model.training = _changed(model.training, own)
    return model


def _set(artifact: Artifact, request: CompileRequest) -> Artifact:
    """An artifact with the entries of its `train` block that the user sets."""
    facts = artifact.manifest.training
    if facts is not None and request.block not in (None, facts.block):
        raise UsageError(
            f"{request.path} trains by the block {facts.block}",
            code="D0539",
            help=f"leave out {option('block', request.block or '')}, or train the text of the model",
        )
    others = [name for name in request.parameters if name not in OWN]
    others += [option(name) for name in ("weights", "places", "module") if getattr(request, name)]
    others += _changed_options(request.settings)
    if others:
        raise _is_compiled(request, others[0])
    if facts is None or not request.parameters:
        return artifact
    manifest = artifact.manifest._replace(training=_changed(facts, request.parameters))
    return replace(artifact, manifest=manifest)


def _mesh(model: SourceModel, ranks: int, split: Shard | None) -> Mapping[str, int]:
    """The mesh that the text declares; without one the ranks divide batches.

    Raises ModelError (D0936) where that has another number of ranks, UsageError (D0901) where no axis is
    there to split along.
    """
    axes = mesh_of_ranks(model, ranks)
    if split is not None and DATA not in axes:
        shape = ", ".join(f"{name} = {size}" for name, size in axes.items())
        raise UsageError(
            f"{option('shard')} splits along the axis {DATA} of the mesh, which is {shape}",
            code="D0901",
            help=f"write mesh {DATA} = 2, {shape}, or split the weights in the text",
        )
    return axes


def _is_compiled(request: CompileRequest, name: str) -> UsageError:
    return UsageError(
        f"{request.path} is compiled: {name} cannot be set any more",
        code="D0905",
        help="train the text of the model",
    )


def _changed_options(settings: Settings) -> list[str]:
    """The options of a compilation that were not left as they are."""
    usual = Settings()
    names = [field.name for field in fields(Settings)]
    changed = [name for name in names if getattr(settings, name) != getattr(usual, name)]
    return [option(name, settings.level) if name == "level" else option(name) for name in changed]


def _changed(facts: Training, own: Mapping[str, Datum]) -> Training:
    for name, value in own.items():
        least = 0 if name == "seed" else 1
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
            raise UsageError(
                f"{name} is a whole number from {least} to {MOST}, found {value!r}",
                code="D0902",
                help=f"write {option('settings', {name: max(least, 1)})}",
            )
    return facts._replace(**own)
