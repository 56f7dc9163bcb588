"""Evaluating a `simt` kernel as a GPU runs it: warps of 32 threads that take turns at barriers.

A value is an array with a row for each thread of the warp. Where threads part ways, a mask says which of
them go on; what an operation would give the others is poison. A warp is a generator that stops at each
barrier, and the block goes on when all its warps are there. Every access to memory is looked up in the
shadow (`dlc.evaluation.gpu.shadow_memory`), so that a race is found however the warps happen to be run.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np

from dlc.dialects import loop, simt
from dlc.dialects.loop.memory import POISON, AddressSpace, MemoryRange
from dlc.dialects.simt import WARP
from dlc.evaluation.gpu.warp_memory import (
    Active,
    BlockMemory,
    Divergence,
    LaunchMemory,
    Mask,
    WarpMemory,
    active,
    poison,
)
from dlc.evaluation.gpu.warp_operations import compute
from dlc.ir.core import Array, Block, Value

Turns = Generator[simt.Barrier, None, tuple[Array, ...]]
"""A warp at work: it stops at each barrier, and in the end gives what its block of code hands on."""


class Launch(LaunchMemory):
    """One launch of a kernel."""

    def __init__(
        self,
        function: simt.Func,
        views: Sequence[MemoryRange],
        sizes: Sequence[int],
        scratch: int = 0,
        steps: float = float("inf"),
    ) -> None:
        """Views, sizes and, if there is any, bytes of scratch are what the kernel is given.

        After so many `steps`, operations that a warp ran, it raises StepLimit.
        """
        memory = AddressSpace()
        given = [*[memory.add(view) for view in views], *sizes]
        if scratch:
            given.append(memory.add(MemoryRange("scratch", np.full(scratch, POISON, np.uint8))))
        self._begin(function, memory, given, steps)

    @classmethod
    def with_arguments(
        cls, function: simt.Func, memory: AddressSpace, words: Sequence[int]
    ) -> Launch:
        """A launch with pointers into a memory and numbers, in the order of the kernel's arguments.

        A kernel that fails goes on, as on a GPU, and says so in `notes`.
        """
        launch = cls.__new__(cls)
        launch._begin(function, memory, words, float("inf"))
        launch.failures = []
        return launch

    def _begin(
        self, function: simt.Func, memory: AddressSpace, given: Sequence[int], steps: float
    ) -> None:
        super().__init__(function, memory, steps)
        self.arguments = [np.full(WARP, number, np.int64) for number in given]

    def run(self, tile: int) -> None:
        """Run the block of one tile.

        Raises CallError where the kernel notes that the call failed, BadAccess where it reaches memory
        that is not its own, Race, PendingCopyAccess and Divergence.
        """
        with np.errstate(all="ignore"):
            _Block(self, tile).run()


class _Block(BlockMemory):
    """The threads that work on one tile."""

    def __init__(self, launch: Launch, tile: int) -> None:
        super().__init__(launch, tile)
        self.arguments = launch.arguments

    def run(self) -> None:
        warps = [self._start(number) for number in range(self.threads // WARP)]
        while True:
            stops = [next(warp, None) for warp in warps]
            waiting = [stop for stop in stops if stop is not None]
            if not waiting:
                return
            if None in stops:
                raise Divergence(
                    f"warp {stops.index(None)} of tile {self.tile} ends while others wait at the "
                    f"{waiting[0].name} at {waiting[0].location.place}"
                )
            self.phase += 1

    def _start(self, number: int) -> Turns:
        warp = _Warp(self, number)
        tile = np.full(WARP, self.tile, np.int64)
        arguments = [tile, warp.threads, *self.arguments]
        return warp.steps(self.launch.function.body, arguments, active(np.ones(WARP, np.bool_)))


class _Warp(WarpMemory):
    """Threads that run the same operation at the same time."""

    __slots__ = ("_known",)

    def __init__(self, block: BlockMemory, number: int) -> None:
        super().__init__(block, number)
        self._known: dict[Value, Array] = {}

    def steps(self, block: Block, arguments: Sequence[Array], here: Active) -> Turns:
        """Run a block of code with some of the threads."""
        known = self._known
        known.update(zip(block.arguments, arguments, strict=True))
        for op in block:
            if op.terminator:
                return tuple([known[operand] for operand in op.operands])
            self.block.launch.count_step()
            inputs = [known[operand] for operand in op.operands]
            match op:
                case simt.Barrier():
                    self.refuse_absence(op, here)
                    yield op
                    results: tuple[Array, ...] = ()
                case loop.For():
                    results = yield from self._for(op, inputs, here)
                case loop.While():
                    results = yield from self._while(op, inputs, here)
                case loop.If():
                    results = yield from self._if(op, inputs[0].astype(np.bool_), here)
                case _:
                    results = compute(self, op, inputs, here)
            known.update(zip(op.results, results, strict=True))
        raise AssertionError("the block has no terminator")

    def _for(self, op: loop.For, inputs: Sequence[Array], here: Active) -> Turns:
        position, upper, step = [array.astype(np.int64) for array in inputs[:3]]
        carried = list(inputs[3:])
        going = active(here.mask & (position < upper))
        while going.rows.size:
            following = yield from self.steps(op.body, [position, *carried], going)
            carried = [_choose(going, *two) for two in zip(following, carried, strict=True)]
            position = np.where(going.mask, position + step, position)
            going = active(going.mask & (position < upper))
        return tuple(carried)

    def _while(self, op: loop.While, inputs: Sequence[Array], here: Active) -> Turns:
        carried, going = list(inputs), here
        while True:
            (test,) = yield from self.steps(op.condition, carried, going)
            going = active(going.mask & test.astype(np.bool_))
            if not going.rows.size:
                return tuple(carried)
            following = yield from self.steps(op.body, carried, going)
            carried = [_choose(going, *two) for two in zip(following, carried, strict=True)]

    def _if(self, op: loop.If, condition: Mask, here: Active) -> Turns:
        results = tuple([poison(value.type) for value in op.results])
        for branch, mask in ((op.then, condition), (op.otherwise, ~condition)):
            taken = active(here.mask & mask)
            if taken.rows.size:
                found = yield from self.steps(branch, (), taken)
                results = tuple([_choose(taken, *two) for two in zip(found, results, strict=True)])
        return results


def _choose(here: Active, new: Array, old: Array) -> Array:
    """What the threads that are here have now, and the others had."""
    if here.all:
        return new
    return np.where(here.mask.reshape(-1, *[1] * (new.ndim - 1)), new, old)
