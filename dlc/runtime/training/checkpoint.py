"""Checkpoints: the complete state of a training, from which it resumes as if it had never stopped.

A checkpoint is a safetensors file, so that any program can read the weights in it. Its metadata holds the
progress of the training. The file is written under a temporary name, synced to disk and renamed: even
after a kill or a power cut, either the old checkpoint or the new one is there, complete. It holds no time
of day and no path, so the same training gives the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple, cast

from dlc.errors import ArtifactError, UsageError
from dlc.runtime.arrays import safetensors
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact import canonical_json
from dlc.runtime.artifact.canonical_json import BadJson, Json
from dlc.runtime.artifact.schema import Mismatch
from dlc.runtime.system.mapped_files import map_file
from dlc.runtime.training.history import History, number_of, restored, stored

_KEY = "dlc.checkpoint"
_VERSION = 1
_NUMBERS = ("epoch", "step", "position", "seed")
_KEYS = {"version", *_NUMBERS, "history", "total"}


class Facts(NamedTuple):
    """The progress of a training."""

    epoch: int
    """Number of finished epochs."""
    step: int
    """Number of finished steps, over all epochs."""
    position: int
    """Number of finished examples of the current epoch."""
    seed: int
    history: History = ()
    total: float = 0.0
    """Sum of the losses of those examples, so that a resumed epoch has the same mean loss."""


class Checkpoint(NamedTuple):
    """The contents of a checkpoint; the tensors are read-only views of the mapped file."""

    tensors: Mapping[str, Tensor]
    facts: Facts


def write_checkpoint(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor], facts: Facts
) -> None:
    """Write a checkpoint atomically; it replaces an earlier one at the same path.

    Raises UsageError (D0502) if the file cannot be written; an earlier one is then unchanged.
    """
    safetensors.write(path, tensors, {_KEY: facts_text(facts)})


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a checkpoint.

    Raises UsageError: D0501 if there is no such file, D0548 if it is not a checkpoint or has a newer
    version; ArtifactError (D0503) if it is damaged.
    """
    name = os.fspath(path)
    file = map_file(path)
    readers = safetensors.entries(file, name)
    text = safetensors.metadata(file, name).get(_KEY)
    if text is None:
        raise UsageError(
            f"{name} is no checkpoint: it does not say how far a training has come",
            code="D0548",
            help="give it as weights to begin a training with them",
        )
    facts = facts_of(text, name)
    return Checkpoint({key: read() for key, read in readers.items()}, facts)


def facts_text(facts: Facts) -> str:
    """The progress of a training as canonical JSON."""
    numbers: dict[str, Json] = {name: getattr(facts, name) for name in _NUMBERS}
    measured: dict[str, Json] = {"history": stored(facts.history), "total": repr(facts.total)}
    return canonical_json.dump({"version": _VERSION, **numbers, **measured}).decode()


def facts_of(text: str, name: str) -> Facts:
    """The progress that `facts_text` wrote; `name` is the file that holds the text.

    Raises UsageError (D0548) for a newer version, ArtifactError (D0503) for damaged text.
    """
    try:
        record = canonical_json.load(text.encode("utf-8", "surrogatepass"))
        if not isinstance(record, dict):
            raise Mismatch("expected an object")
        if record.get("version") != _VERSION:
            raise _newer(name, record.get("version"))
        if record.keys() != _KEYS:
            raise Mismatch(f"expected the keys {', '.join(sorted(_KEYS))}")
        if not all(type(record[key]) is int and cast(int, record[key]) >= 0 for key in _NUMBERS):
            raise Mismatch(f"{', '.join(_NUMBERS)} are whole numbers from 0 on")
        numbers = {key: cast(int, record[key]) for key in _NUMBERS}
        history, total = restored(record["history"]), number_of(record["total"])
        return Facts(**numbers, history=history, total=total)
    except (BadJson, Mismatch) as error:
        raise ArtifactError(
            f"{name}: what it says about the training is damaged: {error}",
            code="D0503",
            help="take an earlier copy of the file",
        ) from None


def _newer(name: str, version: Json | None) -> UsageError:
    return UsageError(
        f"{name} is a checkpoint of version {str(version)[:20]}, this dlc reads version {_VERSION}",
        code="D0548",
        help="update dlc",
    )
