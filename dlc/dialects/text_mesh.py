"""The `mesh` of a model's text, as the attribute `dlc.text_mesh` of the module.

It is only what the text says: who compiles a training for ranks makes functions programs for this mesh, and
one process computes the whole. `dlc.text_mesh = ["data = 2", "model = 2", "at net.dlm:2:1-25"]`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from dlc.dialects.builtin import Module
from dlc.errors import SourceLocation

__all__ = ["NONE", "STAGES", "TextMesh", "attach_text_mesh", "read_text_mesh"]

NONE = "none"
"""What stands for no axis of the mesh in a `split`."""
STAGES = "stage"
"""The axis of the mesh whose ranks are the stages of a pipeline."""
_ATTRIBUTE = "dlc.text_mesh"
_AXIS = re.compile(r"(\w+) = ([1-9][0-9]{0,6})")
_PLACE = re.compile(r"at (.*):([0-9]{1,10}):([0-9]{1,10})-([0-9]{1,10})")


@dataclass(frozen=True, slots=True)
class TextMesh:
    """The sizes of the axes by name, the last one varying fastest, and the place in the text."""

    axes: Mapping[str, int]
    place: SourceLocation

    @property
    def size(self) -> int:
        """The number of ranks."""
        return prod(self.axes.values())


def attach_text_mesh(module: Module, mesh: TextMesh | None) -> None:
    """Set the attribute of a module; none for no mesh."""
    if mesh is not None:
        axes = [f"{name} = {ranks}" for name, ranks in mesh.axes.items()]
        module.attributes[_ATTRIBUTE] = (*axes, f"at {mesh.place}-{mesh.place.end}")


def read_text_mesh(module: Module) -> TextMesh | None:
    """The mesh that a module carries. Raises ModelError for an attribute that is malformed."""
    written = module.attributes.get(_ATTRIBUTE)
    if written is None:
        return None
    texts = (
        [text for text in written if isinstance(text, str)] if isinstance(written, tuple) else []
    )
    axes = [_AXIS.fullmatch(text) for text in texts[:-1]]
    place = _PLACE.fullmatch(texts[-1]) if texts else None
    found = {axis[1]: int(axis[2]) for axis in axes if axis is not None}
    if place is None or len(found) != len(axes) or not found:
        raise module.fail(
            f"{written!r} is not a mesh",
            help=f"write it as {_ATTRIBUTE} = ['data = 2', 'at net.dlm:3:1-14']",
        )
    return TextMesh(found, SourceLocation(place[1], *[int(n) for n in place.group(2, 3, 4)]))
