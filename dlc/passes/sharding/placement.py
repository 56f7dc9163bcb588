"""Where the elements of a value are, along one axis of the mesh."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from dlc.ir.dims import Size, divides, floor_divide
from dlc.ir.types import TensorType


@dataclass(frozen=True, slots=True)
class Shard:
    """Each rank has its part of one axis, the first rank the first part."""

    axis: int

    def __str__(self) -> str:
        return f"split along axis {self.axis}"


class Whole(Enum):
    """Each rank has an array of the size of the value."""

    REPLICATED = "replicated"
    """All have the value."""
    PARTIAL = "partial"
    """The value is the sum of what the ranks have."""

    def __str__(self) -> str:
        return self.value


REPLICATED, PARTIAL = Whole.REPLICATED, Whole.PARTIAL
Placement: TypeAlias = Shard | Whole


def is_divided(size: Size, ranks: int) -> bool:
    """Whether an axis of this size has an equal part, of one element at least, for each rank."""
    return size != 0 and divides(ranks, size)


def allows(type: TensorType, placement: Placement, ranks: int) -> bool:
    """Whether a value of this type can be placed so."""
    match placement:
        case Shard(axis):
            return is_divided(type.shape[axis], ranks)
        case Whole.PARTIAL:
            return type.dtype.is_float or type.dtype.is_integer
        case Whole.REPLICATED:
            return True


def local_type(type: TensorType, placement: Placement, ranks: int) -> TensorType:
    """The type of what one rank has."""
    if not isinstance(placement, Shard):
        return type
    shape = list(type.shape)
    shape[placement.axis] = floor_divide(shape[placement.axis], ranks)
    return type.with_shape(tuple(shape))
