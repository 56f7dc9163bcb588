"""Wave formation: kernels that do not depend on each other form waves, in loops and branches.

Kernels keep their order. A kernel starts a new wave if it depends on a kernel of the current one, if it
updates an argument that a kernel of it reads (after those it can write in place), or if it is marked so.
Waves are numbered in program order, through loops and branches; `lifetimes.py` says from which to which a
value lives. For copying carried values each loop also has a wave before its first iteration and one at the
end of each iteration; the function has one at its end, for copying results over the arguments that they
update.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

from dlc.dialects import array, flow, func, kernel
from dlc.dialects.array.shape import without_reshapes
from dlc.dialects.comm import Collective
from dlc.dialects.kernel.pieces import Join, Subview
from dlc.ir.core import Block, Op, Value
from dlc.planning.aliases import makers
from dlc.planning.liveness import updates_of
from dlc.planning.measured_sizes import Reads

NEW_WAVE = "dlc.wave"
"""The attribute of kernels that always start a new wave: in the current one they would raise the peak."""


@dataclass(slots=True)
class Wave:
    """Kernels that do not depend on each other."""

    number: int
    kernels: list[kernel.Kernel] = field(default_factory=list[kernel.Kernel])


@dataclass(slots=True)
class Loop:
    """A scan or while: `enter` and `leave` are the numbers of its copying waves."""

    op: flow.Scan | flow.While
    counter: int
    enter: int
    test: list[Item]
    body: list[Item]
    leave: int


@dataclass(slots=True)
class Choice:
    """A branch: one of two lists of items, in the waves `first` to `last`."""

    op: flow.If
    first: int
    last: int
    then: list[Item]
    otherwise: list[Item]


Item: TypeAlias = Wave | Loop | Choice


class Origins:
    """The value whose memory each value shares: views and arguments of regions have none of their own."""

    def __init__(self) -> None:
        self._shared: dict[Value, Value] = {}

    @classmethod
    def of(cls, function: func.Func) -> Origins:
        """The origins in a function, so far those of the pieces of joins."""
        origins = cls()
        for op in function.walk(formulas=False):
            if isinstance(op, Join):
                for piece in op.pieces:
                    origins.share(without_reshapes(piece), op.result)
        return origins

    def share(self, value: Value, owner: Value) -> None:
        """Record that `value` lies in the memory of `owner`."""
        self._shared[value] = owner

    def __getitem__(self, value: Value) -> Value:
        for origin in self.chain(value):
            value = origin
        return value

    def chain(self, value: Value) -> Iterator[Value]:
        """The value and those of which each is a view or part of the next, up to the owner of memory."""
        while True:
            yield value
            if isinstance(value.op, array.Reshape | Subview):
                value = value.op.source
            elif value in self._shared:
                value = self._shared[value]
            else:
                return


class Scheduler:
    """Forms the waves of a function. `origins` is complete when it has run."""

    def __init__(self, function: func.Func, reads: Reads) -> None:
        self.function = function
        self.origins = Origins.of(function)
        self._reads = reads
        self.waves = 0
        self._depth = 0
        self._updates = updates_of(function)

    def run(self) -> list[Item]:
        """The items of the function's body; the last wave is the copying one at its end."""
        items = self.schedule(self.function.body)
        self._next_wave()
        return items

    def schedule(self, block: Block) -> list[Item]:
        """The items of a block."""
        items: list[Item] = []
        kernels_of_wave: set[Op] = set()
        for op in block:
            match op:
                case kernel.Kernel():
                    depends = any(
                        not kernels_of_wave.isdisjoint(makers(v)) for v in self._reads(op)
                    )
                    wave = items[-1] if items else None
                    starts_wave = (
                        depends or op.attributes.get(NEW_WAVE) or _two_collectives(op, wave)
                    )
                    if starts_wave or not isinstance(wave, Wave) or self._overwrites(op, wave):
                        wave = Wave(self._next_wave())
                        items.append(wave)
                        kernels_of_wave = set()
                    wave.kernels.append(op)
                    kernels_of_wave.add(op)
                case flow.Scan() | flow.While():
                    items.append(self._schedule_loop(op))
                case flow.If():
                    items.append(self._schedule_choice(op))
                case _:
                    pass
        return items

    def _overwrites(self, op: kernel.Kernel, wave: Wave) -> bool:
        """Whether a kernel updates an argument whose old value a kernel of a wave reads."""
        overwritten = [self._updates[value] for value in op.results if value in self._updates]
        updated = {self.origins[value] for value in overwritten}
        return bool(updated) and any(
            self.origins[value] in updated for other in wave.kernels for value in self._reads(other)
        )

    def _next_wave(self) -> int:
        self.waves += 1
        return self.waves - 1

    def _schedule_loop(self, op: flow.Scan | flow.While) -> Loop:
        enter = self._next_wave()
        counter = self._depth
        carried = len(op.initial)
        lead = 1 if isinstance(op, flow.Scan) else 0
        for region in op.regions:
            arguments = region.arguments[lead:]
            for argument, result in zip(arguments[:carried], op.results, strict=False):
                self.origins.share(argument, result)
            # Slices share the memory of the arrays sliced, constants that of the values passed.
            for argument, operand in zip(arguments[carried:], op.operands[carried:], strict=True):
                self.origins.share(argument, operand)
        if isinstance(op, flow.Scan):
            self._note_updates(op)
        self._depth += 1
        condition = self.schedule(op.condition) if isinstance(op, flow.While) else []
        body = self.schedule(op.body)
        self._depth -= 1
        return Loop(op, counter, enter, condition, body, self._next_wave())

    def _note_updates(self, op: flow.Scan) -> None:
        """Note what each iteration writes over its slice of an argument that the scan updates."""
        slices = dict(zip(op.xs, op.slices, strict=True))
        stacks = zip(op.results, op.body.terminator.operands, strict=True)
        for stack, yielded in islice(stacks, len(op.initial), None):
            argument = self._updates.get(stack)
            if argument in slices:
                self._updates[without_reshapes(yielded)] = slices[argument]

    def _schedule_choice(self, op: flow.If) -> Choice:
        for region in op.regions:
            for argument, operand in zip(region.arguments, op.inputs, strict=True):
                self.origins.share(argument, operand)
        first = self.waves
        then, otherwise = self.schedule(op.then), self.schedule(op.otherwise)
        return Choice(op, first, max(first, self.waves - 1), then, otherwise)


def _two_collectives(op: kernel.Kernel, wave: Item | None) -> bool:
    """Whether a wave would have two collectives, which ranks might begin in different orders."""
    return (
        isinstance(op, Collective)
        and isinstance(wave, Wave)
        and any(isinstance(other, Collective) for other in wave.kernels)
    )
