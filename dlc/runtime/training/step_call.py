"""Calls of the functions that train, with the weights bound to them."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CallError
from dlc.runtime.arrays.dtypes import BF16
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.manifest import OF_RANK, STEP, Input, Training
from dlc.runtime.calling.entry import EntryPoint
from dlc.runtime.calling.rank_work import RankWork
from dlc.runtime.calling.staged_entry import StagedEntryPoint
from dlc.runtime.calling.started import Done, Started
from dlc.runtime.data import Batch
from dlc.runtime.model import Model
from dlc.runtime.profiling.profile import Profile
from dlc.runtime.training.rank_parts import batch_part

Array = NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Share:
    """The part of each batch that is a rank's, number `part` of `parts`, and the function that takes it.

    Of a step with several `microbatches` it is a part of each, in rows.
    """

    entry: EntryPoint
    part: int
    parts: int
    microbatches: int

    def shape(self, examples: int) -> tuple[int, ...] | None:
        """The first axes of this rank's part of so many examples; None if there are no equal parts."""
        size, rest = divmod(examples, self.parts * self.microbatches)
        if rest:
            return None
        return (size,) if self.microbatches == 1 else (self.microbatches, size)

    def of(self, batch: Mapping[str, object]) -> Mapping[str, object] | None:
        """This rank's examples; None for a batch without equal parts."""
        found: dict[str, object] = {}
        for name, value in batch.items():
            rows = cast("Array", value if hasattr(value, "shape") else np.asarray(value))
            (count, *rest) = rows.shape or (1,)
            shape = self.shape(count)
            if shape is None:
                return None
            size = shape[-1]
            own = slice(self.part * size, (self.part + 1) * size)
            if self.microbatches == 1:
                found[name] = rows[own]
            else:
                found[name] = rows.reshape(self.microbatches, self.parts * size, *rest)[:, own]
        return found


