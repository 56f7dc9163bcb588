"""The learning rate of an epoch: it falls once a measure gets no better, as by PyTorch's ReduceLROnPlateau.

The rate after an epoch follows from the measures of all epochs so far. So it is nothing that a checkpoint
would have to keep beside its history.

>>> losses = [Record(k + 1, 9, {"loss": loss}) for k, loss in enumerate((3.0, 1.0, 1.0, 1.5, 1.2))]
>>> [rate_after(losses[:k], Plateau("loss", factor="0.5", patience=1)) for k in range(6)]
[1.0, 1.0, 1.0, 1.0, 0.5, 0.5]
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlc.runtime.artifact.manifest import Plateau, Watched
from dlc.runtime.training.early_stopping import measure
from dlc.runtime.training.history import Record


def rate_after(history: Sequence[Record], plateau: Plateau) -> float:
    """The part of the learning rates that is left after these epochs, from 1 down to `least`."""
    factor, least = float(plateau.factor), float(plateau.least)
    watched = Watched(plateau.metric, plateau.mode)
    rate, best = 1.0, -math.inf if plateau.mode == "max" else math.inf
    bad = cooldown = 0
    for record in history:
        value = measure(record, watched)
        if _is_better(value, best, plateau):
            best, bad = value, 0
        else:
            bad += 1
        if cooldown > 0:
            cooldown, bad = cooldown - 1, 0
        if bad > plateau.patience:
            rate = max(rate * factor, least)
            cooldown, bad = plateau.cooldown, 0
    return rate


def _is_better(value: float, best: float, plateau: Plateau) -> bool:
    """Whether a measure is better than the best so far; NaN never is."""
    threshold = float(plateau.threshold)
    sign = 1 if plateau.mode == "max" else -1
    if plateau.threshold_mode == "rel":
        return sign * value > sign * best * (1 + sign * threshold)
    return sign * value > sign * best + threshold
