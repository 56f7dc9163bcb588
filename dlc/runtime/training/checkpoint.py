"""Checkpoints: the complete state of a training, from which it resumes as if it had never stopped.

A checkpoint is a safetensors file, so that any program can read the weights in it. Its metadata holds the
progress of the training: version 1 that of a `train` block without a name, version 2 that of each block.
It is written atomically (`dlc.runtime.system.atomic_write`): even after a kill or a power cut, either the
old checkpoint or the new one is there, complete. It holds no time of day and no path, so the same training
gives the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, cast

from dlc.errors import ArtifactError, UsageError
from dlc.runtime.arrays import safetensors
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact import canonical_json
from dlc.runtime.artifact.canonical_json import BadJson, Json
from dlc.runtime.artifact.manifest import Weight
from dlc.runtime.artifact.schema import Mismatch
from dlc.runtime.system.mapped_files import map_file, map_inside
from dlc.runtime.training.history import History, number_of, restored, stored
from dlc.runtime.weights import weight_index

KEY = "dlc.checkpoint"
"""What the progress stands under in the metadata of a file."""
CHECKPOINT = ".safetensors"
"""How the name of a checkpoint ends."""
INDEX = f"{CHECKPOINT}.index.json"
"""How the name of the index of a sharded checkpoint ends."""
OPTIMIZER, AVERAGE, SCALE = "$optimizer.", "$average.", "$scale."
"""These stand before a weight's name in the names of what its optimizer keeps, and of its average; the last
one before the names of what a loss scale keeps."""
_ONE, _BY_BLOCK = 1, 2
_NUMBERS = ("epoch", "step", "position", "seed")
_KEYS = {*_NUMBERS, "history", "total"}


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
    parts: Mapping[str, float] = MappingProxyType({})
    """The same of the further numbers that the loss gives."""
    weight: float | None = None
    """What those examples count in the means, where that is not their number."""


class Checkpoint(NamedTuple):
    """The contents of a checkpoint; the tensors are read-only views of the mapped file."""

    tensors: Mapping[str, Tensor]
    progress: Mapping[str, Facts]
    """The progress of each `train` block by its name, "" for a block without one."""

    @property
    def facts(self) -> Facts:
        """The progress of the only block."""
        (facts,) = self.progress.values()
        return facts


def write_checkpoint(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor], progress: Mapping[str, Facts]
) -> None:
    """Write a checkpoint with the progress of each block atomically; it replaces an earlier one.

    Raises UsageError (D0502) if the file cannot be written; an earlier one is then unchanged.
    """
    safetensors.write(path, tensors, {KEY: progress_text(progress)})


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a checkpoint.

    Raises UsageError: D0501 if there is no such file, D0548 if it is not a checkpoint or has a newer
    version; ArtifactError (D0503) if it is damaged.
    """
    name = os.fspath(path)
    if Path(name).suffix.lower() == ".dlc":
        raise UsageError(
            f"{name} is a compiled model, and no checkpoint",
            code="D0548",
            help='write checkpoint = file("NAME.safetensors") in train, and resume from that file',
        )
    file = map_file(path)
    readers: Mapping[str, Callable[[], Tensor]]
    if name.endswith(INDEX):
        folder = Path(name).parent
        readers = weight_index.entries(file, name, lambda shard: map_inside(folder, shard))
        text = weight_index.metadata(file, name).get(KEY)
    else:
        readers = safetensors.entries(file, name)
        text = safetensors.metadata(file, name).get(KEY)
    if text is None:
        raise UsageError(
            f"{name} is not a checkpoint: it does not say how far a training has come",
            code="D0548",
            help="give it as weights to begin a training with them",
        )
    progress = progress_of_text(text, name)
    return Checkpoint({key: read() for key, read in readers.items()}, progress)


def block_of(name: str) -> str | None:
    """The `train` block that keeps a tensor of this name beside the weights; None for one of the model.

    >>> block_of("$optimizer.generate:head.w.m"), block_of("$optimizer.head.w.m"), block_of("head.w")
    ('generate', '', None)
    """
    kind = next((kind for kind in (OPTIMIZER, AVERAGE, SCALE) if name.startswith(kind)), None)
    if kind is None:
        return None
    block, colon, _ = name.removeprefix(kind).partition(":")
    return block if colon else ""


def kept_for(name: str) -> str:
    """The weight that an average is of.

    >>> kept_for("$average.generate:head.w"), kept_for("$average.head.w")
    ('head.w', 'head.w')
    """
    return name.removeprefix(AVERAGE).rpartition(":")[2]


