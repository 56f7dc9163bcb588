"""Training a compiled model: the weights it changes, its place in the data, checkpoints.

An artifact that trains has the entry points `train_step` and `evaluate` and says in `manifest.training`
where its examples come from. Like any other it is loaded without the compiler.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CallError, UsageError, memory_needed
from dlc.runtime.arrays.dtypes import BF16, DTYPES
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.contents import SUFFIX, Artifact
from dlc.runtime.artifact.manifest import (
    EVALUATE,
    NUMBER,
    SEED,
    STEP,
    TOTAL,
    Dim,
    Entry,
    Input,
    Training,
)
from dlc.runtime.calling.entry import EntryPoint
from dlc.runtime.data import Batch, Dataset, open_data
from dlc.runtime.data.opening import Given
from dlc.runtime.model import Model
from dlc.runtime.system.atomic_write import check_writable
from dlc.runtime.system.buffers import Bytes, aligned_bytes
from dlc.runtime.training.checkpoint import (
    Checkpoint,
    Facts,
    facts_of,
    facts_text,
    read_checkpoint,
    write_checkpoint,
)
from dlc.runtime.training.history import TEST, History, Record
from dlc.runtime.training.trained_weights import TrainedWeights
from dlc.runtime.weights.model_weights import WeightViews

Array = NDArray[np.generic]

PROGRESS = "progress"
"""The section of an artifact that says how far a training has come."""
_MASK = (1 << 64) - 1
_MOST_STEPS = (1 << 31) - 1
"""What the number of steps is told as at most: a schedule that falls for longer has hardly begun."""
_BUFFERS = 3
"""Batches in memory at a time: the one of the step that runs, and those that are being prepared."""


def training_of(artifact: Artifact) -> Training:
    """How an artifact trains. Raises UsageError (D0814) for one that does not."""
    facts = artifact.manifest.training
    if facts is None:
        raise UsageError(
            f"{artifact.manifest.model} does not train: it was compiled to be called",
            code="D0814",
            help="train the text of the model, which has a `train` block",
        )
    return facts


def open_examples(
    facts: Training,
    entries: Iterable[Entry],
    folder: str | os.PathLike[str],
    given: Given | None = None,
    *,
    seed: int,
) -> Dataset:
    """The examples for the two functions of a training: those that it names, or those given; checked."""
    batch = set(facts.inputs)
    wanted: dict[str, Input] = {}
    dims: dict[str, Dim] = {}
    for entry in entries:
        wanted.update({item.name: item for item in entry.inputs if item.name in batch})
        dims.update({dim.name: dim for dim in entry.dims})
    inputs, sizes = tuple(wanted.values()), tuple(dims.values())
    return open_data(facts.data, inputs, folder, given, seed=seed, dims=sizes)


def progress_of(artifact: Artifact) -> Facts:
    """How far a training has come whose trainer was saved as an artifact; not at all in any other.

    Raises ArtifactError (D0503) or UsageError (D0548) where the artifact says that in no known way.
    """
    text = artifact.section(PROGRESS)
    if not text:
        return Facts(0, 0, 0, training_of(artifact).seed)
    return facts_of(str(text, "utf-8", "replace"), artifact.name)


class Progress(NamedTuple):
    """How far `Trainer.fit` is: after each step, and with `measured` at the end of an epoch."""

    epoch: int
    epochs: int
    step: int
    position: int
    """Examples of this epoch that are done."""
    examples: int | None
    """Examples of an epoch, where that is known."""
    loss: float
    measured: Mapping[str, float] | None = None


class Trainer:
    """Owns the weights of a model and changes them, one step at a time.

    `step(x=..., y=...)` makes a step with a batch of your own; `fit()` goes through the data that the
    model's `train` block names, or that is given. Calls come one after the other: a second thread that
    calls meanwhile gets a CallError (D0813).
    """

    @memory_needed()
    def __init__(
        self,
        artifact: Artifact,
        *,
        threads: int | None = None,
        folder: str | os.PathLike[str] = ".",
        device: str | None = None,
    ) -> None:
        """Train what an artifact holds, from where it was when it was saved; its data lies in `folder`.

        `device` is what it runs on, as for `dlc.load`.
        Raises UsageError (D0814) for an artifact that does not train.
        """
        self._artifact = artifact
        self._facts = facts = training_of(artifact)
        self._folder = Path(folder)
        self._model = Model(artifact, threads=threads, device=device)
        self._weights = weights = TrainedWeights(artifact, self._model.gpu)
        self._step = _Call(self._model.entry_points[STEP], weights.passed, facts)
        self._evaluate = _Call(self._model.entry_points[EVALUATE], weights.passed, facts)
        self._lock = threading.Lock()
        self._before: Bytes | None = None
        self._last: dict[str, object] = {}
        done = progress_of(artifact)
        self.seed = done.seed
        self.epoch = done.epoch
        """Epochs that are done."""
        self.steps = done.step
        """Steps that are done."""
        self.position = done.position
        """Examples of the current epoch that are done."""
        self.total_steps: int | None = None
        """Steps of the whole training, which schedules may ask for. `fit` sets it where it can."""
        self.history: History = done.history
        self._total = done.total
        """The losses of those examples together."""

    @property
    def facts(self) -> Training:
        """What the `train` block says."""
        return self._facts

    @property
    def model(self) -> Model:
        """The compiled functions, `train_step` and `evaluate`, and the weights that training began with."""
        return self._model

    @property
    def checkpoint(self) -> Path | None:
        """Where the `train` block wants checkpoints to be written."""
        return self._folder / self._facts.checkpoint if self._facts.checkpoint else None

    @property
    def weights(self) -> WeightViews:
        """Weights, states and what the optimizer keeps, as they are now: read-only views."""
        block = self._weights.block.view()
        block.flags.writeable = False
        return WeightViews(self._artifact.manifest.weights, block)

    @memory_needed()
    def trained(self) -> dict[str, Array]:
        """Copies of the model's own weights and states, without what the optimizer keeps."""
        table = self._artifact.manifest.weights
        tensors = self._weights.tensors
        return {row.name: tensors[row.name].bits.copy() for row in table if not row.constant}

    # Steps ----------------------------------------------------------------------------------------

    @memory_needed()
    def step(self, **batch: object) -> float:
        """Make one step with a batch and give its loss.

        Raises CallError for arrays that do not fit, and D0816 if the schedule of the learning rate needs
        `total_steps` and nobody has set it.
        """
        with self._alone():
            return self._stepped(batch)

    def _stepped(self, batch: Mapping[str, object]) -> float:
        # Every step draws from a seed of its own, so that a resumed training draws as it would have.
        seed = ((self.seed << 32) + self.steps) & _MASK
        extra = {NUMBER: np.array(self.steps, np.int32), SEED: np.array(seed, np.uint64)}
        if TOTAL in self._step.names:
            extra[TOTAL] = np.array(min(self._all_steps(), _MOST_STEPS), np.int32)
        if self._before is not None:
            self._before[:] = self._weights.block
            self._last = {**batch, **extra}
        self._weights.changed()  # also where it fails
        (loss, *_) = self._step(batch, extra)
        self.steps += 1
        return loss

    def _all_steps(self) -> int:
        if self.total_steps is None:
            raise CallError(
                "the schedule ends with the training, and how many steps that has is not known",
                code="D0816",
                help="say it in the text, cosine(peak=1e-3, steps=10_000), or set trainer.total_steps",
            )
        return self.total_steps

    def remember_steps(self) -> None:
        """From now on keep what each step was given, weights included, for `last_inputs`."""
        self._before = aligned_bytes(len(self._weights.block))

    def last_inputs(self) -> dict[str, object]:
        """The inputs of the last step as they were before it; empty unless steps are remembered."""
        if self._before is None or not self._last:
            return {}
        weights = WeightViews(self._artifact.manifest.weights, self._before)
        found = {**self._last, **{name: weights.tensor(name) for name in weights}}
        return {item.name: found[item.name] for item in self._step.entry.inputs}

    @memory_needed()
    def evaluate(self, data: Given | Dataset | None = None) -> dict[str, float]:
        """The loss and the metrics, each the mean over all examples: of the test data if nothing is given.

        Raises UsageError (D0549) if the model has no test data.
        """
        with self._alone():
            return self._measured(self._test_data() if data is None else self.data(data))

    @memory_needed()
    def measure(self, **batch: object) -> dict[str, float]:
        """The loss and the metrics of one batch."""
        with self._alone():
            return dict(zip(self._evaluate.outputs, self._evaluate(batch, {}), strict=True))

    def _test_data(self) -> Dataset:
        found = self.data().test
        if found is None:
            raise UsageError(
                f"{self._facts.module} has no examples that are kept for the test",
                code="D0549",
                help="keep some: data = npz(..., test=0.2), or name them: evaluate(data)",
            )
        return found

    def _measured(self, data: Dataset) -> dict[str, float]:
        totals = dict.fromkeys(self._evaluate.outputs, 0.0)
        count = 0
        for batch in data.batches(0, self._facts.batch, self.seed):
            size = _examples(batch)
            found = self._evaluate(self._evaluate.part_of(batch), {})
            for name, value in zip(totals, found, strict=True):
                totals[name] += value * size
            count += size
        return {name: total / count if count else math.nan for name, total in totals.items()}

    # Epochs ---------------------------------------------------------------------------------------

    def data(self, given: Given | Dataset | None = None) -> Dataset:
        """The examples that the model names, or those given in their place, checked; a dataset as it is."""
        if isinstance(given, Dataset):
            return given
        entries = self._artifact.manifest.entries
        return open_examples(self._facts, entries, self._folder, given, seed=self.seed)

    @memory_needed()
    def fit(
        self,
        data: Given | Dataset | None = None,
        *,
        epochs: int | None = None,
        report: Callable[[Progress], None] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> History:
        """Train until `epochs` epochs are done, those before included; gives the history.

        `data` is a file or folder, an array for each input by name, an iterable of batches, or what
        `trainer.data` gave; without it, what the `train` block names.
        `report` is called after each step; what it raises ends the training between two steps. With
        `checkpoint`, or one in the `train` block, the state is written there every so many epochs and at
        the end. Raises CallError (D0815) if the loss is no number any more, or, while steps are
        remembered, a weight: the weights are then those of that moment, the checkpoint is the last good
        one.
        """
        examples = self.data(data)
        last = self._facts.epochs if epochs is None else epochs
        if examples.count is not None:
            self.total_steps = last * math.ceil(examples.count / self._facts.batch)
        path = checkpoint or self.checkpoint
        if path is not None:
            check_writable(path)
        with self._alone():
            while self.epoch < last:
                self._epoch(examples, last, report)
                between = self.epoch < last and self.epoch % self._facts.every == 0
                if path is not None and between:
                    self._write_checkpoint(path)
            if path is not None:  # also where all was done before, and this could not be written
                self._write_checkpoint(path)
        return self.history

    def _epoch(
        self, examples: Dataset, last: int, report: Callable[[Progress], None] | None
    ) -> None:
        """What is left of the current epoch, then the measures."""
        loss = math.nan
        size = self._facts.batch
        buffers = examples.buffers(size, _BUFFERS)
        begun = examples.batches(self.epoch, size, self.seed, self.position, out=buffers)
        with closing(begun) as batches:  # a thread may be preparing the next ones
            for batch in batches:
                loss = self._stepped(self._step.part_of(batch))
                self._check_finite(loss)
                count = _examples(batch)
                self.position += count
                self._total += loss * count
                if report is not None:
                    report(self._progress(last, examples, loss, None))
        measured = {"loss": self._total / self.position if self.position else math.nan}
        if examples.test is not None:
            found = self._measured(examples.test)
            measured |= {f"{TEST}{name}": value for name, value in found.items()}
        self.epoch, self.position, self._total = self.epoch + 1, 0, 0.0
        self.history = (*self.history, Record(self.epoch, self.steps, measured))
        if report is not None:
            report(self._progress(last, examples, loss, measured))

    def _progress(
        self, last: int, examples: Dataset, loss: float, measured: Mapping[str, float] | None
    ) -> Progress:
        epoch = self.epoch if measured is not None else self.epoch + 1
        return Progress(epoch, last, self.steps, self.position, examples.count, loss, measured)

    def _check_finite(self, loss: float) -> None:
        """Refuse to go on with a loss, or while steps are remembered a weight, that is no number."""
        what = "" if math.isfinite(loss) else f"the loss is {loss}"
        if not what and self._before is not None:
            tensors = self._weights.tensors
            names = (name for name, tensor in tensors.items() if not _is_finite(tensor))
            what = next((f"the weight {name} is no number" for name in names), "")
        if what:
            raise CallError(
                f"{what} after step {self.steps}",
                code="D0815",
                help="lower the learning rate or clip: adam(lr=..., clip_norm=1); "
                "dlc train --check-nan names the operation that it came from",
            )

    # Files ----------------------------------------------------------------------------------------

    @memory_needed()
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint (`.safetensors`), or the whole trainer as it is now (`.dlc`), atomically."""
        with self._alone():
            if os.fspath(path).endswith(SUFFIX):
                self._whole().write(path)
            else:
                self._write_checkpoint(path)

    def _whole(self) -> Artifact:
        """The artifact with the weights of now, which says how far training has come, if it began."""
        made = self._artifact.with_weights(self._weights.block.data)
        others = {name: data for name, data in made.sections.items() if name != PROGRESS}
        begun = self.steps > 0 or self.seed != self._facts.seed
        done = {PROGRESS: memoryview(facts_text(self._done()).encode())} if begun else {}
        return Artifact.of(made.manifest, {**others, **done}, made.name)

    def _done(self) -> Facts:
        return Facts(self.epoch, self.steps, self.position, self.seed, self.history, self._total)

    def _write_checkpoint(self, path: str | os.PathLike[str]) -> None:
        write_checkpoint(path, self._weights.tensors, self._done())

    @memory_needed()
    def resume(self, path: str | os.PathLike[str]) -> None:
        """Go on from a checkpoint, as if there had been no interruption.

        Raises UsageError or ArtifactError for a file that is none, ModelError (D0505) for one of another
        model; nothing has changed then.
        """
        found = read_checkpoint(path)
        with self._alone():
            self._check_fit(found, os.fspath(path))
            self._weights.replace(found.tensors)
            facts = found.facts
            self.epoch, self.steps, self.position = facts.epoch, facts.step, facts.position
            self.seed, self.history, self._total = facts.seed, facts.history, facts.total

    def _check_fit(self, found: Checkpoint, path: str) -> None:
        for name, tensor in self._weights.tensors.items():
            other = found.tensors.get(name)
            if other is None or (other.dtype, other.shape) != (tensor.dtype, tensor.shape):
                what = "lacks it" if other is None else f"has {other.dtype}{list(other.shape)}"
                raise UsageError(
                    f"{path} is of another training: {name} is {tensor.dtype}{list(tensor.shape)}, "
                    f"the checkpoint {what}",
                    code="D0548",
                    help="resume with the model and the optimizer that it was made with",
                )

    @contextmanager
    def _alone(self) -> Generator[None]:
        if not self._lock.acquire(blocking=False):
            raise CallError(
                "the trainer is at work in another thread",
                code="D0813",
                help="a trainer makes one step at a time: make another one, or wait",
            )
        try:
            yield
        finally:
            self._lock.release()


class _Call:
    """One of the two functions with its weights: what is left to give is a batch."""

    def __init__(self, entry: EntryPoint, weights: Mapping[str, Tensor], facts: Training) -> None:
        self.entry = entry
        self.names = {item.name for item in entry.inputs}
        # The memory of the weights stays where it is, so that a step passes the same objects each time.
        self._arguments: list[object] = [None] * len(entry.inputs)
        self._given: list[tuple[int, Input]] = []
        for place, item in enumerate(entry.inputs):
            if item.name in weights:
                self._arguments[place] = _passed(weights[item.name])
            else:
                self._given.append((place, item))
        batch = set(facts.inputs)
        self.batch_inputs = [item for item in entry.inputs if item.name in batch]
        updates = {output.updates for output in entry.outputs if output.updates}
        self.outputs = [output.name for output in entry.outputs if not output.updates]
        assert updates <= set(weights), "only weights are updated"

    def part_of(self, batch: Batch) -> Batch:
        """What this function takes of the arrays of a dataset, which has those of both."""
        return {item.name: batch[item.name] for item in self.batch_inputs}

    def __call__(self, batch: Mapping[str, object], extra: Mapping[str, Array]) -> list[float]:
        """The outputs that are no weights, as numbers."""
        self._refuse_unknown(batch)
        arguments = self._arguments.copy()
        for place, item in self._given:
            arguments[place] = self._argument(item, batch, extra)
        found = self.entry(*arguments)
        results = cast("Sequence[Array]", found if isinstance(found, tuple) else (found,))
        kept = zip(self.entry.outputs, results, strict=True)
        return [float(np.asarray(value)) for output, value in kept if not output.updates]

    def _argument(
        self, item: Input, batch: Mapping[str, object], extra: Mapping[str, Array]
    ) -> object:
        if item.name in extra:
            return extra[item.name]
        if item.name not in batch:
            raise self._refuse(f"the input {item.name} is missing")
        value = batch[item.name]
        if item.dtype == BF16.name and isinstance(value, np.ndarray):
            array = cast("Array", value)
            return Tensor.from_bits(array, BF16.name) if array.dtype == BF16.numpy else array
        return value

    def _refuse_unknown(self, batch: Mapping[str, object]) -> None:
        known = [item.name for item in self.batch_inputs]
        for name in batch:
            if name not in known:
                raise self._refuse(f"there is no input {name}")

    def _refuse(self, message: str) -> CallError:
        known = ", ".join(f"{item.name}=..." for item in self.batch_inputs)
        return CallError(f"{self.entry.name}: {message}", code="D0801", help=f"a batch has {known}")


def _passed(weight: Tensor) -> object:
    """A weight as an entry point takes it with least work: an array, where it is one."""
    is_array = weight.dtype != BF16.name and weight.device == "cpu"
    return weight.bits if is_array else weight


def _is_finite(tensor: Tensor) -> bool:
    return DTYPES[tensor.dtype].kind != "f" or bool(np.isfinite(tensor.values()).all())


def _examples(batch: Mapping[str, Array]) -> int:
    return len(next(iter(batch.values())))
