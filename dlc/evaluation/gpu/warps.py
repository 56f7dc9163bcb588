"""Evaluation of a `simt` kernel as a GPU runs it: thread blocks of warps that meet at barriers.

A value is an array with a row for each thread of the warp. Where threads diverge, a mask says which of them
are active; the others get poison. A warp is a generator that stops at each barrier, and the block goes on
when all its warps have stopped. Every memory access is recorded in the shadow memory
(`dlc.evaluation.gpu.shadow_memory`), so that races are found in whatever order the warps happen to run.
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

WarpRun = Generator[simt.Barrier, None, tuple[Array, ...]]
"""A warp that runs a block of code: it yields at each barrier and returns the terminator's operands."""


class Launch(LaunchMemory):
    """One launch of a kernel: its arguments, and the memory that its blocks share."""

    def __init__(
        self,
        function: simt.Func,
        views: Sequence[MemoryRange],
        sizes: Sequence[int],
        scratch: int = 0,
        steps: float = float("inf"),
    ) -> None:
        """The kernel takes pointers to the views, the sizes and, if `scratch` is not 0, that many bytes.

        Raises StepLimit when its warps have run `steps` operations.
        """
        memory = AddressSpace()
        arguments = [*[memory.add(view) for view in views], *sizes]
        if scratch:
            arguments.append(memory.add(MemoryRange("scratch", np.full(scratch, POISON, np.uint8))))
        self._begin(function, memory, arguments, steps)

    @classmethod
    def with_arguments(
        cls, function: simt.Func, memory: AddressSpace, arguments: Sequence[int]
    ) -> Launch:
        """A launch with these arguments of the kernel: pointers into `memory`, and sizes.

        A kernel that fails goes on, as on a GPU, and is recorded in `failures`.
        """
        launch = cls.__new__(cls)
        launch._begin(function, memory, arguments, float("inf"))
        launch.failures = []
        return launch

    def _begin(
        self, function: simt.Func, memory: AddressSpace, arguments: Sequence[int], steps: float
    ) -> None:
        super().__init__(function, memory, steps)
        self.arguments = [np.full(WARP, argument, np.int64) for argument in arguments]

    def run(self, tile: int) -> None:
        """Run the thread block of one tile.

        Raises CallError where the kernel reports a failure, BadAccess where it accesses memory that is not
        its own, Race, PendingCopyAccess and Divergence.
        """
        with np.errstate(all="ignore"):
            _Block(self, tile).run()


class _Block(BlockMemory):
    """The thread block that computes one tile."""

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

    def _start(self, number: int) -> WarpRun:
        warp = _Warp(self, number)
        tile = np.full(WARP, self.tile, np.int64)
        arguments = [tile, warp.threads, *self.arguments]
        return warp.steps(self.launch.function.body, arguments, active(np.ones(WARP, np.bool_)))


class _Warp(WarpMemory):
    """Threads that execute the same operation at the same time."""

    __slots__ = ("_arrays",)

    def __init__(self, block: BlockMemory, number: int) -> None:
        super().__init__(block, number)
        self._arrays: dict[Value, Array] = {}

    def steps(self, block: Block, arguments: Sequence[Array], lanes: Active) -> WarpRun:
        """Run a block of code with the active threads."""
        arrays = self._arrays
        arrays.update(zip(block.arguments, arguments, strict=True))
        for op in block:
            if op.terminator:
                return tuple([arrays[operand] for operand in op.operands])
            self.block.launch.count_step()
            inputs = [arrays[operand] for operand in op.operands]
            match op:
                case simt.Barrier():
                    self.refuse_divergence(op, lanes)
                    yield op
                    results: tuple[Array, ...] = ()
                case loop.For():
                    results = yield from self._for(op, inputs, lanes)
                case loop.While():
                    results = yield from self._while(op, inputs, lanes)
                case loop.If():
                    results = yield from self._if(op, inputs[0].astype(np.bool_), lanes)
                case _:
                    results = compute(self, op, inputs, lanes)
            arrays.update(zip(op.results, results, strict=True))
        raise AssertionError("the block has no terminator")

    def _for(self, op: loop.For, inputs: Sequence[Array], lanes: Active) -> WarpRun:
        index, upper, step = [array.astype(np.int64) for array in inputs[:3]]
        carried = list(inputs[3:])
        looping = active(lanes.mask & (index < upper))
        while looping.lanes.size:
            following = yield from self.steps(op.body, [index, *carried], looping)
            carried = _merge(looping, following, carried)
            index = np.where(looping.mask, index + step, index)
            looping = active(looping.mask & (index < upper))
        return tuple(carried)

    def _while(self, op: loop.While, inputs: Sequence[Array], lanes: Active) -> WarpRun:
        carried, looping = list(inputs), lanes
        while True:
            (condition,) = yield from self.steps(op.condition, carried, looping)
            looping = active(looping.mask & condition.astype(np.bool_))
            if not looping.lanes.size:
                return tuple(carried)
            following = yield from self.steps(op.body, carried, looping)
            carried = _merge(looping, following, carried)

    def _if(self, op: loop.If, condition: Mask, lanes: Active) -> WarpRun:
        results = [poison(value.type) for value in op.results]
        for branch, mask in ((op.then, condition), (op.otherwise, ~condition)):
            taking = active(lanes.mask & mask)
            if taking.lanes.size:
                yielded = yield from self.steps(branch, (), taking)
                results = _merge(taking, yielded, results)
        return tuple(results)


def _merge(lanes: Active, new: Sequence[Array], old: Sequence[Array]) -> list[Array]:
    """Values that are new in the active threads and old in the others."""
    if lanes.all:
        return list(new)
    return [
        np.where(lanes.mask.reshape(-1, *[1] * (one.ndim - 1)), one, other)
        for one, other in zip(new, old, strict=True)
    ]
