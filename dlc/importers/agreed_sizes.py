"""Sizes that a model takes to be equal though only a call can tell: one of them stands for all.

A tensor gets the size that was chosen by a reshape, whose condition each call is checked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.array.shape import reshape
from dlc.ir.core import Block, Builder, Value
from dlc.ir.dims import Bounds, Size, names, substitute
from dlc.ir.equal_sizes import never_equal, solution


def agreed_size(sizes: Collection[Size], bounds: Bounds) -> Size | None:
    """The simplest of sizes that can be equal; None where two of them surely differ."""
    ordered = sorted(sizes, key=lambda size: (not isinstance(size, int), len(str(size)), str(size)))
    chosen = ordered[0]
    if any(size != chosen and never_equal(size, chosen, bounds) for size in ordered[1:]):
        return None
    return chosen


def with_sizes(emit: Builder, value: Value, shape: Sequence[Size]) -> Value:
    """The value with other sizes, which are those that it has in every call: a reshape for each axis."""
    sizes = list(tensor_type(value).shape)
    for axis, size in enumerate(shape):
        sizes[axis] = size
        value = reshape(emit, value, tuple(sizes))
    return value


def solved_dims(block: Block, dims: Collection[str]) -> dict[str, Size]:
    """Dims of the inputs that the conditions of a block decide, each by another size.

    A multiple of a number is written with the same name: `H` as `16*H`.
    """
    solved: dict[str, Size] = {}
    for one, other in _equalities(block):
        found = solution(substitute(one, solved), substitute(other, solved))
        if found is not None and found[0] in dims and names(found[1]) <= {*dims}:
            solved = composed(solved, dict([found]))
    return solved


def composed(first: Mapping[str, Size], then: Mapping[str, Size]) -> dict[str, Size]:
    """The sizes that dims have when two substitutions are made, one after the other."""
    return {**then, **{name: substitute(size, then) for name, size in first.items()}}


def _equalities(block: Block) -> Iterable[tuple[Size, Size]]:
    for top in block:
        for op in top.walk(formulas=False):
            for need in op.needs():
                if need.equals is not None:
                    yield need.size, need.equals
