"""The losses of an epoch so far, as sums over its examples."""

from __future__ import annotations

import math
from collections.abc import Mapping

_LOSS = "loss"
WEIGHT = "weight"
"""The number of a loss that says what its batch counts in means, instead of the number of its examples."""


class EpochSums:
    """Sums of the loss and of the further numbers that it gives, each times what its step counts.

    A step counts as many examples as it has, or what the loss gives as `weight`, such as the tokens that it
    is the mean over.

    >>> sums = EpochSums()
    >>> sums.add({"loss": 2.0, "fit": 1.0}, 3)
    >>> sums.add({"loss": 1.0, "fit": 0.0}, 1)
    >>> sums.means()
    {'loss': 1.75, 'fit': 0.75}
    >>> sums.add({"loss": 0.0, "fit": 0.0, "weight": 4.0}, 1)
    >>> sums.means()
    {'loss': 0.875, 'fit': 0.375}
    """

    def __init__(
        self, total: float = 0.0, parts: Mapping[str, float] | None = None, weight: float = 0.0
    ) -> None:
        self._totals = {_LOSS: total, **(parts or {})}
        self.weight = weight
        """What all steps so far count."""

    def add(self, losses: Mapping[str, float], count: int) -> None:
        """Add the numbers of a step with `count` examples; those of weight 0, means over nothing, add 0."""
        weight = losses.get(WEIGHT, count)
        for name, value in losses.items():
            if name != WEIGHT:
                share = value * weight if weight else 0.0
                self._totals[name] = self._totals.get(name, 0.0) + share
        self.weight += weight

    def means(self) -> dict[str, float]:
        """The means over what all steps count; NaN over nothing."""
        return {
            name: total / self.weight if self.weight else math.nan
            for name, total in self._totals.items()
        }

    @property
    def total(self) -> float:
        """The sum of the losses."""
        return self._totals[_LOSS]

    @property
    def parts(self) -> dict[str, float]:
        """The sums of the further numbers."""
        return {name: total for name, total in self._totals.items() if name != _LOSS}
