"""The progress of a training: the position in the data, the history, and the seeds that follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlc.runtime.training.checkpoint import Facts
from dlc.runtime.training.epoch_sums import EpochSums
from dlc.runtime.training.history import History, Record

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
"""2**64 by the golden ratio: its multiples lie far apart, and so do the seeds of steps and measurements."""


@dataclass(slots=True)
class TrainingState:
    """The progress of a running training; `Facts` is what a file has of it."""

    seed: int
    epoch: int
    steps: int
    position: int
    history: History
    sums: EpochSums
    """Of the losses of the finished examples of this epoch."""
    seen: int
    """The step after which the weights were last looked at."""

    @classmethod
    def of(cls, facts: Facts) -> TrainingState:
        """The state in which a file was written."""
        weight = float(facts.position) if facts.weight is None else facts.weight
        sums = EpochSums(facts.total, facts.parts, weight)
        return cls(
            facts.seed, facts.epoch, facts.step, facts.position, facts.history, sums, facts.step
        )

    def facts(self) -> Facts:
        """What a file has of it."""
        weight = None if self.sums.weight == self.position else self.sums.weight
        return Facts(
            self.epoch,
            self.steps,
            self.position,
            self.seed,
            self.history,
            self.sums.total,
            self.sums.parts,
            weight,
        )

    def seed_of_step(self) -> int:
        """The seed of the next step. A resumed training draws the same numbers: it depends on the step."""
        return ((self.seed << 32) + self.steps) & _MASK

    def seed_of_measurement(self, number: int) -> int:
        """The seed for a batch of a measurement: measuring again draws the same numbers."""
        return (self.seed_of_step() + (number + 1) * _GOLDEN) & _MASK

    def finish_epoch(self, measured: Mapping[str, float]) -> None:
        """Note what was measured after an epoch, and begin the next one."""
        self.epoch, self.position = self.epoch + 1, 0
        self.sums = EpochSums()
        self.history = (*self.history, Record(self.epoch, self.steps, measured))
