"""Training a compiled model: its weights, its position in the data, checkpoints.

An artifact that trains has the entry points `train_step` and `evaluate`; `manifest.training` describes
the source of its examples. Like any other artifact it is loaded without the compiler.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dlc.errors import UsageError, memory_needed
from dlc.errors.boundary import methods_without_frames
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.contents import SUFFIX, Artifact
from dlc.runtime.artifact.manifest import (
    EVALUATE,
    STEP,
    Training,
    Weight,
)
from dlc.runtime.data import Dataset
from dlc.runtime.data.dataset import WHOLE
from dlc.runtime.data.opening import Given
from dlc.runtime.model import Model
from dlc.runtime.ranks.agreement import digest_of, made_by_all
from dlc.runtime.system.atomic_write import check_ending, check_writable
from dlc.runtime.system.mapped_files import check_inside, check_path
from dlc.runtime.training.batch_sizes import check_batches
from dlc.runtime.training.checkpoint import (
    CHECKPOINT,
    INDEX,
    Checkpoint,
    Facts,
    carried_by,
    check_fit,
    progress_text,
    read_checkpoint,
    wanted_of,
    write_checkpoint,
)
from dlc.runtime.training.divergence import (
    check_loss,
    check_scale,
    diverged,
    diverged_error,
    interval,
)
from dlc.runtime.training.early_stopping import best, best_path, is_over
from dlc.runtime.training.history import TEST, History
from dlc.runtime.training.progress import Progress
from dlc.runtime.training.rank_memory import RankMemory, rank_memory
from dlc.runtime.training.rank_parts import check_same_data, parts_of
from dlc.runtime.training.sharded_checkpoint import Held, write_sharded
from dlc.runtime.training.step_call import first_examples
from dlc.runtime.training.stepper import Stepper, examples_in
from dlc.runtime.training.trained_artifact import (
    open_examples,
    training_of,
    with_progress,
    without_weights,
)
from dlc.runtime.training.trained_weights import TrainedWeights, averages, section
from dlc.runtime.training.training_state import TrainingState
from dlc.runtime.weights.model_weights import WeightViews

Array = NDArray[np.generic]
T = TypeVar("T")

_BUFFERS = 3
"""Batches in memory at a time: that of the running step, and those that are being prepared."""


class _Best(NamedTuple):
    """The best checkpoint of a `fit`, and the steps of all trainers of the weights when that ended."""

    path: Path
    steps: int


@methods_without_frames
class Trainer(Stepper):
    """Owns the weights of a model and updates them step by step.

    `step(x=..., y=...)` makes a step with a batch of your own; `fit()` trains on the data that the
    `train` block of the model names, or on data that it is passed. Only one call runs at a time: a call
    from a second thread raises CallError (D0813).
    """

    @memory_needed
    def __init__(
        self,
        artifact: Artifact,
        *,
        threads: int | None = None,
        folder: str | os.PathLike[str] = ".",
        device: str | None = None,
        comm: object = None,
    ) -> None:
        """Train the model of an artifact from its saved progress.

        Paths of data and checkpoints are relative to `folder`.
        `device` is the device to run on and `comm` the communicator of ranks that train together, as for
        `dlc.load`: each is given the same batches and takes its part, and the first writes the files.
        Raises UsageError (D0814) for an artifact that does not train.
        """
        facts = training_of(artifact)
        run = without_weights(artifact) if facts.splits or artifact.manifest.homes else artifact
        model = Model(run, threads=threads, device=device, comm=comm)
        self._comm = comm
        weights = TrainedWeights([artifact], model.gpu, parts_of(model, facts, comm))
        # What follows needs the numbers of whole weights no more.
        table = artifact.manifest.weights
        artifact = replace(run, manifest=run.manifest._replace(weights=table))
        self._begin(artifact, model, weights, folder)

    @classmethod
    def sharing(
        cls,
        artifacts: Sequence[Artifact],
        *,
        threads: int | None = None,
        folder: str | os.PathLike[str] = ".",
        device: str | None = None,
    ) -> dict[str, Trainer]:
        """A trainer for each of several artifacts of one model, by `train` block, with common weights.

        A checkpoint of one has the progress of all. Raises as making a trainer does.
        """
        models = [Model(artifact, threads=threads, device=device) for artifact in artifacts]
        weights = TrainedWeights(artifacts, models[0].gpu)
        together: dict[str, Trainer] = {}
        for artifact, model in zip(artifacts, models, strict=True):
            trainer = together[training_of(artifact).block] = cls.__new__(cls)
            trainer._begin(artifact, model, weights, folder)
            trainer._together, trainer._comm = together, None
        return together

    def _begin(
        self,
        artifact: Artifact,
        model: Model,
        weights: TrainedWeights,
        folder: str | os.PathLike[str],
    ) -> None:
        self._begin_steps(artifact, model, weights)
        self._artifact, self._model = artifact, model
        self._folder = Path(folder)
        self._together: Mapping[str, Trainer] = {self._facts.block: self}
        self._carried = Checkpoint({}, {})
        """What a checkpoint has of blocks that no trainer here is for."""
        self._best: _Best | None = None
        self._interval = interval(weights)
        if self.steps == 0:
            weights.begin_averages()

    @property
    def facts(self) -> Training:
        """The contents of the `train` block."""
        return self._facts

    @property
    def model(self) -> Model:
        """The compiled functions, `train_step` and `evaluate`, with the initial weights."""
        return self._model

    @property
    def checkpoint(self) -> Path | None:
        """The path of checkpoints that the `train` block names."""
        return self._folder / self._facts.checkpoint if self._facts.checkpoint else None

    @property
    def weights(self) -> WeightViews:
        """The current weights, states and optimizer states: read-only views, of a rank's parts if it has
        parts."""
        block = self._weights.block.view()
        block.flags.writeable = False
        return WeightViews(self._weights.table, block)

    @memory_needed
    def trained(self, *, average: bool = True, best: bool = True) -> dict[str, Array]:
        """Copies of the weights and states of the model, without those of the optimizer.

        After a `fit` whose `train` block keeps the best checkpoint they are those of that checkpoint; with
        `best` false, and after further steps, those of now. Trainers with common weights give the same,
        whichever of them made the steps. Of weights whose averages are kept these are
        the averages; with `average` false the weights themselves. Ranks that have parts call it together;
        the first gets the whole weights, the others nothing.
        """
        self._begin_together("trainer.trained")
        tensors = self._weights.whole()
        if not tensors:
            return {}
        found = self._best_now() if best else None
        if found is not None:
            tensors = read_checkpoint(found.path).tensors
        table = self._artifact.manifest.weights
        arrays = {row.name: tensors[row.name].bits.copy() for row in table if not row.constant}
        if average:
            arrays |= averages(tensors, self._facts.block)
        return arrays

    def _best_now(self) -> _Best | None:
        """The best checkpoint of the last `fit`, by this trainer or another one of the same weights.

        None after further steps.
        """
        steps = self._steps_of_all()
        trainers = self, *self._together.values()
        found = [each._best for each in trainers if each._best is not None]
        return next((each for each in found if each.steps == steps), None)

    def _steps_of_all(self) -> int:
        return sum(each.steps for each in self._together.values())

    # Steps ----------------------------------------------------------------------------------------

    @memory_needed
    def evaluate(self, data: Given | Dataset | None = None) -> dict[str, float]:
        """The loss and the metrics, each the mean over all examples of `data`, by default the test data.

        Raises UsageError (D0549) if the model has no test data.
        """
        with self._weights.alone:
            return self._measured(
                self._test_data() if data is None else self._opened(data, EVALUATE)
            )

    def _test_data(self) -> Dataset:
        test = self.data().test
        if test is None:
            raise UsageError(
                f"{self._facts.module} has no examples that are kept for the test",
                code="D0549",
                help="keep some: data = npz(..., test=0.2), or name them: evaluate(data)",
            )
        return test

    # Epochs ---------------------------------------------------------------------------------------

    def data(self, given: Given | Dataset | None = None) -> Dataset:
        """The checked examples: `given`, or else those that the model names; a Dataset as it is."""
        return self._opened(given, STEP)

    def _opened_by_all(
        self, given: Given | Dataset | None, path: str | os.PathLike[str] | None
    ) -> Dataset:
        """The checked examples to train with, which the ranks that train together compare.

        The first one checks whether it can write to `path`.
        """

        def opened() -> Dataset:
            if path is not None and not self._model.rank:
                check_writable(path)
            examples = self.data(given)
            check_batches(self._facts, self._artifact.manifest.interfaces, examples)
            return examples

        if self.pulse is not None:  # `dlc train` has compared them
            return opened()
        examples = made_by_all(self._comm, opened)
        check_same_data(self._comm, examples)
        return examples

    def _opened(self, given: Given | Dataset | None, function: str) -> Dataset:
        if isinstance(given, Dataset):
            return given
        entries = self._artifact.manifest.interfaces
        return open_examples(
            self._facts, entries, self._folder, given, seed=self.seed, function=function
        )

    @memory_needed
    def fit(
        self,
        data: Given | Dataset | None = None,
        *,
        epochs: int | None = None,
        report: Callable[[Progress], None] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        ahead: int | None = None,
    ) -> History:
        """Train until `epochs` epochs are finished, including earlier ones, and return the history.

        `data` is a file or folder, an array for each input by name, an iterable of batches, or a result
        of `trainer.data`; by default the data that the `train` block names. `report` is called after each
        step; an exception that it raises ends the training between two steps. Another thread makes up to
        `ahead` batches while a step runs: by default 2 of files that take time to read, and none of an
        iterable of yours, which may not expect one. The state is written to
        `checkpoint`, or to the path in the `train` block, at the interval that the block states and at
        the end.

        Raises CallError (D0815) if the loss, a weight or a state becomes NaN or infinite. The trainer then
        has the weights of that step; the checkpoint is the last good one. Raises UsageError (D0901)
        where `ahead` or `epochs` is not a whole number from 0 on, and for a checkpoint that does not end in
        `.safetensors`.
        """
        _check_count("ahead", ahead, "ahead=0 makes each batch when it is needed")
        _check_count("epochs", epochs, f"write epochs={self._facts.epochs}")
        if checkpoint is None and self._facts.checkpoint:
            check_inside(self._facts.checkpoint)
        path = checkpoint or self.checkpoint
        if path is not None:
            check_path("a checkpoint is written to a path", path)
            check_ending(path, CHECKPOINT, INDEX)
        examples = self._opened_by_all(data, path)
        last = self._facts.epochs if epochs is None else epochs
        steps = examples.steps(self._facts.examples, self._facts.accumulate)
        if steps is not None:
            self.total_steps = last * steps
        with self._weights.alone:
            while self.epoch < last and not self.stopped:
                self._epoch(examples, last, report, ahead)
                if path is not None:
                    self._keep_best(Path(path))
                between = self.epoch < last and self.epoch % self._facts.every == 0
                if path is not None and between:
                    self._write_checkpoint(path, self._comm)
            if path is not None:  # also if every epoch was finished, but a write had failed before
                self._write_checkpoint(path, self._comm)
                if self._facts.keep is not None:
                    self._best = _Best(best_path(Path(path)), self._steps_of_all())
        return self.history

    def _no_batch(self) -> UsageError:
        """The error for an epoch in which nothing could be trained on."""
        message, parts = f"epoch {self.epoch + 1} has no batch", self._facts.accumulate
        if parts > 1:
            message += f" of {parts} examples or more, one for each microbatch"
            help = f"each size of buckets needs {parts} examples, and each batch of others"
        else:
            message += ": the data gave nothing to train on"
            help = "give one batch at least; an iterator that was gone through has none left, a list has"
        return UsageError(message, code="D0553", help=help)

    @property
    def stopped(self) -> bool:
        """Whether the training has ended early, as the `train` block says."""
        return self._facts.stop is not None and is_over(self.history, self._facts.stop)

    def _keep_best(self, path: Path) -> None:
        """Write the best checkpoint, if the last epoch was the best so far."""
        keep = self._facts.keep
        if keep is not None and best(self.history, keep) is self.history[-1]:
            self._write_checkpoint(best_path(path), self._comm)

    def _epoch(
        self,
        examples: Dataset,
        last: int,
        report: Callable[[Progress], None] | None,
        ahead: int | None,
    ) -> None:
        """Finish the current epoch, then measure the loss and the metrics."""
        loss = self._rest_of_epoch(examples, last, report, ahead)
        if not self.position:
            raise self._no_batch()
        self._check_weights()
        measured = self._state.sums.means()
        if examples.test is not None:
            means = self._measured(examples.test)
            measured |= {f"{TEST}{name}": value for name, value in means.items()}
        self._state.finish_epoch(measured)
        if report is not None:
            report(self._progress(last, examples, loss, measured))

    def _rest_of_epoch(
        self,
        examples: Dataset,
        last: int,
        report: Callable[[Progress], None] | None,
        ahead: int | None,
    ) -> float:
        """Train on the batches that the epoch still has; returns the last loss, NaN without a step."""
        loss = math.nan
        size = self._facts.examples
        buffers = examples.buffers(size, max(_BUFFERS, 1 + (ahead or 0)))
        remaining = examples.batches(
            self.epoch,
            size,
            self.seed,
            self.position,
            multiple=self._facts.accumulate,
            out=buffers,
            ahead=ahead,
            # Who looks at the inputs of a step sees the whole batch.
            part=self._step.part if self._before is None else WHOLE,
        )
        with closing(remaining) as batches:  # a thread may be preparing the next ones
            for batch in self._step.each_of(batches):
                left_over = examples_in(batch) % self._facts.accumulate
                count = examples_in(batch) - left_over
                if not count:
                    continue
                inputs = self._step.inputs_of(batch)
                loss = self._stepped(first_examples(inputs, count) if left_over else inputs)
                self._check(loss)
                self._state.position += count
                if math.isfinite(loss):  # that of a skipped step may be infinite
                    self._state.sums.add({"loss": loss, **self.parts}, count)
                if report is not None:
                    report(self._progress(last, examples, loss, None))
        return loss

    def _progress(
        self, last: int, examples: Dataset, loss: float, measured: Mapping[str, float] | None
    ) -> Progress:
        epoch = self.epoch if measured is not None else self.epoch + 1
        return Progress(epoch, last, self.steps, self.position, examples.count, loss, measured)

    def _check(self, loss: float) -> None:
        """Refuse to go on with a loss, a weight or a state that is infinite or no number."""
        if self.skipped:
            check_scale(self._weights.loss_scale(self._facts.block), self.steps)
        else:
            check_loss(loss, self.steps)
        every = 1 if self._before is not None else self._interval
        if every is not None and self.steps - self._state.seen >= every:
            self._check_weights()

    def _check_weights(self) -> None:
        found = diverged(self._weights.tensors, self.steps, self._state.seen)
        first = self.first_of_ranks(found)
        if first is not None:
            raise diverged_error(first)
        self._state.seen = self.steps

    def memory(self, data: Dataset) -> RankMemory:
        """The memory that the weights, the states and a step with a batch of this data need."""
        return rank_memory(self._weights, self._step, self._facts, data)

    def first_of_ranks(self, own: T | None) -> T | None:
        """The first that is not None of what the ranks hand over, if they have parts; else `own`."""
        return self._weights.parts.first_of(own)

    @property
    def has_parts(self) -> bool:
        """Whether this rank has other weights than others, or parts of them."""
        return self._weights.parts.are_divided

    def digest(self) -> str:
        """What tells these weights and states from others; ranks compare it. Parts are left out."""
        is_common = self._weights.parts.is_common
        tensors = [item for item in sorted(self._weights.tensors.items()) if is_common(item[0])]
        return digest_of([part for name, each in tensors for part in (name, each.bits.tobytes())])

    # Files ----------------------------------------------------------------------------------------

    @memory_needed
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint (`.safetensors`), or the trainer as an artifact (`.dlc`), atomically.

        Of ranks that train together only the first writes; those that have parts call it together. With
        `.safetensors.index.json` all ranks call it, and each writes a file, which the index names. Raises
        CallError (D0824) where another of these does something else.
        """
        check_path("a trainer is saved at a path", path)
        check_ending(path, CHECKPOINT, INDEX, SUFFIX)
        comm = self._comm if self._weights.parts.are_divided else None
        self._begin_together("trainer.save", by_all=os.fspath(path).endswith(INDEX))
        with self._weights.alone:
            if not os.fspath(path).endswith(SUFFIX):
                self._write_checkpoint(path, comm)
                return
            tensors = self._weights.whole()
            made_by_all(comm, lambda: self._write_artifact(path, tensors))

    def _begin_together(self, what: str, *, by_all: bool = False) -> None:
        """Begin what ranks that have parts do together, or with `by_all` all ranks.

        Raises CallError (D0824) where another one does something else.
        """
        links = self._model.links
        if links is not None and (by_all or self._weights.parts.are_divided):
            links.entering.begin(what)

    def _write_artifact(self, path: str | os.PathLike[str], tensors: Mapping[str, Tensor]) -> None:
        if not self._model.rank:
            self._as_artifact(tensors).write(path)

    def _as_artifact(self, tensors: Mapping[str, Tensor]) -> Artifact:
        """The artifact with these weights, and with the progress of a training that has begun."""
        weights = section(tensors, self._artifact.manifest.weights)
        has_begun = self.steps > 0 or self.seed != self._facts.seed
        return with_progress(self._artifact, weights, self._state.facts() if has_begun else None)

    def _write_checkpoint(self, path: str | os.PathLike[str], comm: object) -> None:
        """Write it on the first of the ranks of a communicator, which call it together."""
        with nullcontext() if self.pulse is None else self.pulse.busy():
            if os.fspath(path).endswith(INDEX):
                self._write_sharded(path)
                return
            tensors = self._weights.whole()
            made_by_all(comm, lambda: self._write_whole(path, tensors))

    def _write_sharded(self, path: str | os.PathLike[str]) -> None:
        """Write a part of it on each rank, and the index on the first."""
        weights = self._weights
        held = Held({**self._carried.tensors, **weights.tensors}, weights.declared, weights.parts)
        write_sharded(path, held, progress_text(self._progress_of_blocks()), self._comm)

    def _progress_of_blocks(self) -> dict[str, Facts]:
        own = {name: trainer._state.facts() for name, trainer in self._together.items()}
        return {**self._carried.progress, **own}

    def _write_whole(self, path: str | os.PathLike[str], tensors: Mapping[str, Tensor]) -> None:
        if not self._model.rank:
            tensors = {**self._carried.tensors, **tensors}
            write_checkpoint(path, tensors, self._progress_of_blocks())

    @memory_needed
    def resume(self, path: str | os.PathLike[str]) -> None:
        """Resume from a checkpoint, as if there had been no interruption.

        Of a checkpoint of another `train` block of the model it takes the weights, begins at its own first
        step, and keeps in its checkpoints what the other block needs.

        Raises UsageError (D0548) if the file is not a checkpoint of this model, ArtifactError if it is
        damaged; the trainer is then unchanged.
        """

        def read() -> tuple[Checkpoint, Mapping[str, Weight]]:
            checkpoint = read_checkpoint(path)
            wanted = wanted_of(checkpoint, self._weights.declared, self._together)
            check_fit(checkpoint, wanted, os.fspath(path))
            return checkpoint, wanted

        with self._weights.alone:
            checkpoint, wanted = made_by_all(self._comm, read)
            self._weights.replace({name: checkpoint.tensors[name] for name in wanted})
            carried = carried_by(checkpoint, self._together)
            for block, trainer in self._together.items():
                trainer._carried, trainer._best = carried, None
                if block in checkpoint.progress:
                    trainer._state = TrainingState.of(checkpoint.progress[block])


def _check_count(name: str, value: object, help: str) -> None:
    """Refuse what is not a whole number from 0 on, or None."""
    if value is not None and (not isinstance(value, int | np.integer) or value < 0):
        message = f"{name} is a whole number from 0 on, found {value!r}"
        raise UsageError(message, code="D0901", help=help)
