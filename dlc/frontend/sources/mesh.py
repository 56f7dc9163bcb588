"""`mesh data = 2, model = 2`: the mesh that the text of a model declares for its ranks."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.text_mesh import NONE, STAGES, TextMesh
from dlc.errors import ModelError
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.problems import Poisoned
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.sources.files import File
from dlc.text.model import ast

__all__ = ["MOST_RANKS", "check_stages", "declared_mesh"]

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
    except Poisoned:  # a size is unknown, and the reason is recorded
        pass
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


def check_stages(ev: Evaluator, files: Sequence[File], mesh: TextMesh | None) -> None:
    """Record (D0383) every stage that the mesh does not have, and one of the mesh that nothing is on."""
    count = 0 if mesh is None else mesh.axes.get(STAGES, 0)
    stages = [
        (node.index or 0, file.source.place(node.span))
        for file in files
        for node in file.devices
        if node.is_stage
    ]
    if stages and not count:
        message = f"parts of the model are on stages, and its mesh has no axis {STAGES}"
        help = f"write mesh {STAGES} = {1 + max(number for number, _ in stages)}"
        ev.report(ev.at.fail("D0383", message, place=stages[0][1], help=help))
        return
    for number, place in stages:
        if number >= count:
            message = f"there is no stage {number}: the mesh has {count}, from 0 on"
            help = f"write mesh {STAGES} = {number + 1}"
            ev.report(ev.at.fail("D0383", message, place=place, help=help))
    used = {number for number, _ in stages}
    empty = next((number for number in range(count) if number not in used), None)
    if mesh is not None and empty is not None:
        message = f"the mesh has {count} stages, and nothing is on stage {empty}"
        help = f"write on stage {empty} {{ ... }}, or number the stages from 0 on"
        ev.report(ev.at.fail("D0383", message, place=mesh.place, help=help))
