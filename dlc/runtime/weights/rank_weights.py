"""The weights that a rank of a mesh holds: all of them, or its parts."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import Weight
from dlc.runtime.artifact.weight_splits import rank_table, weight_splits
from dlc.runtime.ranks.mesh import Mesh
from dlc.runtime.ranks.parts import Parts
from dlc.runtime.system.buffers import Bytes, as_bytes
from dlc.runtime.weights.model_weights import WeightViews, fill


def weights_on_rank(artifact: Artifact, rank: int) -> tuple[Sequence[Weight], Bytes]:
    """The table of what a rank has of the weights, and their memory.

    Whole weights stay in the mapped file; of those that are split only the part of this rank is read.
    """
    table, whole = artifact.manifest.weights, as_bytes(artifact.section("weights"))
    splits = weight_splits(artifact)
    if not splits:
        return table, whole
    mesh = {axis.name: axis.ranks for axis in artifact.manifest.mesh}
    parts, views = Parts(Mesh(mesh), rank, splits), WeightViews(table, whole)
    own = rank_table(table, mesh, splits)

    def part(row: Weight) -> Tensor:
        return Tensor.from_bits(parts.of(row.name, views.tensor(row.name).bits), row.dtype)

    return own, fill(own, part)
