"""Files of named arrays, opened by their ending: safetensors, npz and npy.

Nothing is read until an array is asked for, and nothing is believed before it is checked; no file is
ever unpickled. What cannot be used is refused with the name of the file and of the array.
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

_READERS: dict[str, Callable[[memoryview, str], Mapping[str, Callable[[], Tensor]]]] = {
    ".safetensors": safetensors.entries,
    ".npz": npz.entries,
    ".npy": npz.single_entry,
}


class WeightFile:
    """The arrays of one file by name. An npy file has one, named like the file without its ending."""

    def __init__(self, path: str, entries: Mapping[str, Callable[[], Tensor]]) -> None:
        self.path = path
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __getitem__(self, name: str) -> Tensor:
        """The array of that name, on the file's own memory where it is stored uncompressed.

        Raises ModelError (D0504) with the nearest names if there is none, ArtifactError (D0503) if it
        is damaged, Unsupported (D0507) for an element type that dlc lacks.
        """
        read = self._entries.get(name)
        if read is None:
            raise missing_weight(self.path, name, self)
        return read()


def open_weights(path: str | os.PathLike[str]) -> WeightFile:
    """The file that the user named. Raises UsageError if it cannot be read or has another ending."""
    name = os.fspath(path)
    read = _reader(name)
    return WeightFile(name, read(map_file(path), name))


def open_weights_inside(folder: str | os.PathLike[str], path: str) -> WeightFile:
    """The file that a text in `folder` named; it must lie in that folder (see
    `dlc.runtime.system.mapped_files`).
    """
    name = str(Path(folder, path))
    read = _reader(name)
    return WeightFile(name, read(map_inside(folder, path), name))


def missing_weight(path: str, name: str, names: Iterable[str]) -> ModelError:
    """The error for an array that a file lacks."""
    known = list(names)
    way_out = did_you_mean(name, known, most=3)
    if way_out is None and 0 < len(known) <= 12:
        way_out = f"it has {', '.join(known)}"
    return ModelError(f"{path}: there is no array {name}", code="D0504", help=way_out)


def _reader(name: str) -> Callable[[memoryview, str], Mapping[str, Callable[[], Tensor]]]:
    found = _READERS.get(Path(name).suffix.lower())
    if found is None:
        raise UsageError(
            f"{name} is not a file of arrays that dlc reads",
            help=f"use one of {', '.join(_READERS)}",
        )
    return found
