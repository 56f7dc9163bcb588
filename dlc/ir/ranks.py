"""The ranks that run one program together, as the evaluation of a collective sees them."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray


class Ranks(Protocol):
    """One rank's place among the others of its mesh.

    A mesh has named axes, and a rank has a coordinate along each. A collective along an axis joins the
    ranks whose coordinates along all other axes are the same.
    """

    def coordinate(self, axis: str) -> int:
        """This rank's coordinate along an axis of the mesh, from 0 on. Raises KeyError."""
        ...

    def exchange(self, axis: str, array: NDArray[Any]) -> list[NDArray[Any]]:
        """What every rank along the axis hands over, by coordinate; returns when all have come."""
        ...
