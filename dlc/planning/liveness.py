"""What a function holds in memory while its kernels run one after the other: an estimate before the plan.

Time is counted in operations of the function's body. An array is held from the operation that computes it
to the last one that reads it, whole or through a view; one that is joined from pieces, from the first of
them. What is returned has memory of its own, and so has what updates an argument. A loop or a branch counts
once, with the most that its regions hold at any time.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dlc.dialects import flow, func, kernel
from dlc.ir.core import Block, Op, Value
from dlc.ir.dims import count
from dlc.planning.aliases import is_view, origin, origins

SAMPLE = 64
"""What a dim without an upper bound is taken to be."""


@dataclass(slots=True, eq=False)
class Held:
    """An array: its bytes, the operation that computes it and those that read it, by number."""

    value: Value
    bytes: int
    first: int
    uses: list[int]

    @property
    def last(self) -> int:
        """The last operation that needs it."""
        return self.uses[-1] if self.uses else self.first

    def gap(self, at: int) -> tuple[int, int] | None:
        """The last use before `at` and the first one behind it; None if it is in use or not held."""
        if not self.first < at < self.last or at in self.uses:
            return None
        before = [use for use in self.uses if use < at]
        return before[-1] if before else self.first, self.uses[len(before)]

    def use(self, at: int) -> None:
        """Add a use."""
        insort(self.uses, at)


class Timeline:
    """The operations of a function's body, or of a block in it, what each finds in memory, and why.

    It is that at these sizes of the dims, or at the largest.

    `alive` has bytes by the number of the operation; `held` is every array by the value that it is.
    """

    def __init__(
        self,
        function: func.Func,
        block: Block | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        self.function = function
        bounds = function.bounds.items()
        largest = {name: SAMPLE if high is None else high for name, (_, high) in bounds}
        self.sample = largest if sizes is None else sizes
        self.block = function.body if block is None else block
        self.ops = list(self.block)
        self.number = {op: index for index, op in enumerate(self.ops)}
        self._origins = origins(self.block)
        self._inside: dict[Op, int] = {}
        self.held = _held(self.ops, self._origins, self)

    @cached_property
    def alive(self) -> list[int]:
        """The bytes that each operation finds."""
        return _alive(self.ops, self.held, self)

    def origin(self, value: Value) -> Value:
        """The array in whose memory a value of the block is."""
        return self._origins.get(value, value)

    def bytes(self, value: Value) -> int:
        """How many bytes an array takes."""
        type = kernel.array_type(value)
        return count(type.shape, self.sample) * type.dtype.bytes

    @property
    def peak(self) -> int:
        """The number of the operation that finds most in memory."""
        return max(range(len(self.alive)), key=self.alive.__getitem__)

    def inside(self, op: Op) -> int:
        """The most that the regions of a loop or a branch hold at any time."""
        if isinstance(op, kernel.Kernel) or not op.regions:
            return 0
        if op not in self._inside:
            self._inside[op] = max(_region_peak(block, self) for block in op.regions)
        return self._inside[op]

    def add(self, amount: int, first: int, end: int) -> None:
        """Let the operations from `first` up to `end` find so many bytes more."""
        for index in range(first, end):
            self.alive[index] += amount


def updates_of(function: func.Func) -> dict[Value, Value]:
    """The arguments that results update, by the arrays that the results are."""
    results, arguments = function.results_returned, function.body.arguments
    return {origin(results[k]): arguments[index] for k, index in function.updates.items()}


def _held(
    ops: Sequence[Op], origins: Mapping[Value, Value], timeline: Timeline
) -> dict[Value, Held]:
    """Every array that a block of operations computes for itself."""
    own = {origins.get(value, value) for value in ops[-1].operands}
    found: dict[Value, Held] = {}
    for at, op in enumerate(ops):
        if is_view(op):
            continue
        for value in op.operands:
            held = found.get(origins.get(value, value))
            if held is not None and held.last != at:
                held.uses.append(at)
        if isinstance(op, kernel.Kernel | flow.Scan | flow.While | flow.If):
            for result in op.results:
                value = origins.get(result, result)
                if value in found:
                    found[value].use(at)  # another piece of it
                elif value not in own:
                    found[value] = Held(value, timeline.bytes(value), at, [])
    return found


def _alive(ops: Sequence[Op], held: Mapping[Value, Held], timeline: Timeline) -> list[int]:
    changes = [0] * (len(ops) + 1)
    for item in held.values():
        changes[item.first] += item.bytes
        changes[item.last + 1] -= item.bytes
    found: list[int] = []
    total = 0
    for op, change in zip(ops, changes, strict=False):
        total += change
        found.append(total + timeline.inside(op))
    return found


def _region_peak(block: Block, timeline: Timeline) -> int:
    ops = list(block)
    return max(_alive(ops, _held(ops, origins(block), timeline), timeline), default=0)
