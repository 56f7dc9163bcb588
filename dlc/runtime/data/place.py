"""A file or folder of examples: named by a model's text, or by the user.

What a text names lies in the folder of that text (see `dlc.runtime.system.mapped_files`); what the user
names may lie anywhere.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from dlc.errors import UsageError
from dlc.runtime.system.mapped_files import map_file, map_inside
from dlc.runtime.weights.files import WeightFile, open_weights, open_weights_inside


class DataLocation(NamedTuple):
    """Where examples lie; `folder` is that of the text that names the path, or None."""

    path: str
    folder: str | None = None

    def __str__(self) -> str:
        return self.path if self.folder is None else str(Path(self.folder, self.path))

    @property
    def is_folder(self) -> bool:
        return Path(str(self)).is_dir()

    def inside(self, name: str) -> DataLocation:
        """Something in this folder."""
        return DataLocation(f"{self.path}/{name}", self.folder)

    def names(self) -> list[str]:
        """What is in this folder, sorted, but for hidden files. Raises UsageError (D0501)."""
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
