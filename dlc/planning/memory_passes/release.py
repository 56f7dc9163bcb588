"""Kernels that give memory back run as soon as they can.

A weight is updated when its gradient is there, not after the whole backward pass, so that gradients do not
all live to the end; a sum over an array that nothing else needs is taken when the array is there. Such a
kernel moves up behind what it reads, and what updates an argument behind all that reads the argument as it
was: that way it still writes over it. All else keeps its order.
"""

from __future__ import annotations

from collections.abc import Iterator

from dlc.dialects import array, func, kernel
from dlc.dialects.builtin import Module
from dlc.dialects.measured import measuring
from dlc.ir.core import Op, Value
from dlc.ir.passes import Context, define_pass
from dlc.planning.aliases import origin, readers
from dlc.planning.liveness import Timeline, updates_of

SMALL = 64
"""Bytes that may be held for longer: numbers that all updates share, as the size of a step."""


@define_pass("release")
def release(module: Op, context: Context) -> None:
    """Let kernels that give memory back run as soon as they can."""
    assert isinstance(module, Module)
    for function in list(module.body):
        if isinstance(function, func.Func) and not measuring(function):
            _Release(function, context).run()


class _Release:
    def __init__(self, function: func.Func, context: Context) -> None:
        self.block = function.body
        self.timeline = Timeline(function)
        self.log = context.log
        self.updates = updates_of(function)

    def run(self) -> None:
        """Put the operations of the function into their new order."""
        order: list[Op] = []
        for op in self.timeline.ops:
            place = len(order)
            if self._may_move(op):
                needed = set(self._needed(op))
                while place and order[place - 1] not in needed:
                    place -= 1
            if place < len(order) and isinstance(op, kernel.Kernel):
                self.log.did("run earlier", op, operations=len(order) - place)
            order.insert(place, op)
        for op in order:
            self.block.move(op, None)

    def _may_move(self, op: Op) -> bool:
        """Whether less is held behind an operation than before it, or no more and it is an update."""
        if isinstance(op, array.Reshape):
            return True
        if not isinstance(op, kernel.Kernel) or not op.pure:
            return False
        if sum(self.timeline.bytes(value) for value in op.results) <= SMALL:
            return True
        if all(value in self.updates for value in op.results):
            return not any(self._is_read_later(self.updates[value], op) for value in op.results)
        held, number = self.timeline.held, self.timeline.number[op]
        made = sum(held[value].bytes for value in op.results if value in held)
        read = {origin(value) for value in op.operands} & held.keys()
        return made < sum(held[value].bytes for value in read if held[value].last == number)

    def _needed(self, op: Op) -> Iterator[Op]:
        """The operations that must come before."""
        yield from (value.op for value in op.operands if value.op is not None)
        for value in op.results:
            if value in self.updates:
                yield from (reader for reader in readers(self.updates[value]) if reader is not op)

    def _is_read_later(self, argument: Value, op: Op) -> bool:
        number = self.timeline.number
        return any(number[reader] > number[op] for reader in readers(argument))
