"""A step of training that was started, and may be in flight on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc.runtime.calling.started import Started


class StartedStep:
    """What `trainer.step(..., wait=False)` gives: `loss()` waits for the step."""

    __slots__ = ("_loss", "_started", "_take")

    def __init__(self, started: Started, take: Callable[[Sequence[float]], float]) -> None:
        """`take` is given the numbers of the step, once, and returns the loss."""
        self._started, self._take = started, take
        self._loss: float | None = None

    def loss(self) -> float:
        """Wait for the step and return its loss.

        Raises CallError if the step, or one that was started before it, has failed.
        """
        if self._loss is None:
            self._loss = self._take(self._started.numbers())
        return self._loss

    def __float__(self) -> float:
        return self.loss()
