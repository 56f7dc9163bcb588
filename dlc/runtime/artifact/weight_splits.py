"""The weights of an artifact of which each rank of its mesh reads a part.

Files have whole weights, in the order and with the offsets of the manifest. A rank places its parts in the
same order, each at a multiple of 64 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TypeAlias

from dlc.runtime.arrays.dtypes import DTYPES
from dlc.runtime.artifact import canonical_json
from dlc.runtime.artifact.container import padded
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import Weight

SECTION = "splits"
"""The name of the section: by weight and axis of the mesh the axis of the array that it splits."""

WeightSplits: TypeAlias = Mapping[str, Mapping[str, int]]


def splits_bytes(splits: WeightSplits) -> bytes:
    """The bytes of the section; none where no weight is split."""
    record: canonical_json.Json = {name: dict(axes) for name, axes in splits.items()}
    return canonical_json.dump(record) if splits else b""


def weight_splits(artifact: Artifact) -> WeightSplits:
    """What the section says; nothing without one. Raises ArtifactError (D0607) where it is malformed."""
    data = bytes(artifact.section(SECTION))
    if not data:
        return {}
    try:
        return _checked(canonical_json.load(data), artifact)
    except (canonical_json.BadJson, ValueError) as error:
        raise artifact.error_context.error("D0607", str(error), section=SECTION) from None


def _checked(record: canonical_json.Json, artifact: Artifact) -> WeightSplits:
    """The splits of a record. Raises ValueError for what cannot be split so."""
    ranks = {axis.name: axis.ranks for axis in artifact.manifest.mesh}
    rows = {row.name: row for row in artifact.manifest.weights}
    if not isinstance(record, dict):
        raise ValueError("expected the splits by weight")
    found: dict[str, Mapping[str, int]] = {}
    for name, axes in record.items():
        if name not in rows or not isinstance(axes, dict):
            raise ValueError(f"{name[:40]!r} is not a weight with splits")
        shape = list(rows[name].shape)
        own: dict[str, int] = {}
        for mesh_axis, axis in axes.items():
            count = ranks.get(mesh_axis, 0)
            if type(axis) is not int or not 0 <= axis < len(shape) or not count:
                raise ValueError(f"{name[:40]!r} has no axis {axis} that the mesh could split")
            if shape[axis] % count or not shape[axis]:
                raise ValueError(
                    f"axis {axis} of {name[:40]!r} has no equal parts for {count} ranks"
                )
            shape[axis] //= count
            own[mesh_axis] = axis
        found[name] = own
    return found


def rank_table(
    table: Sequence[Weight], mesh: Mapping[str, int], splits: WeightSplits
) -> tuple[Weight, ...]:
    """The rows of what a rank of a mesh has of the weights, with their places in its memory."""
    placed: list[Weight] = []
    end = 0
    for row in table:
        shape = list(row.shape)
        for mesh_axis, axis in splits.get(row.name, {}).items():
            shape[axis] //= mesh[mesh_axis]
        length = prod(shape) * DTYPES[row.dtype].bytes
        placed.append(row._replace(shape=tuple(shape), bytes=length, offset=end))
        end = padded(end + length)
    return tuple(placed)


def source_bytes(artifact: Artifact) -> int:
    """The bytes of the root SOURCES: the weights as they are stored, or a rank's parts of them."""
    splits = weight_splits(artifact)
    if not splits:
        return len(artifact.section("weights"))
    return _bytes_on_rank(artifact, artifact.manifest.weights, splits)


def held_bytes(artifact: Artifact, entry: str) -> int:
    """The bytes of weights, and of states that train, on a rank that runs an entry point."""
    manifest = artifact.manifest
    facts = manifest.training
    if facts is None or not (facts.splits or manifest.homes):
        return source_bytes(artifact)
    parts = [part for staged in manifest.staged for part in staged.parts]
    stage = next((part.stage for part in parts if part.entry == entry), None)
    own = [row for row in manifest.weights if stage in (None, manifest.homes.get(row.name, stage))]
    return _bytes_on_rank(artifact, own, facts.splits)


def _bytes_on_rank(artifact: Artifact, rows: Sequence[Weight], splits: WeightSplits) -> int:
    mesh = {axis.name: axis.ranks for axis in artifact.manifest.mesh}
    table = rank_table(rows, mesh, splits)
    return padded(table[-1].offset + table[-1].bytes) if table else 0
