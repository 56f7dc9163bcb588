"""Steps and measurements of a compiled model with the weights that it trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Literal, overload

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CallError, memory_needed
from dlc.errors.boundary import methods_without_frames
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import EVALUATE, NUMBER, RATE, SEED, STEP, TOTAL
from dlc.runtime.calling.rank_work import RankWork
from dlc.runtime.data import Dataset
from dlc.runtime.model import Model
from dlc.runtime.profiling.profile import Profile
from dlc.runtime.ranks.pulse import OwnPulse
from dlc.runtime.system.buffers import Bytes, aligned_bytes
from dlc.runtime.training.epoch_sums import WEIGHT, EpochSums
from dlc.runtime.training.history import History
from dlc.runtime.training.learning_rate import rate_after
from dlc.runtime.training.started_step import StartedStep
from dlc.runtime.training.step_call import StepCall, share_of
from dlc.runtime.training.trained_artifact import progress_of, training_of
from dlc.runtime.training.trained_weights import TrainedWeights
from dlc.runtime.training.training_state import TrainingState
from dlc.runtime.weights.model_weights import WeightViews

Array = NDArray[np.generic]

_MOST_STEPS = (1 << 31) - 1
"""The largest `total_steps` that a step is passed: an i32; a longer schedule has hardly begun to fall."""


@methods_without_frames
class Stepper:
    """Makes steps and measurements of one `train` block; a `Trainer` knows data and files, too."""

    def _begin_steps(self, artifact: Artifact, model: Model, weights: TrainedWeights) -> None:
        """Begin where the artifact says that its training has come to."""
        self._facts = facts = training_of(artifact)
        self._weights = weights
        self._step, self._evaluate = (
            StepCall(model.entry_points[name], weights.passed, facts, share_of(model, name, facts))
            for name in (STEP, EVALUATE)
        )
        self.pulse: OwnPulse | None = None
        """Where this rank says how far it has come, if others watch it."""
        self._settle = self._step.settle
        self._before: Bytes | None = None
        self._last: dict[str, object] = {}
        self._state = TrainingState.of(progress_of(artifact))
        self.total_steps: int | None = None
        """Number of steps of the whole training, which schedules may read. `fit` sets it if it is known."""
        self.parts: dict[str, float] = {}
        """The further numbers of the loss in the last step that was waited for, by name."""
        self.skipped = False
        """Whether that step changed nothing but a dynamic loss scale, which was too large."""

    @property
    def rank_work(self) -> RankWork:
        """How long the steps of this rank took that were looked at, and how much of that in collectives."""
        return self._step.work

    @property
    def seed(self) -> int:
        """The seed of the order of examples and of random numbers."""
        return self._state.seed

    @property
    def epoch(self) -> int:
        """Number of finished epochs."""
        return self._state.epoch

    @property
    def steps(self) -> int:
        """Number of finished steps."""
        return self._state.steps

    @property
    def position(self) -> int:
        """Number of finished examples of the current epoch."""
        return self._state.position

    @property
    def history(self) -> History:
        """The loss and the metrics after each finished epoch."""
        return self._state.history

    # A checker takes `step(**batch)` of a mapping to arrays for the second form.
    @overload
    def step(  # pyright: ignore[reportOverlappingOverload]
        self, *, wait: Literal[False], **batch: object
    ) -> StartedStep: ...

    @overload
    def step(self, *, wait: object = True, **batch: object) -> float: ...

    @memory_needed
    def step(self, *, wait: object = True, **batch: object) -> float | StartedStep:
        """Make one step with a batch and return its loss.

        A loss that is NaN or infinite is returned like any other, and the weights are those of that step:
        look at it, and go on from a checkpoint. A step that raises has changed nothing, but for weights in
        the memory of a GPU.

        On a GPU `wait=False` starts it and returns a `StartedStep`, whose `loss()` waits; the next steps
        come after it, and whatever reads the weights waits. Up to four are in flight. Arrays in pinned
        memory, or on the GPU, must stay as they are until then. If one fails, so do those that were started
        after it. On a processor the step is over when this returns. An array called `wait` is an input.

        Raises CallError for arrays that do not fit, and D0816 if the schedule of the learning rate reads
        `total_steps`, which is not set.
        """
        if not isinstance(wait, bool):
            batch["wait"] = wait
        with self._weights.alone:
            started = self._started(batch, wait=wait is not False)
        return started if wait is False else started.loss()

    def _stepped(self, batch: Mapping[str, object]) -> float:
        return self._started(batch, wait=True).loss()

    @memory_needed
    def profile(self, *, rounds: int | None = None, **batch: object) -> Profile:
        """Where the time of a step with a batch goes; it is made again and again, and changes nothing.

        Ranks call it together, and each has the times of its part. `rounds` is as for the profile of an
        entry point, which says what is raised.
        """
        with self._weights.alone:
            self._weights.settle()
            return self._step.profile(batch, self._extra(), rounds)

    def _extra(self) -> dict[str, Array]:
        """The inputs of the next step that are no batch."""
        seed = np.array(self._state.seed_of_step(), np.uint64)
        extra: dict[str, Array] = {NUMBER: np.array(self.steps, np.int32), SEED: seed}
        if TOTAL in self._step.names:
            extra[TOTAL] = np.array(min(self._all_steps(), _MOST_STEPS), np.int32)
        if RATE in self._step.names:
            extra[RATE] = np.array(self.rate, np.float32)
        return extra

    def _started(self, batch: Mapping[str, object], *, wait: bool) -> StartedStep:
        extra = self._extra()
        if self._before is not None:
            self._before[:] = self._weights.block
            self._last = {**batch, **extra}
        self._weights.changing(self._settle)  # also where it fails
        with self._pulsing():
            started = self._step.start(batch, extra, wait=wait)
            if wait:
                started.numbers()  # raises if it has failed, before it is counted
        self._state.steps += 1
        if self.pulse is not None:
            self.pulse.finish_step(self.steps)
        return StartedStep(started, self._ended)

    def _ended(self, numbers: Sequence[float]) -> float:
        """Take what a step gave, as it is waited for; returns its loss."""
        loss, *parts = numbers
        self.skipped = self._facts.skips and parts.pop() > 0
        self.parts = dict(zip(self._facts.parts, parts, strict=True))
        return loss

    def _pulsing(self) -> AbstractContextManager[None]:
        """For a call of the compiled functions, in which a rank may wait for others."""
        return nullcontext() if self.pulse is None else self.pulse.call()

    @property
    def rate(self) -> float:
        """The part of the learning rates that a plateau has left: 1 where the `train` block has none."""
        plateau = self._facts.rate
        return 1.0 if plateau is None else rate_after(self.history, plateau)

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
        weights = WeightViews(self._weights.table, self._before)
        values = {**self._last, **{name: weights.tensor(name) for name in weights}}
        return {item.name: values[item.name] for item in self._step.entry.inputs}

    @memory_needed
    def measure(self, **batch: object) -> dict[str, float]:
        """The loss and the metrics of one batch."""
        with self._weights.alone:
            (found,) = self._evaluated([batch])
            return dict(zip(self._evaluate.outputs, found, strict=True))

    def _evaluated(
        self, batches: Sequence[Mapping[str, object]], first: int = 0
    ) -> Sequence[Sequence[float]]:
        """The loss and the metrics of each batch; `first` counts those before in a measurement."""
        self._weights.settle()
        seeds = [self._state.seed_of_measurement(first + k) for k in range(len(batches))]
        extra = [{SEED: np.array(seed, np.uint64)} for seed in seeds]
        with self._pulsing():
            if len(batches) == 1:
                return [self._evaluate(batches[0], extra[0])]
            return self._evaluate.several(list(zip(batches, extra, strict=True)))

    def _measured(self, data: Dataset) -> dict[str, float]:
        names = self._evaluate.outputs
        sums = EpochSums(parts=dict.fromkeys([name for name in names[1:] if name != WEIGHT], 0.0))
        part = self._evaluate.part
        batches = self._evaluate.each_of(data.batches(0, self._facts.batch, self.seed, part=part))
        # A stream of a program may give one array again and again.
        at_once = 1 if data.count is None else self._evaluate.at_once
        done = 0
        while group := list(islice(batches, at_once)):
            found = self._evaluated([self._evaluate.inputs_of(batch) for batch in group], done)
            for batch, values in zip(group, found, strict=True):
                sums.add(dict(zip(names, values, strict=True)), examples_in(batch))
            done += len(group)
        return sums.means()


def examples_in(batch: Mapping[str, Array]) -> int:
    return len(next(iter(batch.values())))
