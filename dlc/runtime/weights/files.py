"""Files of named arrays, opened by their ending: safetensors, npz and npy, or the index of several.

An array is read on access, and everything is checked before it is used; no file is ever unpickled. An
error names the file and the array.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from dlc.errors import ModelError, UsageError
from dlc.errors.suggest import did_you_mean
from dlc.runtime.arrays import npz, safetensors
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.system.mapped_files import map_file, map_inside
from dlc.runtime.weights import weight_index

MOST_SHOWN = 12
"""Names of arrays that a message lists."""

_READERS: dict[str, Callable[[memoryview, str], Mapping[str, Callable[[], Tensor]]]] = {
    ".safetensors": safetensors.entries,
    ".npz": npz.entries,
    ".npy": npz.single_entry,
}


class WeightFile:
    """The arrays of a file by name. That of an npy file has the name of the file without its ending."""

    def __init__(self, path: str, entries: Mapping[str, Callable[[], Tensor]]) -> None:
        self.path = path
        self._entries = entries
        self._read: set[str] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __getitem__(self, name: str) -> Tensor:
        """The array of that name; a view of the mapped file unless the array is compressed.

        Raises ModelError (D0504) with similar names if there is no such array, ArtifactError (D0503) if
        it is damaged, Unsupported (D0507) for an element type that dlc lacks.
        """
        read = self._entries.get(name)
        if read is None:
            raise missing_weight(self.path, name, self)
        self._read.add(name)
        return read()

    @property
    def unread(self) -> list[str]:
        """The names of the arrays that nobody asked for."""
        return [name for name in self._entries if name not in self._read]


def open_weights(path: str | os.PathLike[str]) -> WeightFile:
    """A file that the user named. Raises UsageError if it cannot be read or has another ending."""
    name = os.fspath(path)
    folder = Path(name).parent
    return _opened(name, lambda: map_file(path), lambda shard: map_inside(folder, shard))


def open_weights_inside(folder: str | os.PathLike[str], path: str) -> WeightFile:
    """A file that a text in `folder` names; it must lie in that folder.

    See `dlc.runtime.system.mapped_files`. Raises UsageError if it cannot be read or has another ending.
    """
    below = Path(path).parent
    return _opened(
        str(Path(folder, path)),
        lambda: map_inside(folder, path),
        lambda shard: map_inside(folder, str(below / shard)),
    )


def _opened(
    name: str, file: Callable[[], memoryview], shard: Callable[[str], memoryview]
) -> WeightFile:
    """The arrays of what `file` maps; `shard` maps another file beside it."""
    if Path(name).suffix.lower() == ".json":
        return WeightFile(name, weight_index.entries(file(), name, shard))
    mapped = file()  # a file that is not there is told before an ending that is not known
    return WeightFile(name, _reader(name)(mapped, name))


def missing_weight(path: str, name: str, names: Iterable[str]) -> ModelError:
    """The error for an array that a file lacks."""
    known = list(names)
    way_out = did_you_mean(name, known, most=3)
    if way_out is None:
        shown = ", ".join(known[:MOST_SHOWN])
        more = f" and {len(known) - MOST_SHOWN} more" if len(known) > MOST_SHOWN else ""
        way_out = f"it has {shown}{more}" if known else "it has no arrays at all"
    return ModelError(f"{path}: there is no array {name}", code="D0504", help=way_out)


def _reader(name: str) -> Callable[[memoryview, str], Mapping[str, Callable[[], Tensor]]]:
    reader = _READERS.get(Path(name).suffix.lower())
    if reader is None:
        help = f"use one of {', '.join(_READERS)}, or the .json that is the index of several"
        if Path(name).suffix.lower() == ".dlc":
            help = "it is a compiled model: run it itself, or train with -o NAME.safetensors"
        raise UsageError(f"{name} is not a file of arrays that dlc reads", help=help)
    return reader
