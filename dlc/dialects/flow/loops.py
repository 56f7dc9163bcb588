"""Derivatives of loops: the operands of a loop, and the backward loop, which runs the other way round."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array
from dlc.dialects.flow.regions import Yield
from dlc.dialects.flow.residuals import redirect
from dlc.dialects.flow.reverse import Backward, activate, pull_back, sweep, zeros
from dlc.ir.core import Block, Value
from dlc.ir.value_map import ValueMap


class Inputs:
    """A group of arguments of a block under construction, and the values passed for them."""

    __slots__ = ("_passed", "arguments", "block")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.arguments: list[Value] = []
        self._passed: list[Value] = []

    @property
    def values(self) -> tuple[Value, ...]:
        """What is passed, in the order of the arguments."""
        return tuple(self._passed)

    def add(self, passed: Value, like: Value | None = None) -> Value:
        """A new argument for the value passed; of the type of `like`, if the block sees a part."""
        shown = like or passed
        argument = self.block.add_argument(shown.type, shown.name)
        self.arguments.append(argument)
        self._passed.append(passed)
        return argument

    def bind(self, passed: Value, forward: Value) -> None:
        """A new argument that stands for a value of the forward half, for which `passed` is passed."""
        redirect(self.block, forward, self.add(passed, forward))


class Half:
    """The backward half of a loop's body, while it is built.

    Arguments of the body are known by their number k, the index left out: first the carried values, up
    to `count`, in the end the constants, from `constants_from` on. The half carries what the carried
    values receive, and the sums of what the constants receive.
    """

    def __init__(
        self,
        body: Block,
        arguments: Sequence[Value],
        count: int,
        constants_from: int,
        active: Sequence[bool],
        emit: Backward,
    ) -> None:
        self.body, self.arguments = body, arguments
        self.count, self.constants_from = count, constants_from
        self.matters = _mattering(body, arguments, count, active, emit.values)
        self.block = Block()
        self.emit = emit.inside(self.block)
        self.outside = emit
        self.carried, self.constants = Inputs(self.block), Inputs(self.block)

    def seed_carried(self, cotangents: Sequence[Value | None]) -> list[Value | None]:
        """An argument for what each carried value receives."""
        seeds: list[Value | None] = []
        for matters, argument, cotangent in zip(
            self.matters, self.arguments, cotangents, strict=False
        ):
            # A carried value may receive nothing at the end and something at every step before.
            start = cotangent or zeros(self.outside, argument) if matters else None
            seeds.append(start and self.carried.add(start))
        return seeds

    def pull_back(self, seeds: Sequence[Value | None]) -> dict[int, Value]:
        """Build the half: what each argument receives in one step."""
        wrt = [k for k, yes in enumerate(self.matters) if yes]
        parts = pull_back(self.body, [self.arguments[k] for k in wrt], seeds, self.emit)
        return {k: part for k, part in zip(wrt, parts, strict=True) if part is not None}

    def end(self, cotangents: dict[int, Value]) -> list[int]:
        """Yield the cotangents of arguments; returns the argument that each result belongs to."""
        carries = [k for k in range(self.count) if self.matters[k]]
        sums = [k for k in cotangents if k >= self.constants_from]
        slices = [k for k in cotangents if self.count <= k < self.constants_from]
        ends = [cotangents.get(k) or zeros(self.emit, self.arguments[k]) for k in carries]
        for k in sums:
            total = self.carried.add(zeros(self.outside, self.arguments[k]))
            ends.append(self.emit(array.Add(total, cotangents[k])))
        self.emit.place(Yield((*ends, *[cotangents[k] for k in slices])))
        sweep(self.block)
        return [*carries, *sums, *slices]


def _mattering(
    body: Block,
    arguments: Sequence[Value],
    count: int,
    active: Sequence[bool],
    values: ValueMap,
) -> list[bool]:
    """Which arguments depend on the active ones; carried ones may do so from the second step on."""
    matters = list(active)
    while True:
        wrt = [argument for argument, yes in zip(arguments, matters, strict=True) if yes]
        depending = activate(body, wrt, values)
        # Read the terminator now: `activate` may have replaced what it hands over.
        following = body.terminator.operands[:count]
        reached = [old or new in depending for old, new in zip(matters, following, strict=False)]
        if reached == matters[:count]:
            return matters
        matters[:count] = reached
