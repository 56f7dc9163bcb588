"""Where the memories of a plan lie in its arena: numbers, or for sizes known only later an order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlc.dialects import func, kernel
from dlc.ir.dims import evaluate
from dlc.ir.native import Compiler, interpreted
from dlc.planning.arena import Buffer, align, find_order, order_above, place
from dlc.planning.storage import Memory

MOST_POWERS = 14
"""Powers of 2 at which sizes are looked at, at most."""
UNBOUNDED = 4096
"""The largest value at which a dim without an upper bound is looked at."""


@dataclass(frozen=True, slots=True)
class Needed:
    """A memory of the arena, and the first and the last wave that need it."""

    memory: Memory
    first: int
    last: int

    def at(self, sizes: Mapping[str, int]) -> Buffer:
        """What is to be placed where the dims have these sizes; nothing is too small to have a place."""
        size = max(1, evaluate(self.memory.bytes, sizes))
        return Buffer(align(size), self.first, self.last)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each arena memory lies, by number: an offset, or the memories that it lies above."""

    offsets: dict[int, int]
    above: dict[int, tuple[int, ...]]
    total: int | None


def lay_out(
    arena: Sequence[Needed],
    cases: Sequence[Mapping[str, int]],
    effort: int,
    compiler: Compiler = interpreted,
) -> Layout:
    """Where all lies in the arena, the parts of the devices one after the other.

    Where sizes are known only later, the order is one that is good in all cases of sizes of the dims.
    """
    static = all(isinstance(needed.memory.bytes, int) for needed in arena)
    offsets: dict[int, int] = {}
    above: dict[int, tuple[int, ...]] = {}
    floor, under = 0, tuple[int, ...]()
    for device in sorted({needed.memory.device for needed in arena}):
        part = [needed for needed in arena if needed.memory.device == device]
        numbers = [needed.memory.number for needed in part]
        if static:
            placed = place([needed.at({}) for needed in part], effort=effort, compiler=compiler)
            starts = [floor + offset for offset in placed.offsets]
            offsets.update(zip(numbers, starts, strict=True))
            floor += placed.height
            continue
        sized = [[needed.at(case) for needed in part] for case in cases]
        order = find_order(sized, effort=effort, compiler=compiler)
        for number, below in zip(numbers, order_above(sized[0], order), strict=True):
            above[number] = tuple([numbers[j] for j in below]) or under
        under = tuple(numbers)
    return Layout(offsets, above, floor if static else None)


def cases_of(function: func.Func, batch: int | None) -> list[dict[str, int]]:
    """Sizes of the dims at which to look at a plan: powers of 2 for all of them, then their upper bounds.

    Of a step of training the upper bound is the batch, for the leading size of its first input.
    """
    bounds = function.bounds
    most = {
        name: max(low, UNBOUNDED) if high is None else high for name, (low, high) in bounds.items()
    }
    leading = _leading_size(function)
    if batch is not None and leading in most:
        most[leading] = max(bounds[leading][0], min(batch, most[leading]))
    largest = max(most.values(), default=0)
    powers = [1 << k for k in range(min(MOST_POWERS, largest.bit_length()))]
    cases = [
        {name: min(max(low, power), most[name]) for name, (low, _) in bounds.items()}
        for power in powers
    ]
    return [*cases, most]


def _leading_size(function: func.Func) -> str:
    """The first size of the first argument, as text; empty if it has none."""
    arguments = function.body.arguments
    shape = kernel.array_type(arguments[0]).shape if arguments else ()
    return str(shape[0]) if shape else ""
