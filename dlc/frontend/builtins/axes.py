"""Axis numbers of calls: negative ones count from the end."""

from __future__ import annotations

from typing import TypeAlias

from dlc.dialects.array import show
from dlc.dialects.array.shape import reshape
from dlc.frontend.elaboration.tensors import tensor_type
from dlc.frontend.elaboration.trace import Trace
from dlc.ir.core import Value
from dlc.ir.dims import Shape

__all__ = ["Axes", "one_axis", "reduced_axes", "some_axes", "with_ones"]

Axes: TypeAlias = "int | tuple[int, ...] | None"


def one_axis(at: Trace, x: Value, axis: int, extra: int = 0) -> int:
    """The axis counted from 0; `extra` more than x has are allowed."""
    rank = tensor_type(x).rank + extra
    if -rank <= axis < rank:
        return axis % rank
    known = f"it has the axes 0 to {rank - 1}" if rank else "it is a single number"
    raise at.fail("D0305", f"{show(x)} has no axis {axis}", help=known)


def some_axes(at: Trace, x: Value, axes: Axes) -> tuple[int, ...]:
    """Axes counted from 0 in rising order, each once; None stands for all."""
    if axes is None:
        return tuple(range(tensor_type(x).rank))
    given = (axes,) if isinstance(axes, int) else axes
    found = [one_axis(at, x, axis) for axis in given]
    if len(set(found)) < len(found):
        raise at.fail("D0305", f"the axes {list(given)} name one twice")
    return tuple(sorted(found))


def reduced_axes(at: Trace, x: Value, axis: Axes, keep: Axes) -> tuple[int, ...]:
    """The axes that a reduction takes away."""
    if keep is None:
        return some_axes(at, x, axis)
    if axis is not None:
        raise at.fail("D0305", "`axis` and `keep` exclude each other", help="leave one of them out")
    kept = some_axes(at, x, keep)
    return tuple([k for k in range(tensor_type(x).rank) if k not in kept])


def with_ones(at: Trace, result: Value, like: Value, axes: tuple[int, ...]) -> Value:
    """The result of a reduction of `like` with size 1 in place of the axes that vanished."""
    shape: Shape = tensor_type(like).shape
    return reshape(at, result, tuple([1 if k in axes else n for k, n in enumerate(shape)]))
