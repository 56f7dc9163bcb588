"""Sharded checkpoints: a file of safetensors of each rank, and an index that names the file of each array.

The index is that of Hugging Face (`dlc.runtime.weights.weight_index`), with the progress of the training
in its metadata. Every rank writes whole arrays, about equally many bytes; those that ranks have parts of
it gathers before, about as many bytes as it has in parts. An array of one stage is written by that. The
names of the files follow from what is in them, so no file of an earlier checkpoint is overwritten. The
index is written last, and then files of earlier checkpoints are removed: after a kill there is the old
checkpoint or the new one, complete.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from dlc.runtime.arrays import safetensors
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.manifest import Weight
from dlc.runtime.ranks.agreement import digest_of, made_by_all
from dlc.runtime.ranks.parts import Parts
from dlc.runtime.system.atomic_write import write_file
from dlc.runtime.training.checkpoint import INDEX, KEY


class Held(NamedTuple):
    """What this rank has of a checkpoint: `tensors`, of which `parts` says which are parts.

    `declared` has the shapes of the whole arrays; those that are not in it are whole on every rank.
    """

    tensors: Mapping[str, Tensor]
    declared: Mapping[str, Weight]
    parts: Parts

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of the whole array."""
        row = self.declared.get(name)
        return self.tensors[name].shape if row is None else row.shape

    def bytes(self, name: str) -> int:
        """The bytes of the whole array."""
        row = self.declared.get(name)
        return self.tensors[name].nbytes if row is None else row.bytes


class _Gathers(Protocol):
    def allgather(self, sendobj: object) -> list[Any]: ...


def write_sharded(
    path: str | os.PathLike[str], held: Held, progress: str, comm: object = None
) -> None:
    """Write a checkpoint with this text of progress; the ranks of a communicator call it together.

    Raises UsageError (D0502) where a file cannot be written, CallError (D0824) where another rank fails; an
    earlier checkpoint is then unchanged.
    """
    index, own = Path(os.path.realpath(path)), held.parts.rank
    digests = _of_all(comm, _digest(held))
    files = _files(index, digest_of([progress, *digests]), len(digests))
    writers = _writers(held, len(digests))
    arrays = _gathered(held, writers)
    made_by_all(comm, lambda: safetensors.write(index.with_name(files[own]), arrays))
    where = {name: files[writer] for name, writer in sorted(writers.items())}

    def finish() -> None:
        size = sum(map(held.bytes, writers))
        text = {"metadata": {"total_size": size, KEY: progress}, "weight_map": where}
        write_file(index, [json.dumps(text, indent=1, ensure_ascii=False).encode() + b"\n"])
        _remove_others(index, set(files))

    made_by_all(comm, finish if own == 0 else lambda: None)


def _of_all(comm: object, own: str) -> list[str]:
    """What all ranks hand over; of a process alone, its own."""
    return cast("_Gathers", comm).allgather(own) if hasattr(comm, "allgather") else [own]


def _digest(held: Held) -> str:
    """What tells the arrays of this rank from others."""
    parts: list[str | memoryview] = []
    for name, tensor in sorted(held.tensors.items()):
        bytes = np.ascontiguousarray(tensor.bits).reshape(-1).view(np.uint8)
        parts += [name, tensor.dtype, bytes.data]
    return digest_of(parts)


def _files(index: Path, digest: str, ranks: int) -> list[str]:
    """The name of the file of each rank."""
    stem = index.name.removesuffix(INDEX)
    return [f"{stem}-{digest}-{k + 1:05}-of-{ranks:05}.safetensors" for k in range(ranks)]


def _writers(held: Held, ranks: int) -> dict[str, int]:
    """The rank that writes each array: of the largest first the one that has the least by then.

    What a stage of a pipeline has alone it writes itself.
    """
    loads = [0] * ranks
    writers: dict[str, int] = {}
    names = {*held.tensors, *held.declared}
    for name in sorted(names, key=lambda name: (-held.bytes(name), name)):
        holders = [rank for rank in range(ranks) if held.parts.is_held(name, rank)]
        writer = min(holders, key=lambda rank: loads[rank])
        writers[name] = writer
        loads[writer] += held.bytes(name)
    return writers


def _gathered(held: Held, writers: Mapping[str, int]) -> dict[str, Tensor]:
    """The whole arrays that this rank writes; all ranks gather the parts in the same order."""
    found: dict[str, Tensor] = {}
    for name, writer in writers.items():
        if name not in held.parts.splits:
            if writer == held.parts.rank:
                found[name] = held.tensors[name]
            continue
        tensor = held.tensors.get(name)
        own = None if tensor is None else tensor.bits
        bits = held.parts.whole(name, own, held.shape(name), writer)
        if bits is not None:
            found[name] = Tensor.from_bits(bits, held.declared[name].dtype)
    return found


def _remove_others(index: Path, files: set[str]) -> None:
    """Remove the files of earlier checkpoints of this index, and of those that were not finished."""
    stem = re.escape(index.name.removesuffix(INDEX))
    pattern = re.compile(rf"{stem}-[0-9a-f]{{16}}-[0-9]{{5,}}-of-[0-9]{{5,}}\.safetensors")
    with suppress(OSError), os.scandir(index.parent) as entries:
        for entry in entries:
            if pattern.fullmatch(entry.name) and entry.name not in files:
                with suppress(OSError):
                    os.unlink(entry.path)
