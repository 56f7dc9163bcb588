"""Measures that decide when a training stops early, and which checkpoint is kept as the best.

>>> history = [Record(k + 1, 9, {"test_loss": loss}) for k, loss in enumerate((3.0, 1.0, 2.0, 1.5))]
>>> watched = Watched("loss", patience=2)
>>> best(history, watched).epoch, is_over(history, watched), is_over(history[:3], watched)
(2, True, False)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from dlc.runtime.artifact.manifest import Watched
from dlc.runtime.training.history import TEST, Record


def best(history: Sequence[Record], watched: Watched) -> Record:
    """The record with the best measure, of equal ones the first; NaN is worse than any number."""

    def badness(record: Record) -> float:
        value = measure(record, watched)
        return math.inf if math.isnan(value) else -value if watched.mode == "max" else value

    return min(history, key=badness)


def measure(record: Record, watched: Watched) -> float:
    """The watched measure after an epoch: on the examples for the test, or else on those of the epoch."""
    return record.values.get(f"{TEST}{watched.metric}", record.values.get(watched.metric, math.nan))


def is_over(history: Sequence[Record], watched: Watched) -> bool:
    """Whether no epoch of the last `patience` ones was better than all before."""
    return bool(history) and history[-1].epoch - best(history, watched).epoch >= watched.patience


def best_path(path: Path) -> Path:
    """The file of the best checkpoint, beside that of the last one: `digits.best.safetensors`."""
    stem, dot, rest = path.name.rpartition(".safetensors")
    if not dot:
        return path.with_name(f"{path.stem}.best{path.suffix}")
    return path.with_name(f"{stem}.best{dot}{rest}")
