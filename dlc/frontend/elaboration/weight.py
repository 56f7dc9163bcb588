"""A weight of a model that is being elaborated: its symbol and type, and where its numbers come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dlc.errors import SourceLocation
from dlc.ir.types import TensorType

__all__ = ["Origin", "Weight"]


class Origin(NamedTuple):
    """The initial value of a weight: the text of an initialiser, or a file and perhaps a key in it."""

    init: str | None = None
    file: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Weight:
    """One `param` or `state` of one instance, or a stored tensor, which is `constant`.

    `type` has the leading sizes of the stack. Files from elsewhere may have each block under a name of
    its own, which are the `parts`, the last two axes `transposed`, and several weights in one array, of
    which this is a `portion` (see `weight.Source`).
    """

    symbol: str
    type: TensorType
    origin: Origin
    trained: bool
    stacked: int
    place: SourceLocation
    parts: tuple[str, ...] = ()
    transposed: bool = False
    portion: tuple[int, ...] = ()
    constant: bool = False
    splits: tuple[tuple[str, int], ...] | None = None
    """The axes of the mesh that split it, in the order of the mesh, each with the axis of the weight; None
    where its text says nothing about it."""
