"""The location of examples: a file or folder named by a model's text, or by the user.

A path in a text must lead into the folder of that text (`dlc.runtime.system.mapped_files`); a path from the
user may lead anywhere.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from dlc.errors import UsageError
from dlc.runtime.system.mapped_files import map_file, map_inside
from dlc.runtime.weights.files import WeightFile, open_weights, open_weights_inside


class DataLocation(NamedTuple):
    """A path to examples; `folder` is that of the text that names it, None for a path from the user."""

    path: str
    folder: str | None = None

    def __str__(self) -> str:
        return self.path if self.folder is None else str(Path(self.folder, self.path))

    @property
    def is_folder(self) -> bool:
        return Path(str(self)).is_dir()

    def inside(self, name: str) -> DataLocation:
        """The location of an entry of this folder."""
        return DataLocation(f"{self.path}/{name}", self.folder)

    def names(self) -> list[str]:
        """The entries of this folder, sorted, without hidden ones. Raises UsageError (D0501)."""
        try:
            return sorted(name for name in os.listdir(str(self)) if not name.startswith("."))
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise UsageError(f"cannot read {self}: {why}", code="D0501") from None

    def bytes(self) -> memoryview:
        """The contents of this file. Raises UsageError (D0501, D0506)."""
        return map_file(self.path) if self.folder is None else map_inside(self.folder, self.path)

    def arrays(self) -> WeightFile:
        """This file of named arrays: safetensors, npz or npy."""
        if self.folder is None:
            return open_weights(self.path)
        return open_weights_inside(self.folder, self.path)
