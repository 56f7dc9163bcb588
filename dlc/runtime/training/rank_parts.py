"""What the ranks that train together divide: the examples of batches, and weights and states."""

from __future__ import annotations

from typing import cast

from dlc.runtime.artifact.manifest import DATA, Training
from dlc.runtime.model import Model
from dlc.runtime.ranks.mesh import Mesh
from dlc.runtime.ranks.parts import Gathers, Parts


def mesh_of(model: Model) -> Mesh:
    """The mesh of the ranks that a model runs among; one without axes for a process alone."""
    return Mesh({axis.name: axis.ranks for axis in model.artifact.manifest.mesh})


def parts_of(model: Model, facts: Training, comm: object) -> Parts:
    """The parts of weights and states that this rank has."""
    homes = model.artifact.manifest.homes
    return Parts(mesh_of(model), model.rank, facts.splits, cast("Gathers | None", comm), homes)


def batch_part(model: Model) -> tuple[int, int]:
    """Which of how many parts of a batch is this rank's."""
    mesh = mesh_of(model)
    return mesh.coordinates(model.rank).get(DATA, 0), mesh.axes.get(DATA, 1)
