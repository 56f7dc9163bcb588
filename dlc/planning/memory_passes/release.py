"""Kernels that free memory run as early as their operands allow.

A weight is updated once its gradient is computed, not after the whole backward pass, so that gradients do
not all live to the end; a sum over an array that nothing else reads follows the kernel that computes the
array. Such a kernel moves up behind the producers of its operands, an update also behind every reader of
the argument's old value, so that it can still write in place. All other operations keep their order.
"""

from __future__ import annotations

from collections.abc import Iterator

from dlc.dialects import array, func, kernel
from dlc.dialects.builtin import Module
from dlc.dialects.measured import measuring
from dlc.ir.core import Op, Value
from dlc.ir.passes import Context, define_pass
from dlc.planning.aliases import readers
from dlc.planning.liveness import Timeline, updates_of

SMALL = 64
"""Results of at most this many bytes may live longer: scalars that updates share, such as a step size."""


@define_pass("release")
def release(module: Op, context: Context) -> None:
    """Run kernels that free memory as early as their operands allow."""
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
        """Reorder the function."""
        moved = [op for op in self.timeline.ops if self._may_move(op) and self._moves(op)]
        position = {op: index for index, op in enumerate(self.block)}
        for op in moved:
            earlier = self.timeline.number[op] - position[op]
            if earlier > 0 and isinstance(op, kernel.Kernel):
                self.log.did("run earlier", op, operations=earlier)

    def _moves(self, op: Op) -> bool:
        """Move an operation up behind those that must come before it; whether it was elsewhere."""
        last: Op | None = None
        for each in set(self._predecessors(op)):
            if (
                each.parent is self.block
                and each.is_before(op)
                and (last is None or last.is_before(each))
            ):
                last = each
        following = self.block.first if last is None else last.next
        if following is op:
            return False
        self.block.move(op, following)
        return True

    def _may_move(self, op: Op) -> bool:
        """Whether an operation frees more memory than it allocates, or updates an argument in place."""
        if isinstance(op, array.Reshape):
            return True
        if not isinstance(op, kernel.Kernel) or not op.pure:
            return False
        if sum(self.timeline.bytes(value) for value in op.results) <= SMALL:
            return True
        if all(value in self.updates for value in op.results):
            return not any(self._is_read_later(self.updates[value], op) for value in op.results)
        lifetimes, index = self.timeline.held, self.timeline.number[op]
        written_bytes = sum(lifetimes[value].bytes for value in op.results if value in lifetimes)
        sources = {self.timeline.origin(value) for value in op.operands} & lifetimes.keys()
        return written_bytes < sum(
            lifetimes[value].bytes for value in sources if lifetimes[value].last == index
        )

    def _predecessors(self, op: Op) -> Iterator[Op]:
        """The operations that must come before: producers of operands, and readers of what it updates."""
        yield from (value.op for value in op.operands if value.op is not None)
        for value in op.results:
            if value in self.updates:
                yield from (reader for reader in readers(self.updates[value]) if reader is not op)

    def _is_read_later(self, argument: Value, op: Op) -> bool:
        index = self.timeline.number
        return any(index[reader] > index[op] for reader in readers(argument))
