"""What a command line asks of an import, whose importer is loaded when a file is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dlc.errors import ModelError, Unsupported, UsageError
from dlc.ir.dims import Bounds, Shape, Size
from dlc.text.sizes import parse_size

if TYPE_CHECKING:
    from dlc.importers.onnx import OnnxModel


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """The options of an ONNX import: other shapes and fixed values of inputs, as texts, and bounds.

    `sizes` are those of a call: a file that does not come in for any sizes is imported for these.
    """

    shapes: Mapping[str, str] = field(default_factory=dict[str, str])
    fixed: Mapping[str, str] = field(default_factory=dict[str, str])
    bounds: Bounds = field(default_factory=dict[str, tuple[int, int | None]])
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])

    def check_for(self, path: Path) -> None:
        """Raise UsageError (D0919) where another kind of file is asked for shapes or values."""
        if path.suffix != ".onnx" and (self.shapes or self.fixed):
            raise UsageError(
                f"--{'shape' if self.shapes else 'fix'} is for an .onnx file, not for {path.name}",
                code="D0919",
                help="leave it out",
            )

    def read(self, path: Path) -> OnnxModel:
        """The model in a file, with what is asked. Raises UsageError (D0901) for what cannot be read."""
        if not self.sizes:
            return self._read(path, self.bounds)
        try:
            return self._read(path, self.bounds)
        except (ModelError, Unsupported):
            numbers = {name: (size, size) for name, size in self.sizes.items()}
            return self._read(path, {**self.bounds, **numbers})

    def _read(self, path: Path, bounds: Bounds) -> OnnxModel:
        from dlc.importers.onnx import read_onnx

        return read_onnx(
            path,
            shapes={name: shape_of(name, text) for name, text in self.shapes.items()},
            fixed={name: value_of(name, text) for name, text in self.fixed.items()},
            bounds=bounds,
        )


def value_of(name: str, text: str) -> NDArray[np.generic]:
    """A value of a command line: a number, true or false, or lists of them."""
    try:
        found = np.asarray(json.loads(text))
    except ValueError:
        found = np.empty(0, object)
    if found.dtype.kind not in "bif":
        raise UsageError(
            f"--fix {name}={text} is not a number or a list of numbers",
            code="D0901",
            help=f"write --fix {name}=[1,2]",
        )
    return found


def shape_of(name: str, text: str) -> Shape:
    """A shape of a command line: `B,3,32*H,32*W`."""
    found: list[Size] = []
    for part in text.strip("[]").split(","):
        try:
            found.append(parse_size(part))
        except ValueError as error:
            raise UsageError(
                f"--shape {name}={text}: {error}",
                code="D0901",
                help="write sizes with commas between them: --shape image=B,3,224,224",
            ) from None
    return tuple(found)
