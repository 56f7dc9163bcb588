"""Comparing kernels with the loops that they are lowered to, on the memory that the plan assigns.

The plan is evaluated kernel by kernel. Some tiles of the loops of each kernel run on a copy of its memory:
they must write the elements that the kernel computes, and nothing else, and where all tiles ran, all of
them that change. If several calls run the same code, only the first are compared; a kernel with a tile that
takes too long is skipped and listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.dialects import kernel, mem
from dlc.dialects.builtin import Module
from dlc.dialects.kernel.generic import array_type
from dlc.dialects.loop.memory import BadAccess, MemoryRange, StepLimit
from dlc.evaluation.loop import run_tile
from dlc.evaluation.plan import PlanRun, function_of
from dlc.evaluation.rounding_error import slack_of
from dlc.ir.clone import clone, clone_block
from dlc.ir.core import Array, Builder, Evaluation, Value
from dlc.ir.types import DType

STEPS = 5_000
"""The most operations evaluated for a kernel; one takes some microseconds."""
CALLS = 2
"""The most calls compared for one function: all of them run the same code."""

Mask: TypeAlias = NDArray[np.bool_]

Compare = Callable[[kernel.Kernel, Array, Array, Array, DType], None]
"""Raises if the results of a kernel and of its loops differ by more than the slack, which comes third."""


class Unwritten(BadAccess):
    """The loops of a kernel leave a part of its result as it was."""


@dataclass(slots=True)
class Compared:
    """The numbers of compared kernels and tiles, and the kernels of which no tile was compared."""

    kernels: int = 0
    tiles: int = 0
    left_out: list[str] = field(default_factory=list[str])


def planned_copy(program: mem.Program) -> mem.Program:
    """A copy of a program, to compare with the program after its kernels are lowered to loops."""
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

    Raises what `compare` raises, and BadAccess if loops access memory outside their views, or leave
    elements of a result unwritten.
    """
    kernels = [op for op in planned.walk() if isinstance(op, kernel.Kernel)]
    plans = [op for op in kernels if isinstance(_around(op), mem.Wave)]
    calls = [op for op in lowered.walk() if isinstance(op, mem.Call)]
    run = _Lockstep(planned, inputs, at, dict(zip(plans, calls, strict=True)), compare, steps)
    run.run()
    return run.compared


def _around(op: kernel.Kernel) -> object:
    return op.parent.parent if op.parent is not None else None


@dataclass(slots=True)
class _Result:
    """A result of a kernel: the memory of its view afterwards, how far numbers in it may be from that, and
    the bytes that change and no tile has written yet."""

    view: Value
    expected: MemoryRange
    slack: Array
    unwritten: Mask


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
        """Run some tiles of a call on copies of its memory, and compare what each has written."""
        reads = len(op.operands) - len(op.targets)
        before = [self.memory_range(view) for view in op.operands]
        results = self._expected(op, before)
        tiles, tiles_done, steps_left = self.at.size(call.tiles), 0, float(self.steps)
        for tile in _sample(tiles):
            views = [*before[:reads], *map(_copy, before[reads:])]
            try:
                steps_left = self._run(call, views, tile, steps_left)
            except StepLimit:
                break
            tiles_done += 1
            for result, written in zip(results, views[reads:], strict=True):
                self._compare_written(op, result, written)
        if tiles_done == tiles and any(result.unwritten.any() for result in results):
            raise Unwritten(
                f"{op.name} at {op.location.place} leaves elements of its result unwritten"
            )
        self.compared.kernels += tiles_done > 0
        self.compared.tiles += tiles_done
        if not tiles_done and tiles:
            self.compared.left_out.append(f"{op.name} at {op.location.place}")

    def _expected(self, op: kernel.Kernel, before: Sequence[MemoryRange]) -> list[_Result]:
        """What a kernel computes, in the memory of its results, which lies behind that of its inputs."""
        numbers = self.results(op)
        reads = len(op.operands) - len(op.targets)
        inputs = [self.array(view) for view in op.operands[:reads]]
        slacks = slack_of(op, inputs, numbers, self.at)
        results: list[_Result] = []
        for view, memory, result, slack in zip(
            op.targets, before[reads:], numbers, slacks, strict=True
        ):
            expected = self._with_result(view, memory, result)
            # A kernel that works in place leaves what it does not change.
            changed = expected.data != memory.data
            results.append(_Result(view, expected, self._laid_out(view, memory, slack), changed))
        return results

    def _run(self, call: mem.Call, views: Sequence[MemoryRange], tile: int, steps: float) -> float:
        sizes, scratch = self.at.shape(call.sizes), self.at.size(call.scratch)
        return run_tile(function_of(call), views, sizes, tile, scratch, steps)

    def _with_result(self, view: Value, memory: MemoryRange, result: Array) -> MemoryRange:
        """A copy of the memory of a view, with the result of the kernel written to it."""
        copy = _copy(memory)
        self._write(view, copy.data.view(array_type(view).dtype.numpy), result)
        return copy

    def _laid_out(self, view: Value, memory: MemoryRange, numbers: Array) -> Array:
        """Numbers for the elements of a view, each where its element is in memory."""
        flat = np.zeros(memory.data.size // array_type(view).dtype.bytes, numbers.dtype)
        self._write(view, flat, numbers)
        return flat

    def _write(self, view: Value, flat: Array, numbers: Array) -> None:
        """Write numbers into an array that has an element for each one of the memory of a view."""
        op = view.op
        assert isinstance(op, mem.View)
        if numbers.size:
            steps = tuple([s * flat.itemsize for s in self.at.shape(op.type.strides)])
            np.ndarray(numbers.shape, flat.dtype, flat.data, 0, steps)[...] = numbers

    def _compare_written(self, op: kernel.Kernel, result: _Result, memory: MemoryRange) -> None:
        """Compare the elements that a tile has written with those of the kernel."""
        dtype = array_type(result.view).dtype
        assert memory.written is not None
        result.unwritten &= ~memory.written
        written = memory.written[:: dtype.bytes]
        from_loops, from_kernel = (
            each.data.view(dtype.numpy)[written] for each in (memory, result.expected)
        )
        self.compare(op, from_kernel, from_loops, result.slack[written], dtype)


def _copy(memory: MemoryRange) -> MemoryRange:
    """A copy of the bytes, with a mask that records writes."""
    written = np.zeros(memory.data.size, np.bool_)
    return replace(memory, data=memory.data.copy(), written=written)


def _sample(tiles: int) -> list[int]:
    """The last tile, which has the remainders, the first one, and some in between."""
    return list(dict.fromkeys([tiles - 1, 0, tiles // 2, tiles // 3])) if tiles else []
