"""Checkpoints: everything that training needs to go on as if it had never stopped.

A checkpoint is a safetensors file, so that any program can read the weights in it. Its metadata says how
far the training had come. The file is written under another name, synced to disk and renamed: whatever
happens, even a kill or a power cut, there is the old checkpoint or the new one, whole. It holds no time
of day and no path: the same training gives the same bytes.
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
    """How far a training has come."""

    epoch: int
    """Epochs that are done."""
    step: int
    """Steps that are done, in all epochs together."""
    position: int
    """Examples of the current epoch that are done."""
    seed: int
    history: History = ()
    total: float = 0.0
    """The losses of those examples together, so that the mean over the epoch comes out the same."""


class Checkpoint(NamedTuple):
    """What a checkpoint holds; the tensors lie on the memory of the mapped file, read-only."""

    tensors: Mapping[str, Tensor]
    facts: Facts


def write_checkpoint(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor], facts: Facts
) -> None:
    """Write a checkpoint in place of the one that is there, all of it or nothing.

    Raises UsageError (D0502) where the file cannot be written; the old one is then as it was.
    """
    safetensors.write(path, tensors, {_KEY: facts_text(facts)})


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """The checkpoint in a file.

    Raises UsageError: D0501 if there is no such file, D0548 if it is not a checkpoint or one of a newer
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
    """How far a training has come, as canonical JSON."""
    numbers: dict[str, Json] = {name: getattr(facts, name) for name in _NUMBERS}
    measured: dict[str, Json] = {"history": stored(facts.history), "total": repr(facts.total)}
    return canonical_json.dump({"version": _VERSION, **numbers, **measured}).decode()


def facts_of(text: str, name: str) -> Facts:
    """What `facts_text` made a text of, which the file `name` has.

    Raises UsageError (D0548) for one of a newer version, ArtifactError (D0503) for a damaged one.
    """
    try:
        found = canonical_json.load(text.encode("utf-8", "surrogatepass"))
        if not isinstance(found, dict):
            raise Mismatch("expected an object")
        if found.get("version") != _VERSION:
            raise _newer(name, found.get("version"))
        if found.keys() != _KEYS:
            raise Mismatch(f"expected the keys {', '.join(sorted(_KEYS))}")
        if not all(type(found[key]) is int and cast(int, found[key]) >= 0 for key in _NUMBERS):
            raise Mismatch(f"{', '.join(_NUMBERS)} are whole numbers from 0 on")
        numbers = {key: cast(int, found[key]) for key in _NUMBERS}
        history, total = restored(found["history"]), number_of(found["total"])
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
