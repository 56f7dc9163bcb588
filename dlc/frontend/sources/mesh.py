"""`mesh data = 2, model = 2`: the mesh that the text of a model declares for its ranks."""

from __future__ import annotations

from dlc.dialects.text_mesh import NONE, TextMesh
from dlc.errors import ModelError
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.sources.files import File
from dlc.text.model import ast

__all__ = ["MOST_RANKS", "declared_mesh"]

MOST_RANKS = 1 << 20
"""The most ranks along an axis."""


def declared_mesh(ev: Evaluator, file: File) -> TextMesh | None:
    """The mesh of a text; None without one, or where it is wrong (D0229), which is recorded."""
    meshes = [item for item in file.tree.items if isinstance(item, ast.Mesh)]
    if not meshes:
        return None
    try:
        if len(meshes) > 1:
            help = "name all axes in one: mesh data = 2, model = 2"
            raise ev.at.fail("D0229", "a text has one mesh", meshes[1].span, help=help)
        return TextMesh(_axes(ev, file, meshes[0]), file.source.place(meshes[0].span))
    except ModelError as error:
        ev.report(error)
        return None


def _axes(ev: Evaluator, file: File, mesh: ast.Mesh) -> dict[str, int]:
    axes: dict[str, int] = {}
    for axis in mesh.axes:
        if axis.name in axes:
            message, help = f"the mesh has two axes {axis.name}", "give each another name"
            raise ev.at.fail("D0229", message, axis.name_span, help=help)
        if axis.name == NONE:
            message = f"`{NONE}` stands for no axis of the mesh"
            raise ev.at.fail("D0229", message, axis.name_span, help="give it another name")
        ranks = ev.integer(axis.ranks, Scope(file))
        if not 1 <= ranks <= MOST_RANKS:
            message = f"an axis has from 1 to {MOST_RANKS} ranks, found {ranks}"
            raise ev.at.fail("D0229", message, axis.ranks.span, help=f"write mesh {axis.name} = 2")
        axes[axis.name] = ranks
    return axes
