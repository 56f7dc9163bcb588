"""The losses of an epoch so far, as sums over its examples."""

from __future__ import annotations

import math
from collections.abc import Mapping

_LOSS = "loss"


class EpochSums:
    """Sums of the loss and of the further numbers that it gives, each times the examples of its step.

    >>> sums = EpochSums()
    >>> sums.add({"loss": 2.0, "fit": 1.0}, 3)
    >>> sums.add({"loss": 1.0, "fit": 0.0}, 1)
    >>> sums.means(4)
    {'loss': 1.75, 'fit': 0.75}
    """

    def __init__(self, total: float = 0.0, parts: Mapping[str, float] | None = None) -> None:
        self._totals = {_LOSS: total, **(parts or {})}

    def add(self, losses: Mapping[str, float], count: int) -> None:
        """Add the losses of a step with so many examples."""
        for name, value in losses.items():
            self._totals[name] = self._totals.get(name, 0.0) + value * count

    def means(self, count: int) -> dict[str, float]:
        """The means over so many examples; NaN over none."""
        return {name: total / count if count else math.nan for name, total in self._totals.items()}

    @property
    def total(self) -> float:
        """The sum of the losses."""
        return self._totals[_LOSS]

    @property
    def parts(self) -> dict[str, float]:
        """The sums of the further numbers."""
        return {name: total for name, total in self._totals.items() if name != _LOSS}
