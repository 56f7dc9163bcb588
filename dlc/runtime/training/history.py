"""The history of a training: the loss and the metrics after each epoch.

Canonical JSON has no fractions (`dlc.runtime.artifact.canonical_json`), so it holds a measurement as the
shortest text that converts back to the same number; the JSON for other programs has numbers.

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
"""Prefix of the names of measurements on the test examples."""


class Record(NamedTuple):
    """The loss and the metrics by name, measured after `epoch` epochs and `step` steps."""

    epoch: int
    step: int
    values: Mapping[str, float]


History: TypeAlias = tuple[Record, ...]


class _Stored(NamedTuple):
    """A record in canonical JSON."""

    epoch: int
    step: int
    values: Mapping[str, str]


def stored(history: Sequence[Record]) -> list[Json]:
    """The history as canonical JSON."""
    return [
        {
            "epoch": record.epoch,
            "step": record.step,
            "values": {name: repr(float(record.values[name])) for name in sorted(record.values)},
        }
        for record in history
    ]


def restored(value: Json) -> History:
    """The inverse of `stored`; raises `schema.Mismatch` for any other value."""
    if not isinstance(value, list):
        raise Mismatch("expected a list of records")
    return tuple(_restored(decode(_Stored, item)) for item in value)


def _restored(record: _Stored) -> Record:
    values = {name: number_of(text) for name, text in record.values.items()}
    return Record(record.epoch, record.step, values)


def number_of(value: Json) -> float:
    """The number in a text of canonical JSON; raises `schema.Mismatch` if it is not a number."""
    try:
        if isinstance(value, str):
            return float(value)
    except ValueError:
        pass
    raise Mismatch("a measure is not a number")


def as_json(history: Sequence[Record]) -> str:
    """The history as JSON for other programs: one object for each record; non-finite numbers are null."""
    rows = [
        {
            "epoch": record.epoch,
            "step": record.step,
            **{n: v if math.isfinite(v) else None for n, v in record.values.items()},
        }
        for record in history
    ]
    return json.dumps(rows, ensure_ascii=False)
