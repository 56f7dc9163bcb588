"""Parts of ranks that train together: of the examples of batches, of weights and of states."""

from __future__ import annotations

from typing import cast

from dlc.runtime.artifact.manifest import DATA, Training
from dlc.runtime.data import Batch, Dataset
from dlc.runtime.model import Model
from dlc.runtime.ranks.agreement import check_same, digest_of
from dlc.runtime.ranks.mesh import Mesh
from dlc.runtime.ranks.parts import Gathers, Parts

SAMPLED = 64
"""How many examples ranks compare before they train."""


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


def check_same_data(comm: object, data: Dataset) -> None:
    """Refuse ranks with other examples than the first one (UsageError, D0937), by a sample of them."""
    check_same(comm, {"data": _digest(data), "test data": _digest(data.test)})


def _digest(data: Dataset | None) -> str:
    """The number of examples and the first batch of an epoch: what tells data from other data."""
    if data is None or data.count is None:
        return ""
    nothing: Batch = {}
    first = next(iter(data.batches(0, SAMPLED, 0)), nothing)
    arrays = [
        f"{name}{rows.dtype}{rows.shape}".encode() + rows.tobytes() for name, rows in first.items()
    ]
    return digest_of([str(data.count), *arrays])
