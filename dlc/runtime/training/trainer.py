"""Training a compiled model: its weights, its position in the data, checkpoints.

An artifact that trains has the entry points `train_step` and `evaluate`; `manifest.training` describes
the source of its examples. Like any other artifact it is loaded without the compiler.
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
from dlc.runtime.training.batch_sizes import check_batches
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
"""The section of an artifact with the progress of its training."""
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
"""2**64 by the golden ratio: its multiples lie far apart, and so do the seeds of steps and measurements."""
_MOST_STEPS = (1 << 31) - 1
"""The largest `total_steps` that a step is passed: an i32; a longer schedule has hardly begun to fall."""
_BUFFERS = 3
"""Batches in memory at a time: that of the running step, and those that are being prepared."""


def training_of(artifact: Artifact) -> Training:
    """The description of an artifact's training. Raises UsageError (D0814) if it does not train."""
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
    """The checked examples for `train_step` and `evaluate`: `given`, or else those that the model names."""
    batch = set(facts.inputs)
    wanted: dict[str, Input] = {}
    dims: dict[str, Dim] = {}
    for entry in entries:
        wanted.update({item.name: item for item in entry.inputs if item.name in batch})
        dims.update({dim.name: dim for dim in entry.dims})
    inputs, sizes = tuple(wanted.values()), tuple(dims.values())
    return open_data(facts.data, inputs, folder, given, seed=seed, dims=sizes)


def progress_of(artifact: Artifact) -> Facts:
    """The progress of a trainer that was saved as an artifact; in other artifacts, that of a new training.

    Raises ArtifactError (D0503) or UsageError (D0548) if the section cannot be read.
    """
    text = artifact.section(PROGRESS)
    if not text:
        return Facts(0, 0, 0, training_of(artifact).seed)
    return facts_of(str(text, "utf-8", "replace"), artifact.name)


class Progress(NamedTuple):
    """The progress of `Trainer.fit`: after each step, and with `measured` at the end of an epoch."""

    epoch: int
    epochs: int
    step: int
    position: int
    """Number of finished examples of this epoch."""
    examples: int | None
    """Number of examples in an epoch, if it is known."""
    loss: float
    measured: Mapping[str, float] | None = None