class StepCall:
    """`train_step` or `evaluate` with the weights bound: a call takes a batch."""

    def __init__(
        self,
        entry: EntryPoint,
        weights: Mapping[str, Tensor],
        facts: Training,
        share: Share | None = None,
    ) -> None:
        self.entry = entry
        self._share = share
        self.names = {item.name for item in entry.inputs}
        # The weights stay at their addresses, so every step passes the same objects.
        self._arguments: list[object] = [None] * len(entry.inputs)
        self._unbound: list[tuple[int, Input]] = []
        nothing: Mapping[str, int] = {}
        homes = entry.homes if isinstance(entry, StagedEntryPoint) else nothing
        for index, item in enumerate(entry.inputs):
            if item.name in weights:
                self._arguments[index] = _passed(weights[item.name])
            elif item.name not in homes:
                self._unbound.append((index, item))
        batch = set(facts.inputs)
        self.batch_inputs = [item for item in entry.inputs if item.name in batch]
        updates = {output.updates for output in entry.outputs if output.updates}
        self.outputs = [output.name for output in entry.outputs if not output.updates]
        assert updates <= {*weights, *homes}, "only weights are updated"
        places = {item.name: index for index, item in enumerate(entry.inputs)}
        bound = {places[name]: weights[name] for name in weights if name in places}
        self._binding = None if share is not None else entry.bind(bound)

    @property
    def work(self) -> RankWork:
        """How long the steps of this rank took that were looked at, and how much of that in collectives."""
        return self.entry.work if self._share is None else self._share.entry.work + self.entry.work

    @property
    def part(self) -> tuple[int, int]:
        """Which of how many parts of a batch this rank computes."""
        return (0, 1) if self._share is None else (self._share.part, self._share.parts)

    def of_rank(self, examples: int) -> tuple[EntryPoint, tuple[int, ...]]:
        """The function that takes this rank's part of a batch of `examples`, and that part's first axes."""
        share = self._share
        shape = None if share is None else share.shape(examples)
        if share is None or shape is None:
            return self.entry, (examples,)
        return share.entry, shape

    def inputs_of(self, batch: Batch) -> Batch:
        """The inputs of this function in a batch, which has those of both functions."""
        return {item.name: batch[item.name] for item in self.batch_inputs}

    def each_of(self, batches: Iterator[Batch]) -> Generator[Batch]:
        """The batches for calls of it; a rank that has no more, or cannot make one, tells the others."""
        while True:
            with self.entry.preparing():
                batch = next(batches, None)
            if batch is None:
                self.entry.ended()
                return
            yield batch

    def __call__(self, batch: Mapping[str, object], extra: Mapping[str, Array]) -> Sequence[float]:
        """The outputs that do not update weights, as numbers."""
        return self.start(batch, extra, wait=True).numbers()

    def start(
        self, batch: Mapping[str, object], extra: Mapping[str, Array], *, wait: bool
    ) -> Started:
        """Begin a call; where weights are on a GPU and `wait` is false, it may not be over."""
        entry, given = self._given(batch, extra)
        if self._binding is not None:
            return self._binding.start(given, wait=wait)
        return Done(self._numbers(entry(*self._all(given))))

    def profile(
        self, batch: Mapping[str, object], extra: Mapping[str, Array], rounds: int | None
    ) -> Profile:
        """Where the time of a call goes, which changes nothing; of a rank, that of its part."""
        entry, given = self._given(batch, extra)
        return entry.profile(*self._all(given), rounds=rounds)

    def several(
        self, calls: Sequence[tuple[Mapping[str, object], Mapping[str, Array]]]
    ) -> list[Sequence[float]]:
        """What calls with these batches give, each as a call by itself; stages overlap them."""
        found: list[Sequence[float]] = []
        given = [self._given(*each) for each in calls]
        for entry, own in groupby(given, key=lambda each: each[0]):
            arguments = [self._all(values) for _, values in own]
            if isinstance(entry, StagedEntryPoint):
                returned = entry.calls([(each, {}) for each in arguments])
            else:
                returned = [entry(*each) for each in arguments]
            found += map(self._numbers, returned)
        return found

    @property
    def at_once(self) -> int:
        """How many calls to make together, as far as there are batches."""
        return self.entry.at_once if isinstance(self.entry, StagedEntryPoint) else 1

    def _given(
        self, batch: Mapping[str, object], extra: Mapping[str, Array]
    ) -> tuple[EntryPoint, list[object]]:
        """The function that a batch is passed to, and the arguments that are not weights."""
        with self.entry.preparing():
            self._refuse_unknown(batch)
            entry = self.entry
            if self._share is not None and (rows := self._share.of(batch)) is not None:
                entry, batch = self._share.entry, rows
            return entry, [self._argument(item, batch, extra) for _, item in self._unbound]

    def _all(self, given: Sequence[object]) -> list[object]:
        """The arguments of a call, weights included."""
        arguments = self._arguments.copy()
        for (index, _), value in zip(self._unbound, given, strict=True):
            arguments[index] = value
        return arguments

    def _numbers(self, returned: object) -> Sequence[float]:
        """The results of a call that do not update weights."""
        results = cast("Sequence[Array]", returned if isinstance(returned, tuple) else (returned,))
        outputs = zip(self.entry.outputs, results, strict=True)
        return [float(np.asarray(value)) for output, value in outputs if not output.updates]

    def settle(self) -> None:
        """Wait until all calls are over. How each ended is told by what `start` gave."""
        if self._binding is not None:
            self._binding.settle()

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


def share_of(model: Model, name: str, facts: Training) -> Share | None:
    """The share of a rank in the batches of a function, if the model was compiled for ranks."""
    entry = model.entry_points.get(name + OF_RANK)
    if entry is None:
        return None
    return Share(entry, *batch_part(model), facts.accumulate if name == STEP else 1)


def _passed(weight: Tensor) -> object:
    """A weight in the form that an entry point accepts fastest: if possible a NumPy array."""
    is_array = weight.dtype != BF16.name and weight.device == "cpu"
    return weight.bits if is_array else weight


def first_examples(batch: Batch, count: int) -> Batch:
    """The first examples of a batch: a last one that is short may not make equal microbatches."""
    return {name: rows[:count] for name, rows in batch.items()}
