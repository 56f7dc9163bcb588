"""Liveness: the arrays that are live while the kernels of a function run, estimated before the plan.

Time is counted in operations of the function's body (in the plan it is counted in waves: `lifetimes.py`).
An array is live from the operation that computes it to the last one that reads it, whole or through a
view; a join of pieces from its first piece on. Results and updates of arguments do not count: their
memory is outside of the arena. A loop or a branch is one operation, with the peak of its regions.
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
"""The size assumed for a dim without an upper bound."""


@dataclass(slots=True, eq=False)
class Held:
    """The lifetime of an array: its bytes, the index of its producer, and those of its readers in order."""

    value: Value
    bytes: int
    first: int
    uses: list[int]

    @property
    def last(self) -> int:
        """The index of the last operation that reads it."""
        return self.uses[-1] if self.uses else self.first

    def gap(self, index: int) -> tuple[int, int] | None:
        """The last use before `index` and the first one after it; None if it is used there or not live."""
        if not self.first < index < self.last or index in self.uses:
            return None
        before = [use for use in self.uses if use < index]
        return before[-1] if before else self.first, self.uses[len(before)]

    def use(self, at: int) -> None:
        """Add a use."""
        insort(self.uses, at)


class Timeline:
    """The operations of a function's body, or of a block in it, with the memory live at each.

    `sizes` are those of the dims, by default the largest. `alive` has the live bytes at each operation by
    its index, `held` the lifetime of each array.
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
        """The bytes live at each operation."""
        return _alive(self.ops, self.held, self)

    def origin(self, value: Value) -> Value:
        """The array in whose memory a value of the block lies."""
        return self._origins.get(value, value)

    def bytes(self, value: Value) -> int:
        """The size of an array in bytes."""
        type = kernel.array_type(value)
        return count(type.shape, self.sample) * type.dtype.bytes

    @property
    def peak(self) -> int:
        """The index of the operation at which most bytes are live."""
        return max(range(len(self.alive)), key=self.alive.__getitem__)

    def inside(self, op: Op) -> int:
        """The peak of the regions of a loop or a branch, in bytes."""
        if isinstance(op, kernel.Kernel) or not op.regions:
            return 0
        if op not in self._inside:
            self._inside[op] = max(_region_peak(block, self) for block in op.regions)
        return self._inside[op]


def updates_of(function: func.Func) -> dict[Value, Value]:
    """The arguments that results update, by the arrays that are the results."""
    results, arguments = function.results_returned, function.body.arguments
    return {origin(results[k]): arguments[index] for k, index in function.updates.items()}


def _held(
    ops: Sequence[Op], origins: Mapping[Value, Value], timeline: Timeline
) -> dict[Value, Held]:
    """The lifetimes of the arrays that a block computes and that lie in the arena."""
    owned_elsewhere = {origins.get(value, value) for value in ops[-1].operands}
    lifetimes: dict[Value, Held] = {}
    for index, op in enumerate(ops):
        if is_view(op):
            continue
        for value in op.operands:
            lifetime = lifetimes.get(origins.get(value, value))
            if lifetime is not None and lifetime.last != index:
                lifetime.uses.append(index)
        if isinstance(op, kernel.Kernel | flow.Scan | flow.While | flow.If):
            for result in op.results:
                value = origins.get(result, result)
                if value in lifetimes:
                    lifetimes[value].use(index)  # a further piece of it
                elif value not in owned_elsewhere:
                    lifetimes[value] = Held(value, timeline.bytes(value), index, [])
    return lifetimes


def _alive(ops: Sequence[Op], lifetimes: Mapping[Value, Held], timeline: Timeline) -> list[int]:
    changes = [0] * (len(ops) + 1)
    for lifetime in lifetimes.values():
        changes[lifetime.first] += lifetime.bytes
        changes[lifetime.last + 1] -= lifetime.bytes
    live_bytes: list[int] = []
    total = 0
    for op, change in zip(ops, changes, strict=False):
        total += change
        live_bytes.append(total + timeline.inside(op))
    return live_bytes


def _region_peak(block: Block, timeline: Timeline) -> int:
    ops = list(block)
    return max(_alive(ops, _held(ops, origins(block), timeline), timeline), default=0)