class Trainer:
    """Owns the weights of a model and updates them step by step.

    `step(x=..., y=...)` makes a step with a batch of your own; `fit()` trains on the data that the
    `train` block of the model names, or on data that it is passed. Only one call runs at a time: a call
    from a second thread raises CallError (D0813).
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
        """Train the model of an artifact from its saved progress.

        Paths of data and checkpoints are relative to `folder`.
        `device` is the device to run on, as for `dlc.load`.
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
        """Number of finished epochs."""
        self.steps = done.step
        """Number of finished steps."""
        self.position = done.position
        """Number of finished examples of the current epoch."""
        self.total_steps: int | None = None
        """Number of steps of the whole training, which schedules may read. `fit` sets it if it is known."""
        self.history: History = done.history
        self._total = done.total
        """Sum of the losses of those examples."""

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
        """The current weights, states and optimizer states: read-only views."""
        block = self._weights.block.view()
        block.flags.writeable = False
        return WeightViews(self._artifact.manifest.weights, block)

    @memory_needed()
    def trained(self) -> dict[str, Array]:
        """Copies of the weights and states of the model, without those of the optimizer."""
        table = self._artifact.manifest.weights
        tensors = self._weights.tensors
        return {row.name: tensors[row.name].bits.copy() for row in table if not row.constant}

    # Steps ----------------------------------------------------------------------------------------

    @memory_needed()
    def step(self, **batch: object) -> float:
        """Make one step with a batch and return its loss.

        Raises CallError for arrays that do not fit, and D0816 if the schedule of the learning rate reads
        `total_steps`, which is not set.
        """
        with self._alone():
            return self._stepped(batch)

    def _stepped(self, batch: Mapping[str, object]) -> float:
        # The seed of a step depends on its number, so a resumed training draws the same random numbers.
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
        """From now on keep the inputs of each step, including the weights, for `last_inputs`."""
        self._before = aligned_bytes(len(self._weights.block))

    def last_inputs(self) -> dict[str, object]:
        """The inputs of the last step as they were before it; empty without `remember_steps`."""
        if self._before is None or not self._last:
            return {}
        weights = WeightViews(self._artifact.manifest.weights, self._before)
        values = {**self._last, **{name: weights.tensor(name) for name in weights}}
        return {item.name: values[item.name] for item in self._step.entry.inputs}

    @memory_needed()
    def evaluate(self, data: Given | Dataset | None = None) -> dict[str, float]:
        """The loss and the metrics, each the mean over all examples of `data`, by default the test data.

        Raises UsageError (D0549) if the model has no test data.
        """
        with self._alone():
            return self._measured(self._test_data() if data is None else self.data(data))

    @memory_needed()
    def measure(self, **batch: object) -> dict[str, float]:
        """The loss and the metrics of one batch."""
        with self._alone():
            return dict(zip(self._evaluate.outputs, self._evaluated(batch), strict=True))

    def _evaluated(self, batch: Mapping[str, object], number: int = 0) -> list[float]:
        """The loss and the metrics of one batch; `number` counts those of a measurement.

        The seed depends on the steps made and on the batch, so measuring again draws the same numbers.
        """
        seed = ((self.seed << 32) + self.steps + (number + 1) * _GOLDEN) & _MASK
        return self._evaluate(batch, {SEED: np.array(seed, np.uint64)})

    def _test_data(self) -> Dataset:
        test = self.data().test
        if test is None:
            raise UsageError(
                f"{self._facts.module} has no examples that are kept for the test",
                code="D0549",
                help="keep some: data = npz(..., test=0.2), or name them: evaluate(data)",
            )
        return test

    def _measured(self, data: Dataset) -> dict[str, float]:
        totals = dict.fromkeys(self._evaluate.outputs, 0.0)
        count = 0
        for number, batch in enumerate(data.batches(0, self._facts.batch, self.seed)):
            size = _examples(batch)
            means = self._evaluated(self._evaluate.inputs_of(batch), number)
            for name, mean in zip(totals, means, strict=True):
                totals[name] += mean * size
            count += size
        return {name: total / count if count else math.nan for name, total in totals.items()}

    # Epochs ---------------------------------------------------------------------------------------

    def data(self, given: Given | Dataset | None = None) -> Dataset:
        """The checked examples: `given`, or else those that the model names; a Dataset as it is."""
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
        """Train until `epochs` epochs are finished, including earlier ones, and return the history.

        `data` is a file or folder, an array for each input by name, an iterable of batches, or a result
        of `trainer.data`; by default the data that the `train` block names. `report` is called after each
        step; an exception that it raises ends the training between two steps. The state is written to
        `checkpoint`, or to the path in the `train` block, at the interval that the block states and at
        the end.

        Raises CallError (D0815) if the loss becomes NaN or infinite, or, after `remember_steps`, a
        weight. The trainer then has the weights of that step; the checkpoint is the last good one.
        """
        examples = self.data(data)
        check_batches(self._facts, self._artifact.manifest.entries, examples)
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
            if path is not None:  # also if every epoch was finished, but a write had failed before
                self._write_checkpoint(path)
        return self.history

    def _epoch(
        self, examples: Dataset, last: int, report: Callable[[Progress], None] | None
    ) -> None:
        """Finish the current epoch, then measure the loss and the metrics."""
        loss = math.nan
        size = self._facts.batch
        buffers = examples.buffers(size, _BUFFERS)
        remaining = examples.batches(self.epoch, size, self.seed, self.position, out=buffers)
        with closing(remaining) as batches:  # a thread may be preparing the next ones
            for batch in batches:
                loss = self._stepped(self._step.inputs_of(batch))
                self._check_finite(loss)
                count = _examples(batch)
                self.position += count
                self._total += loss * count
                if report is not None:
                    report(self._progress(last, examples, loss, None))
        measured = {"loss": self._total / self.position if self.position else math.nan}
        if examples.test is not None:
            means = self._measured(examples.test)
            measured |= {f"{TEST}{name}": value for name, value in means.items()}
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
        """Refuse to go on with a loss, or after `remember_steps` a weight, that is NaN or infinite."""
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
        """Write a checkpoint (`.safetensors`), or the trainer as an artifact (`.dlc`), atomically."""
        with self._alone():
            if os.fspath(path).endswith(SUFFIX):
                self._as_artifact().write(path)
            else:
                self._write_checkpoint(path)

    def _as_artifact(self) -> Artifact:
        """The artifact with the current weights, and with the progress of a training that has begun."""
        artifact = self._artifact.with_weights(self._weights.block.data)
        sections = {name: data for name, data in artifact.sections.items() if name != PROGRESS}
        if self.steps > 0 or self.seed != self._facts.seed:
            sections[PROGRESS] = memoryview(facts_text(self._progress_facts()).encode())
        return Artifact.of(artifact.manifest, sections, artifact.name)

    def _progress_facts(self) -> Facts:
        return Facts(self.epoch, self.steps, self.position, self.seed, self.history, self._total)

    def _write_checkpoint(self, path: str | os.PathLike[str]) -> None:
        write_checkpoint(path, self._weights.tensors, self._progress_facts())

    @memory_needed()
    def resume(self, path: str | os.PathLike[str]) -> None:
        """Resume from a checkpoint, as if there had been no interruption.

        Raises UsageError (D0548) if the file is not a checkpoint of this model, ArtifactError if it is
        damaged; the trainer is then unchanged.
        """
        checkpoint = read_checkpoint(path)
        with self._alone():
            self._check_fit(checkpoint, os.fspath(path))
            self._weights.replace(checkpoint.tensors)
            facts = checkpoint.facts
            self.epoch, self.steps, self.position = facts.epoch, facts.step, facts.position
            self.seed, self.history, self._total = facts.seed, facts.history, facts.total

    def _check_fit(self, checkpoint: Checkpoint, path: str) -> None:
        for name, tensor in self._weights.tensors.items():
            other = checkpoint.tensors.get(name)
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
    """`train_step` or `evaluate` with the weights bound: a call takes a batch."""

    def __init__(self, entry: EntryPoint, weights: Mapping[str, Tensor], facts: Training) -> None:
        self.entry = entry
        self.names = {item.name for item in entry.inputs}
        # The weights stay at their addresses, so every step passes the same objects.
        self._arguments: list[object] = [None] * len(entry.inputs)
        self._unbound: list[tuple[int, Input]] = []
        for index, item in enumerate(entry.inputs):
            if item.name in weights:
                self._arguments[index] = _passed(weights[item.name])
            else:
                self._unbound.append((index, item))
        batch = set(facts.inputs)
        self.batch_inputs = [item for item in entry.inputs if item.name in batch]
        updates = {output.updates for output in entry.outputs if output.updates}
        self.outputs = [output.name for output in entry.outputs if not output.updates]
        assert updates <= set(weights), "only weights are updated"

    def inputs_of(self, batch: Batch) -> Batch:
        """The inputs of this function in a batch, which has those of both functions."""
        return {item.name: batch[item.name] for item in self.batch_inputs}

    def __call__(self, batch: Mapping[str, object], extra: Mapping[str, Array]) -> list[float]:
        """The outputs that do not update weights, as numbers."""
        self._refuse_unknown(batch)
        arguments = self._arguments.copy()
        for index, item in self._unbound:
            arguments[index] = self._argument(item, batch, extra)
        returned = self.entry(*arguments)
        results = cast("Sequence[Array]", returned if isinstance(returned, tuple) else (returned,))
        outputs = zip(self.entry.outputs, results, strict=True)
        return [float(np.asarray(value)) for output, value in outputs if not output.updates]

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
    """A weight in the form that an entry point accepts fastest: if possible a NumPy array."""
    is_array = weight.dtype != BF16.name and weight.device == "cpu"
    return weight.bits if is_array else weight


def _is_finite(tensor: Tensor) -> bool:
    return DTYPES[tensor.dtype].kind != "f" or bool(np.isfinite(tensor.values()).all())


def _examples(batch: Mapping[str, Array]) -> int:
    return len(next(iter(batch.values())))
