"""Sizes that a model assumes to be equal though only a call can tell: one of them replaces all.

A tensor gets the size that was chosen by a reshape, whose condition each call is checked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from types import MappingProxyType

from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.array.shape import reshape
from dlc.errors import Diagnostic
from dlc.ir.core import Block, Builder, Value
from dlc.ir.dims import Bounds, Size, evaluate, known_multiple, names, substitute, symbol
from dlc.ir.equal_sizes import (
    highest_value,
    least_value,
    never_equal,
    not_negative,
    solution,
)
from dlc.ir.location import Location
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
    are left. `origins` has the location of what decides each dim.
    """

    dims: Mapping[str, Size] = field(default_factory=dict[str, Size])
    bounds: Bounds = field(default_factory=dict[str, tuple[int, int | None]])
    origins: Mapping[str, Location] = field(default_factory=dict[str, Location])

    def __bool__(self) -> bool:
        return bool(self.dims or self.bounds)

    def then(self, more: SolvedSizes) -> SolvedSizes:
        """These, and what was found with them in place."""
        dims = {name: substitute(size, more.dims) for name, size in self.dims.items()}
        kept = {name: bound for name, bound in self.bounds.items() if name not in more.dims}
        return SolvedSizes(
            {**more.dims, **dims}, {**kept, **more.bounds}, {**self.origins, **more.origins}
        )

    def notes(self) -> list[Diagnostic]:
        """What was decided, each dim with the place that decides it."""
        told = {name: _value(name, size) for name, size in self.dims.items()}
        for name, (low, high) in self.bounds.items():
            told.setdefault(
                name, f"{name} is {low} or more" if high is None else _between(name, low, high)
            )
        return [
            Diagnostic("D0522", text, self.origins[name].place, severity="note")
            for name, text in told.items()
        ]


def _value(name: str, size: Size) -> str:
    step = known_multiple(size)
    is_multiple = size == step * symbol(name)
    return f"{name} is a multiple of {step}, {size}" if is_multiple else f"{name} is {size}"


def _between(name: str, low: int, high: int) -> str:
    return f"{name} is {high} at most" if low == 1 else f"{name} is between {low} and {high}"


def solved_sizes(
    block: Block,
    bounds: Bounds,
    free: AbstractSet[str],
    required: Mapping[Size, Location] = MappingProxyType({}),
) -> SolvedSizes:
    """What the conditions of a block say of the dims: equal sizes first, and if there are none, bounds.

    `bounds` has the dims of the inputs; `free` are those whose bounds nobody has asked for; `required` has
    sizes that must be 0 or more besides.
    """
    equal, at_least = _conditions(block)
    at_least |= required
    solved = SolvedSizes()
    for one, other, location in equal:
        found = solution(substitute(one, solved.dims), substitute(other, solved.dims))
        if found is not None and found[0] in bounds and names(found[1]) <= bounds.keys():
            name, size = found
            solved = solved.then(SolvedSizes({name: size}, {}, {name: location}))
    if solved:
        return solved
    for one, other, location in equal:
        size = not_negative(one, other)
        if size is not None:
            at_least.setdefault(size, location)
    narrower = {**bounds}
    origins: dict[str, Location] = {}
    for size, location in at_least.items():
        if len(names(size)) == 1 and names(size) <= free:
            (name,) = names(size)
            bound = _narrower(size, name, *narrower[name])
            if bound != narrower[name]:
                narrower[name], origins[name] = bound, location
    return SolvedSizes({}, {name: narrower[name] for name in origins}, origins)


def _narrower(size: Size, name: str, low: int, high: int | None) -> tuple[int, int | None]:
    """The bounds of a dim between which a size of it alone is 0 or more, as far as one end decides that."""
    if evaluate(size, {name: low}) < 0:
        found = least_value(size, name, low, high)
        return (low, high) if found is None else (found, high)
    most = highest_value(size)
    if most is None or most < low:
        return low, high
    return low, most if high is None else min(high, most)


def _conditions(block: Block) -> tuple[list[tuple[Size, Size, Location]], dict[Size, Location]]:
    """The sizes that operations need to be equal, and those that must be 0 or more."""
    equal: list[tuple[Size, Size, Location]] = []
    at_least: dict[Size, Location] = {}
    for op in [inner for top in block for inner in top.walk(formulas=False)]:
        for need in op.needs():
            if need.equals is not None:
                equal.append((need.size, need.equals, op.location))
            elif need.code == "D0804" and highest_value(need.size) is None:
                # That an axis may be too long to be numbered bounds nothing.
                at_least.setdefault(need.size, op.location)
        for result in op.results:
            for size in result.type.shape if isinstance(result.type, TensorType) else ():
                at_least.setdefault(size, op.location)
    return equal, at_least
