"""Sizes that a model takes to be equal though only a call can tell: one of them stands for all.

A tensor gets the size that was chosen by a reshape, whose condition each call is checked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.array.shape import reshape
from dlc.ir.core import Block, Builder, Value
from dlc.ir.dims import Bounds, Size, evaluate, names, substitute
from dlc.ir.equal_sizes import (
    highest_value,
    least_value,
    never_equal,
    not_negative,
    solution,
)
from dlc.ir.types import TensorType


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


@dataclass(frozen=True, slots=True)
class SolvedSizes:
    """Dims of the inputs that a model decides: as other sizes, or by bounds.

    A dim that is a multiple of a number keeps its name: `H` is `16*H`. Bounds are those of the names that
    are left.
    """

    dims: Mapping[str, Size] = field(default_factory=dict[str, Size])
    bounds: Bounds = field(default_factory=dict[str, tuple[int, int | None]])

    def __bool__(self) -> bool:
        return bool(self.dims or self.bounds)

    def then(self, more: SolvedSizes) -> SolvedSizes:
        """These, and what was found with them in place."""
        dims = {name: substitute(size, more.dims) for name, size in self.dims.items()}
        kept = {name: bound for name, bound in self.bounds.items() if name not in more.dims}
        return SolvedSizes({**more.dims, **dims}, {**kept, **more.bounds})


def solved_sizes(block: Block, bounds: Bounds, free: AbstractSet[str]) -> SolvedSizes:
    """What the conditions of a block say of the dims: equal sizes first, and if there are none, bounds.

    `bounds` has the dims of the inputs; `free` are those whose bounds nobody has asked for.
    """
    equal, at_least = _conditions(block)
    dims: dict[str, Size] = {}
    for one, other in equal:
        found = solution(substitute(one, dims), substitute(other, dims))
        if found is not None and found[0] in bounds and names(found[1]) <= bounds.keys():
            name, size = found
            dims = {**{n: substitute(s, {name: size}) for n, s in dims.items()}, name: size}
    if dims:
        return SolvedSizes(dims)
    extremes = [not_negative(one, other) for one, other in equal]
    narrower = dict(bounds)
    for size in (*at_least, *[each for each in extremes if each is not None]):
        if len(names(size)) == 1 and names(size) <= free:
            (name,) = names(size)
            narrower[name] = _narrower(size, name, *narrower[name])
    return SolvedSizes({}, {n: bound for n, bound in narrower.items() if bound != bounds[n]})


def _narrower(size: Size, name: str, low: int, high: int | None) -> tuple[int, int | None]:
    """The bounds of a dim between which a size of it alone is 0 or more, as far as one end decides that."""
    if evaluate(size, {name: low}) < 0:
        found = least_value(size, name, low, high)
        return (low, high) if found is None else (found, high)
    most = highest_value(size)
    return (
        (low, high)
        if most is None or most < low
        else (low, most if high is None else min(high, most))
    )


def _conditions(block: Block) -> tuple[list[tuple[Size, Size]], list[Size]]:
    """The sizes that operations need to be equal, and those that must be 0 or more."""
    equal: list[tuple[Size, Size]] = []
    at_least: dict[Size, None] = {}
    for op in [inner for top in block for inner in top.walk(formulas=False)]:
        for need in op.needs():
            if need.equals is not None:
                equal.append((need.size, need.equals))
            elif need.code == "D0804" and not isinstance(highest_value(need.size), int):
                at_least[need.size] = None  # that axes may be too long to number, bounds nothing
        for result in op.results:
            if isinstance(result.type, TensorType):
                at_least |= dict.fromkeys(result.type.shape)
    return equal, list(at_least)
