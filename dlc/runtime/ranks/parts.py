"""The parts of arrays that a rank of a mesh has, and the whole arrays that the parts of all ranks make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dlc.runtime.artifact.manifest import STAGE
from dlc.runtime.ranks.mesh import Mesh

Array: TypeAlias = NDArray[np.generic]
T = TypeVar("T")

Shard: TypeAlias = Literal["optimizer", "gradients", "weights"]
"""What each rank has a part of: the states of the optimizer, the summed gradients, too, or all of both and
the weights. (ZeRO's three stages: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion
Parameter Models", 2020.)"""


Splits: TypeAlias = Mapping[str, int]
"""The axis of an array that each axis of the mesh splits."""


class Gathers(Protocol):
    """What a communicator of mpi4py and simulated ranks do with Python objects."""

    def gather(self, sendobj: object, root: int = 0) -> list[object] | None: ...
    def allgather(self, sendobj: object) -> list[object]: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """The arrays of which this rank has a part: the ranks along an axis of the mesh have one after another.

    An array that has a stage among `homes` is on the ranks of that stage alone. Without both every rank
    has all of each array, and nothing is sent.
    """

    mesh: Mesh
    rank: int
    splits: Mapping[str, Splits]
    ranks: Gathers | None = None
    homes: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def are_divided(self) -> bool:
        """Whether ranks have different arrays, or parts of arrays."""
        return bool(self.splits or self.homes)

    def has(self, name: str) -> bool:
        """Whether this rank has an array, or a part of it."""
        return self.is_held(name, self.rank)

    def is_held(self, name: str, rank: int) -> bool:
        """Whether a rank has an array, or a part of it."""
        stage = self.homes.get(name)
        return stage is None or self.mesh.coordinates(rank)[STAGE] == stage

    def is_common(self, name: str) -> bool:
        """Whether every rank has all of an array."""
        return name not in self.splits and name not in self.homes

    def shape(self, name: str, whole: Sequence[int]) -> tuple[int, ...]:
        """The shape of what each rank has of an array of this shape."""
        shape = list(whole)
        for mesh_axis, axis in self.splits.get(name, {}).items():
            shape[axis] //= self.mesh.axes[mesh_axis]
        return tuple(shape)

    def of(self, name: str, whole: Array) -> Array:
        """What this rank has of an array: a view."""
        return self._part(self.splits.get(name, {}), whole, self.rank)

    def more_of(self, name: str, other: str, part: Array) -> Array:
        """What this rank has of an array if it is split as `name`, of what it has if split as `other`."""
        known = self.splits.get(other, {})
        more = {k: axis for k, axis in self.splits.get(name, {}).items() if k not in known}
        return self._part(more, part, self.rank)

    def _part(self, splits: Splits, whole: Array, rank: int) -> Array:
        coordinates = self.mesh.coordinates(rank)
        for mesh_axis, ranks in self.mesh.axes.items():
            if mesh_axis in splits:
                axis = splits[mesh_axis]
                size = whole.shape[axis] // ranks
                begin = coordinates[mesh_axis] * size
                whole = whole[(slice(None),) * axis + (slice(begin, begin + size),)]
        return whole

    def whole(
        self, name: str, part: Array | None, shape: Sequence[int], root: int = 0
    ) -> Array | None:
        """The whole array of this shape on the rank `root`, None on the others; all ranks call it.

        `part` is what this rank has of it, None for nothing.
        """
        if self.is_common(name):
            return part if self.rank == root else None
        assert self.ranks is not None
        # A copy: ranks that are threads go on to change their part.
        own = part.copy() if part is not None and self._is_first_with(name) else None
        found = self.ranks.gather(own, root)
        if found is None:
            return None
        parts = {rank: cast("Array", part) for rank, part in enumerate(found) if part is not None}
        whole = np.empty(tuple(shape), next(iter(parts.values())).dtype)
        for rank, part in parts.items():
            self._part(self.splits.get(name, {}), whole, rank)[...] = part
        return whole

    def _is_first_with(self, name: str) -> bool:
        """Whether this is the first of the ranks that have the same part of an array."""
        apart = {*self.splits.get(name, {}), *([STAGE] if name in self.homes else [])}
        coordinates = self.mesh.coordinates(self.rank)
        return not any(place for axis, place in coordinates.items() if axis not in apart)

    def first_of(self, own: T | None) -> T | None:
        """The first that is not None of what the ranks hand over; where they divide nothing, `own`."""
        if not self.are_divided:
            return own
        assert self.ranks is not None
        found = cast("list[T | None]", self.ranks.allgather(own))
        return next((each for each in found if each is not None), None)


ALONE = Parts(Mesh({}), 0, {})
"""All of every array, as a process has it that works alone."""
