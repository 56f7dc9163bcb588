"""How a training went: what was measured after each epoch.

Canonical JSON has no fractions (`dlc.runtime.artifact.canonical_json`), so there a measure is the
shortest text that gives the same number back; what other programs read has numbers.

>>> history = (Record(1, 450, {"loss": 0.1, "accuracy": 0.5}),)
>>> stored(history)
[{'epoch': 1, 'step': 450, 'values': {'accuracy': '0.5', 'loss': '0.1'}}]
>>> restored(stored(history)) == history
True
>>> print(as_json(history))
[{"epoch": 1, "step": 450, "loss": 0.1, "accuracy": 0.5}]
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from dlc.runtime.artifact.canonical_json import Json
from dlc.runtime.artifact.schema import Mismatch, decode

TEST = "test_"
"""What the name of a measure of the test examples begins with."""


class Record(NamedTuple):
    """What was measured once `epoch` epochs and `step` steps were done, by name: the loss, metrics."""

    epoch: int
    step: int
    values: Mapping[str, float]


History: TypeAlias = tuple[Record, ...]


class _Stored(NamedTuple):
    """A record as canonical JSON has it."""

    epoch: int
    step: int
    values: Mapping[str, str]


def stored(history: Sequence[Record]) -> list[Json]:
    """The history as canonical JSON has it."""
    return [
        {
            "epoch": record.epoch,
            "step": record.step,
            "values": {name: repr(float(record.values[name])) for name in sorted(record.values)},
        }
        for record in history
    ]


def restored(value: Json) -> History:
    """The history that `stored` gave; raises `schema.Mismatch` for anything else."""
    if not isinstance(value, list):
        raise Mismatch("expected a list of records")
    return tuple(_restored(decode(_Stored, item)) for item in value)


def _restored(record: _Stored) -> Record:
    values = {name: number_of(text) for name, text in record.values.items()}
    return Record(record.epoch, record.step, values)


def number_of(value: Json) -> float:
    """The number that a text in canonical JSON spells; raises `schema.Mismatch` if it spells none."""
    try:
        if isinstance(value, str):
            return float(value)
    except ValueError:
        pass
    raise Mismatch("a measure is no number")


def as_json(history: Sequence[Record]) -> str:
    """The history for other programs: one object for each record; what is not finite is null."""
    rows = [
        {
            "epoch": record.epoch,
            "step": record.step,
            **{n: v if math.isfinite(v) else None for n, v in record.values.items()},
        }
        for record in history
    ]
    return json.dumps(rows, ensure_ascii=False)
