"""The order of work: kernels in waves, and waves in loops and branches.

Kernels keep their order. A kernel starts a new wave if it needs what the current wave computes, if it
updates an argument that somebody in it reads (behind them it can write over the argument), or if it is
marked for that. Waves are numbered in order of text, through loops and branches; each loop also has a wave
before its first round and one at the end of each round, for copying carried values, and the function one at
its end, for copying results over the arguments that they update.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from dlc.dialects import array, flow, func, kernel
from dlc.dialects.kernel.pieces import Join, Subview
from dlc.ir.core import Block, Op, Value
from dlc.planning.aliases import computed, makers
from dlc.planning.liveness import updates_of
from dlc.planning.measured_sizes import Reads

NEW_WAVE = "dlc.wave"
"""The attribute of kernels that start a new wave in any case: beside others they would hold too much."""


@dataclass(slots=True)
class Wave:
    """Kernels that do not need each other."""

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
    """One of two lists of work, in the waves from `first` to `last`."""

    op: flow.If
    first: int
    last: int
    then: list[Item]
    otherwise: list[Item]


Item: TypeAlias = Wave | Loop | Choice


class Origins:
    """Which value's memory each value shares: views and arguments of regions have none of their own."""

    def __init__(self) -> None:
        self._shared: dict[Value, Value] = {}

    @classmethod
    def of(cls, function: func.Func) -> Origins:
        """With the pieces of all joins in a function, each in the memory of its whole."""
        found = cls()
        for op in function.walk(formulas=False):
            if isinstance(op, Join):
                for piece in op.pieces:
                    found.share(computed(piece), op.result)
        return found

    def share(self, value: Value, other: Value) -> None:
        """`value` is in the memory of `other`."""
        self._shared[value] = other

    def __getitem__(self, value: Value) -> Value:
        for origin in self.chain(value):
            value = origin
        return value

    def chain(self, value: Value) -> Iterator[Value]:
        """The value itself, then what it is, or is a part of, in the same memory, up to the whole."""
        while True:
            yield value
            if isinstance(value.op, array.Reshape | Subview):
                value = value.op.source
            elif value in self._shared:
                value = self._shared[value]
            else:
                return


class Scheduler:
    """Puts a function's body in order. `origins` is complete when it has run."""

    def __init__(self, function: func.Func, reads: Reads) -> None:
        self.function = function
        self.origins = Origins.of(function)
        self._reads = reads
        self.waves = 0
        self._depth = 0
        self._updates = updates_of(function)

    def run(self) -> list[Item]:
        """The work of the function's body; the last wave is the one at its end."""
        items = self.schedule(self.function.body)
        self._next()
        return items

    def schedule(self, block: Block) -> list[Item]:
        """The work of a block."""
        items: list[Item] = []
        current: set[Op] = set()
        for op in block:
            match op:
                case kernel.Kernel():
                    needs = any(not current.isdisjoint(makers(v)) for v in self._reads(op))
                    last = items[-1] if items else None
                    new = needs or op.attributes.get(NEW_WAVE)
                    if new or not isinstance(last, Wave) or self._overwrites(op, last):
                        last = Wave(self._next())
                        items.append(last)
                        current = set()
                    last.kernels.append(op)
                    current.add(op)
                case flow.Scan() | flow.While():
                    items.append(self._loop(op))
                case flow.If():
                    items.append(self._choice(op))
                case _:
                    pass
        return items

    def _overwrites(self, op: kernel.Kernel, wave: Wave) -> bool:
        """Whether a kernel updates an argument that others in a wave read as it was."""
        updated = {self._updates[value] for value in op.results if value in self._updates}
        return bool(updated) and any(
            self.origins[value] in updated for other in wave.kernels for value in self._reads(other)
        )

    def _next(self) -> int:
        self.waves += 1
        return self.waves - 1

    def _loop(self, op: flow.Scan | flow.While) -> Loop:
        enter = self._next()
        counter = self._depth
        carried = len(op.initial)
        lead = 1 if isinstance(op, flow.Scan) else 0
        for region in op.regions:
            arguments = region.arguments[lead:]
            for argument, result in zip(arguments[:carried], op.results, strict=False):
                self.origins.share(argument, result)
            # Slices share the memory of what is walked, constants that of what is passed.
            for argument, operand in zip(arguments[carried:], op.operands[carried:], strict=True):
                self.origins.share(argument, operand)
        self._depth += 1
        test = self.schedule(op.condition) if isinstance(op, flow.While) else []
        body = self.schedule(op.body)
        self._depth -= 1
        return Loop(op, counter, enter, test, body, self._next())

    def _choice(self, op: flow.If) -> Choice:
        for region in op.regions:
            for argument, operand in zip(region.arguments, op.inputs, strict=True):
                self.origins.share(argument, operand)
        first = self.waves
        then, otherwise = self.schedule(op.then), self.schedule(op.otherwise)
        return Choice(op, first, max(first, self.waves - 1), then, otherwise)


