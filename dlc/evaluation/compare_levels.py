"""Comparing kernels before and after they become loops, each on the memory that the plan gives it.

The plan is evaluated kernel by kernel. Of each, some tiles of its loops run on a copy of the memory; what
they write must be what the kernel computes, and nothing else may change. Of kernels that are the same
code only the first are compared; those one of whose tiles takes too long are left out, by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dlc.dialects import kernel, mem
from dlc.dialects.builtin import Module
from dlc.dialects.kernel.generic import array_type
from dlc.dialects.loop.memory import MemoryRange, StepLimit
from dlc.evaluation.loop import run_tile
from dlc.evaluation.plan import PlanRun, function_of
from dlc.ir.clone import clone, clone_block
from dlc.ir.core import Array, Builder, Evaluation, Value
from dlc.ir.types import DType

STEPS = 5_000
"""Operations that are run of each kernel; one takes some microseconds."""
CALLS = 2
"""Calls of one function whose loops are run: all of them run the same code."""

Compare = Callable[[kernel.Kernel, Array, Array, DType], None]
"""Raises if what the kernel computes and what its loops write differ by more than rounding."""


@dataclass(slots=True)
class Compared:
    """How many kernels were compared in how many tiles, and those of which no tile was."""

    kernels: int = 0
    tiles: int = 0
    left_out: list[str] = field(default_factory=list[str])


def planned_copy(program: mem.Program) -> mem.Program:
    """A copy of a program, to be compared with the program when its kernels have become loops."""
    copy = clone(program, (), (clone_block(program.body),))
    assert isinstance(copy, mem.Program)
    module = Module.empty(program.location)
    Builder(module.body, program.location).place(copy)
    return copy


def compare_loops(
    planned: mem.Program,
    lowered: mem.Program,
    inputs: Sequence[Array],
    at: Evaluation,
    compare: Compare,
    steps: int = STEPS,
) -> Compared:
    """Compare the kernels of a program with the loops of its lowered form, for these inputs.

    Raises what `compare` raises, and BadAccess where loops reach memory that is not theirs.
    """
    kernels = [op for op in planned.walk() if isinstance(op, kernel.Kernel)]
    plans = [op for op in kernels if isinstance(_around(op), mem.Wave)]
    calls = [op for op in lowered.walk() if isinstance(op, mem.Call)]
    run = _Lockstep(planned, inputs, at, dict(zip(plans, calls, strict=True)), compare, steps)
    run.run()
    return run.compared


def _around(op: kernel.Kernel) -> object:
    return op.parent.parent if op.parent is not None else None


class _Lockstep(PlanRun):
    def __init__(
        self,
        planned: mem.Program,
        inputs: Sequence[Array],
        at: Evaluation,
        calls: Mapping[kernel.Kernel, mem.Call],
        compare: Compare,
        steps: int,
    ) -> None:
        super().__init__(planned, inputs, at)
        self.calls = dict(calls)
        self.compare = compare
        self.steps = steps
        self.compared = Compared()
        self.times: Counter[str] = Counter()

    def wave(self, wave: mem.Wave) -> None:
        """Compare the kernels of a wave the first time it runs, then run them."""
        for op in wave.body:
            call = self.calls.pop(op, None) if isinstance(op, kernel.Kernel) else None
            if call is None or self.times[call.kernel.name] >= CALLS:
                continue
            assert isinstance(op, kernel.Kernel)
            self.times[call.kernel.name] += 1
            self._compare(op, call)
        super().wave(wave)

    def _compare(self, op: kernel.Kernel, call: mem.Call) -> None:
        results = self.results(op)
        reads = len(op.operands) - len(op.targets)
        before = [self.stretch(view) for view in op.operands]
        wanted = [
            self._with(view, stretch, result)
            for view, stretch, result in zip(op.targets, before[reads:], results, strict=True)
        ]
        left: float = self.steps
        done = 0
        for tile in _sample(self.at.size(call.tiles)):
            views = [*before[:reads], *[_copy(stretch) for stretch in before[reads:]]]
            try:
                left = self._run(call, views, tile, left)
            except StepLimit:
                break
            done += 1
            for target, right, stretch in zip(op.targets, wanted, views[reads:], strict=True):
                self._look(op, target, stretch, right)
        self.compared.kernels += done > 0
        self.compared.tiles += done
        if not done and self.at.size(call.tiles):
            self.compared.left_out.append(f"{op.name} at {op.location.place}")

    def _run(self, call: mem.Call, views: Sequence[MemoryRange], tile: int, steps: float) -> float:
        sizes, scratch = self.at.shape(call.sizes), self.at.size(call.scratch)
        return run_tile(function_of(call), views, sizes, tile, scratch, steps)

    def _with(self, view: Value, stretch: MemoryRange, result: Array) -> MemoryRange:
        """The memory of a view with the result in it."""
        type = array_type(view)
        op = view.op
        assert isinstance(op, mem.View)
        copy = _copy(stretch)
        if result.size:
            steps = tuple([s * type.dtype.bytes for s in self.at.shape(op.type.strides)])
            np.ndarray(result.shape, type.dtype.numpy, copy.data.data, 0, steps)[...] = result
        return copy

    def _look(
        self, op: kernel.Kernel, view: Value, found: MemoryRange, wanted: MemoryRange
    ) -> None:
        dtype = array_type(view).dtype
        assert found.written is not None
        written = found.written[:: dtype.bytes]
        one, other = (stretch.data.view(dtype.numpy)[written] for stretch in (found, wanted))
        self.compare(op, other, one, dtype)


def _copy(stretch: MemoryRange) -> MemoryRange:
    """The same bytes elsewhere, where writing is noted."""
    written = np.zeros(stretch.data.size, np.bool_)
    return replace(stretch, data=stretch.data.copy(), written=written)


def _sample(tiles: int) -> list[int]:
    """The last tile, which has the rests, the first, and some between."""
    return list(dict.fromkeys([tiles - 1, 0, tiles // 2, tiles // 3])) if tiles else []