def wanted_of(
    checkpoint: Checkpoint, weights: Mapping[str, Weight], blocks: Iterable[str]
) -> dict[str, Weight]:
    """The tensors that a checkpoint has to have: not what is kept for blocks that it is not of."""
    new = [block for block in blocks if block not in checkpoint.progress]
    return {name: weight for name, weight in weights.items() if block_of(name) not in new}


def check_fit(checkpoint: Checkpoint, wanted: Mapping[str, Weight], path: str) -> None:
    """Refuse a checkpoint (UsageError, D0548) that lacks one of these, or has it of another type."""
    for name, weight in wanted.items():
        other = checkpoint.tensors.get(name)
        if other is None or (other.dtype, other.shape) != (weight.dtype, weight.shape):
            what = "lacks it" if other is None else f"has {other.dtype}{list(other.shape)}"
            raise UsageError(
                f"{path} is of another training: {name} is {weight.dtype}{list(weight.shape)}, "
                f"the checkpoint {what}",
                code="D0548",
                help="resume with the model and the optimizer that it was made with",
            )


def carried_by(checkpoint: Checkpoint, blocks: Container[str]) -> Checkpoint:
    """What a checkpoint has of other blocks than these: their progress, and what their optimizers keep."""
    progress = {name: facts for name, facts in checkpoint.progress.items() if name not in blocks}
    tensors = {
        name: tensor for name, tensor in checkpoint.tensors.items() if block_of(name) in progress
    }
    return Checkpoint(tensors, progress)


def progress_text(progress: Mapping[str, Facts]) -> str:
    """The progress of each block as canonical JSON."""
    records: dict[str, Json] = {name: _record(facts) for name, facts in progress.items()}
    if list(progress) == [""]:
        return canonical_json.dump({"version": _ONE, **_record(progress[""])}).decode()
    return canonical_json.dump({"version": _BY_BLOCK, "blocks": records}).decode()


def _record(facts: Facts) -> dict[str, Json]:
    numbers: dict[str, Json] = {name: getattr(facts, name) for name in _NUMBERS}
    parts: dict[str, Json] = {name: repr(total) for name, total in facts.parts.items()}
    measured: dict[str, Json] = {"history": stored(facts.history), "total": repr(facts.total)}
    weight: dict[str, Json] = {} if facts.weight is None else {"weight": repr(facts.weight)}
    return {**numbers, **measured, **({"parts": parts} if parts else {}), **weight}


def progress_of_text(text: str, name: str) -> dict[str, Facts]:
    """The progress that `progress_text` wrote; `name` is the file that holds the text.

    Raises UsageError (D0548) for a newer version, ArtifactError (D0503) for damaged text.
    """
    try:
        record = canonical_json.load(text.encode("utf-8", "surrogatepass"))
        if not isinstance(record, dict):
            raise Mismatch("expected an object")
        match record.pop("version", None):
            case version if version == _ONE:
                return {"": _facts(record)}
            case version if version == _BY_BLOCK:
                return _by_block(record)
            case version:
                raise _newer(name, version)
    except (BadJson, Mismatch) as error:
        raise ArtifactError(
            f"{name}: what it says about the training is damaged: {error}",
            code="D0503",
            help="take an earlier copy of the file",
        ) from None


def _by_block(record: Mapping[str, Json]) -> dict[str, Facts]:
    blocks = record.get("blocks")
    if set(record) != {"blocks"} or not isinstance(blocks, dict) or not blocks:
        raise Mismatch("expected the progress of each block")
    return {block: _facts(facts) for block, facts in blocks.items()}


def _facts(record: Json) -> Facts:
    """The progress of one block; raises Mismatch for any other value."""
    if not isinstance(record, dict) or set(record) - {"parts", "weight"} != _KEYS:
        raise Mismatch(f"expected the keys {', '.join(sorted(_KEYS))}")
    if not all(type(record[key]) is int and cast(int, record[key]) >= 0 for key in _NUMBERS):
        raise Mismatch(f"{', '.join(_NUMBERS)} are whole numbers from 0 on")
    numbers = {key: cast(int, record[key]) for key in _NUMBERS}
    history, total = restored(record["history"]), number_of(record["total"])
    parts = record.get("parts", {})
    if not isinstance(parts, dict):
        raise Mismatch("parts are numbers by name")
    sums = {name: number_of(text) for name, text in parts.items()}
    weight = number_of(record["weight"]) if "weight" in record else None
    return Facts(**numbers, history=history, total=total, parts=sums, weight=weight)


def _newer(name: str, version: Json | None) -> UsageError:
    return UsageError(
        f"{name} is a checkpoint of version {str(version)[:20]}, this dlc reads versions up to {_BY_BLOCK}",
        code="D0548",
        help="update dlc",
    )