@dataclass(slots=True)
class Lifetimes:
    """The wave that writes each value, the last one that needs it, and the waves that read it."""

    reads_of: Reads
    written: dict[Value, int] = field(default_factory=dict[Value, int])
    last: dict[Value, int] = field(default_factory=dict[Value, int])
    reads: dict[Value, list[tuple[int, kernel.Kernel | None]]] = field(
        default_factory=dict[Value, list[tuple[int, "kernel.Kernel | None"]]]
    )


def lifetimes(items: list[Item], origins: Origins, reads: Reads) -> Lifetimes:
    """How long each value is needed; what a loop uses from outside, it needs to its end."""
    found = Lifetimes(reads)
    _walk(items, origins, found, ())
    return found


def _walk(items: list[Item], origins: Origins, found: Lifetimes, loops: tuple[Loop, ...]) -> None:
    for item in items:
        match item:
            case Wave(number, kernels):
                for op in kernels:
                    for result in op.results:
                        found.written.setdefault(origins[result], number)
                    for operand in found.reads_of(op):
                        _use(operand, number, op, origins, found, loops)
            case Loop():
                _walk_loop(item, origins, found, loops)
            case Choice():
                _use(item.op.condition, item.first, None, origins, found, loops)
                for result in item.op.results:
                    found.written[result] = item.first
                _walk(item.then, origins, found, loops)
                _walk(item.otherwise, origins, found, loops)


def _walk_loop(item: Loop, origins: Origins, found: Lifetimes, loops: tuple[Loop, ...]) -> None:
    op = item.op
    for value in op.initial:
        _use(value, item.enter, None, origins, found, loops)
    for result in op.results:
        found.written[result] = item.enter
        found.last[result] = item.leave
    inner = (*loops, item)
    _walk(item.test, origins, found, inner)
    if isinstance(op, flow.While):
        (test,) = op.condition.terminator.operands
        _use(test, max(item.enter, _last_wave(item.test)), None, origins, found, inner)
    _walk(item.body, origins, found, inner)
    for value in op.body.terminator.operands:
        _use(value, item.leave, None, origins, found, inner)
    for value in found.reads_of.counts(op):
        _use(value, item.leave, None, origins, found, loops)
    if isinstance(op, flow.Scan):
        for value in op.xs:
            _use(value, item.leave, None, origins, found, loops)


def _last_wave(items: list[Item]) -> int:
    return max((wave.number for wave in waves_of(items)), default=-1)


def waves_of(items: list[Item]) -> Iterator[Wave]:
    """All waves, also those in loops and branches, in order of text."""
    for item in items:
        match item:
            case Wave():
                yield item
            case Loop():
                yield from waves_of(item.test)
                yield from waves_of(item.body)
            case Choice():
                yield from waves_of(item.then)
                yield from waves_of(item.otherwise)


def _use(
    value: Value,
    number: int,
    op: kernel.Kernel | None,
    origins: Origins,
    found: Lifetimes,
    loops: tuple[Loop, ...],
) -> None:
    origin = origins[value]
    found.reads.setdefault(origin, []).append((number, op))
    written = found.written.get(origin, -1)
    until = number
    for loop in loops:
        if written < loop.enter:
            until = max(until, loop.leave)
    found.last[origin] = max(found.last.get(origin, 0), until)
