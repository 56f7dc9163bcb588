"""Kernels that a user has written, from files: LLVM's text (`.ll`) or loops (`.dlir`)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from dlc.errors import UsageError
from dlc.runtime.system.mapped_files import map_file

ENDINGS = (".ll", ".dlir")


@dataclass(frozen=True, slots=True)
class OwnKernel:
    """A kernel of a user: what it is called, the file that it is in, and the text of that."""

    name: str
    path: str
    text: str

    @property
    def digest(self) -> str:
        """What tells it from kernels with another text."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


def read_kernels(paths: Mapping[str, str]) -> tuple[OwnKernel, ...]:
    """The kernels in files, by name. Raises UsageError: D0901 for another ending, D0501 for no file."""
    for name, path in paths.items():
        if not path.endswith(ENDINGS):
            raise UsageError(
                f"{path} holds no kernel: {name} is read from LLVM's text or loops",
                code="D0901",
                help=f"name a file that ends in {' or '.join(ENDINGS)}",
            )
    texts = {name: str(map_file(path), "utf-8", "replace") for name, path in paths.items()}
    return tuple([OwnKernel(name, paths[name], text) for name, text in texts.items()])
