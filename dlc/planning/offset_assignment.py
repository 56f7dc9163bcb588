"""Arena allocation for a plan: offsets of buffers, or an order of them where sizes are symbolic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlc.dialects import func, kernel
from dlc.ir.dims import evaluate
from dlc.ir.native import Compiler, interpreted
from dlc.planning import arena
from dlc.planning.buffer_assignment import PlannedBuffer

MOST_POWERS = 14
"""The most powers of 2 among the cases of sizes."""
UNBOUNDED = 4096
"""The largest case of a dim without an upper bound."""


@dataclass(frozen=True, slots=True)
class LiveBuffer:
    """A buffer of the arena, and the first and the last wave that need it."""

    buffer: PlannedBuffer
    first: int
    last: int

    def at(self, sizes: Mapping[str, int]) -> arena.Buffer:
        """The buffer to place at these sizes of the dims; an empty one takes a byte."""
        size = max(1, evaluate(self.buffer.bytes, sizes))
        return arena.Buffer(arena.align(size), self.first, self.last)


@dataclass(frozen=True, slots=True)
class ArenaOffsets:
    """Where each buffer of the arena lies, by number: an offset, or the buffers that it lies above.

    `total` is the size of the arena in bytes, None where sizes are symbolic.
    """

    offsets: dict[int, int]
    above: dict[int, tuple[int, ...]]
    total: int | None


def assign_offsets(
    buffers: Sequence[LiveBuffer],
    cases: Sequence[Mapping[str, int]],
    effort: int,
    compiler: Compiler = interpreted,
) -> ArenaOffsets:
    """Allocate the buffers in the arena, those of each device in a range of its own.

    Symbolic sizes get an order that is good in all `cases` of sizes of the dims. `effort` multiplies the
    steps of the search.
    """
    static = all(isinstance(each.buffer.bytes, int) for each in buffers)
    offsets: dict[int, int] = {}
    above: dict[int, tuple[int, ...]] = {}
    offset, below_all = 0, tuple[int, ...]()
    for device in sorted({live.buffer.device for live in buffers}):
        on_device = [live for live in buffers if live.buffer.device == device]
        numbers = [live.buffer.number for live in on_device]
        if static:
            placement = arena.place(
                [live.at({}) for live in on_device], effort=effort, compiler=compiler
            )
            starts = [offset + base for base in placement.offsets]
            offsets.update(zip(numbers, starts, strict=True))
            offset += placement.height
            continue
        buffers_by_case = [[live.at(case) for live in on_device] for case in cases]
        order = arena.find_order(buffers_by_case, effort=effort, compiler=compiler)
        for number, below in zip(
            numbers, arena.order_above(buffers_by_case[0], order), strict=True
        ):
            above[number] = tuple([numbers[j] for j in below]) or below_all
        below_all = tuple(numbers)
    return ArenaOffsets(offsets, above, offset if static else None)


def cases_of(function: func.Func, batch: int | None) -> list[dict[str, int]]:
    """The sizes of the dims to plan for: powers of 2 for all of them, then their upper bounds.

    In a step of training the `batch` bounds the leading size of the first input.
    """
    bounds = function.bounds
    upper_bounds = {
        name: max(low, UNBOUNDED) if high is None else high for name, (low, high) in bounds.items()
    }
    leading = _leading_size(function)
    if batch is not None and leading in upper_bounds:
        upper_bounds[leading] = max(bounds[leading][0], min(batch, upper_bounds[leading]))
    largest = max(upper_bounds.values(), default=0)
    powers = [1 << k for k in range(min(MOST_POWERS, largest.bit_length()))]
    cases = [
        {name: min(max(low, power), upper_bounds[name]) for name, (low, _) in bounds.items()}
        for power in powers
    ]
    return [*cases, upper_bounds]


def _leading_size(function: func.Func) -> str:
    """The first size of the first argument, as text; empty if it has none."""
    arguments = function.body.arguments
    shape = kernel.array_type(arguments[0]).shape if arguments else ()
    return str(shape[0]) if shape else ""
