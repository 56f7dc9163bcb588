"""Evaluating a plan with NumPy, in the arena that it lays out.

Every value is written at its planned address and read from there, so a value that is overwritten
too early shows as a wrong number. The arena is initialised with NaN. The kernels of a wave may run
in any order: here all of them read before any of them writes, and a kernel that writes memory which
another kernel of the wave reads is a conflict. Lowered kernels run tile by tile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dlc.dialects import kernel, loop, mem, simt
from dlc.dialects.builtin import Module
from dlc.dialects.loop.memory import POISON, BadAccess, Bytes, MemoryRange
from dlc.evaluation.gpu.shadow_memory import Race
from dlc.evaluation.gpu.warp_memory import Divergence, PendingCopyAccess
from dlc.evaluation.gpu.warps import Launch
from dlc.evaluation.loop import run_tile
from dlc.ir.core import Array, Block, Evaluation, Op, Value
from dlc.ir.types import TensorType, ViewType
from dlc.lowering.kernel_code.writer import Function
from dlc.planning.arena import align
from dlc.planning.overwriting import overwritable_operands
from dlc.runtime.abi import Status
from dlc.runtime.calling.status import failure


class PlanConflict(Exception):
    """Two kernels of a wave use the same memory, and one of them writes it."""


MISUSE = (PlanConflict, BadAccess, Race, Divergence, PendingCopyAccess)
"""What evaluating raises for wrong use of memory: of the arena, of a view, or by threads of a GPU."""


def evaluate_plan(
    program: mem.Program,
    inputs: Sequence[Array],
    dims: Mapping[str, int] | None = None,
    weights: Mapping[str, Array] | None = None,
) -> tuple[Array, ...]:
    """The results of an entry point whose kernels are in the plan, or lowered to loops.

    Raises PlanConflict if a kernel of a wave writes memory that another one of the wave uses.
    """
    return PlanRun(program, inputs, Evaluation(dims, weights)).run()


def arena_offsets(roots: Iterable[mem.Root], at: Evaluation) -> dict[int, int]:
    """The offset in bytes of each arena root, by its number: as planned, or just above the roots below it.

    Roots may be stacked to any depth, so the traversal keeps a stack of its own instead of recursing.
    """
    arena = {root.number: root for root in roots if root.kind == "arena"}
    starts: dict[int, int] = {}
    pending = list(arena)
    while pending:
        root = arena[pending[-1]]
        below = () if root.offset is not None else root.above or ()
        unknown = [number for number in below if number not in starts]
        if unknown:
            pending += unknown
            continue
        pending.pop()
        ends = [starts[number] + align(at.size(arena[number].bytes)) for number in below]
        starts[root.number] = max(ends, default=0) if root.offset is None else root.offset
    return starts


def function_of(call: mem.Call) -> Function:
    """The lowered kernel that a call calls."""
    program = mem.program_of(call)
    assert program is not None
    assert program.parent is not None
    module = program.parent.parent
    assert isinstance(module, Module)
    function = module.symbol(call.kernel.name)
    assert isinstance(function, loop.Func | simt.Func)
    return function


class PlanRun:
    """A program being evaluated, and its memory."""

    def __init__(self, program: mem.Program, inputs: Sequence[Array], at: Evaluation) -> None:
        self.program = program
        self.at = at
        self.counters: dict[int, int] = {}
        self.memory: dict[Value, Bytes] = {}
        self.inputs: dict[int, Bytes] = {}
        self.outputs: dict[int, Bytes] = {}
        self._roots(inputs)

    def run(self) -> tuple[Array, ...]:
        self._work(self.program.body)
        self.measure()
        updates = self.program.updates
        results: list[Array] = []
        for number, type in enumerate(self.program.function_type.results):
            assert isinstance(type, TensorType)
            updated = updates.get(number)
            memory = self.outputs[number] if updated is None else self.inputs[updated]
            shape = self.at.shape(type.shape)
            count = int(np.prod(shape))  # less than the memory has, where a size is measured
            results.append(memory.view(type.dtype.numpy)[:count].reshape(shape))
        return tuple(results)

    def _roots(self, inputs: Sequence[Array]) -> None:
        roots = [op for op in self.program.body if isinstance(op, mem.Root)]
        offsets = arena_offsets(roots, self.at)
        ends = [
            offsets[root.number] + self.at.size(root.bytes)
            for root in roots
            if root.number in offsets and root.kind == "arena"
        ]
        arena = np.full(max(ends, default=0), POISON, np.uint8)
        for root in roots:
            count = self.at.size(root.bytes)
            match root.kind:
                case "arena":
                    start = offsets[root.number]
                    self.memory[root.result] = arena[start : start + count]
                case "input":
                    data = np.array(inputs[root.number], order="C").reshape(-1)
                    self.memory[root.result] = data.view(np.uint8)
                    self.inputs[root.number] = self.memory[root.result]
                case _:
                    self.memory[root.result] = np.full(count, POISON, np.uint8)
                    self.outputs[root.number] = self.memory[root.result]

    # Work.

    def _work(self, block: Block) -> None:
        for op in block:
            match op:
                case mem.Wave():
                    self.wave(op)
                case mem.Loop(body=body, counter=counter, length=length):
                    for number in range(self.at.size(length)):
                        self.counters[counter] = number
                        self._work(body)
                case mem.While():
                    self._while(op)
                case mem.Choose(condition=condition, then=then, otherwise=otherwise):
                    self._work(then if self.array(condition) else otherwise)
                case _:
                    pass

    def _while(self, loop: mem.While) -> None:
        self.counters[loop.counter] = 0
        while True:
            self._work(loop.test)
            if not self.array(loop.condition):
                return
            rounds = self.counters[loop.counter]
            if rounds == loop.limit:
                raise failure(Status.LIMIT, rounds, 0, loop.location.own.place)
            self._work(loop.body)
            self.counters[loop.counter] += 1

    def wave(self, wave: mem.Wave) -> None:
        """Run the kernels of a wave."""
        for op in wave.body:
            if isinstance(op, mem.Call):
                self._call(op)
        kernels = [op for op in wave.body if isinstance(op, kernel.Kernel)]
        computed = [self.results(op) for op in kernels]
        self._refuse_conflicts(kernels)
        for op, results in zip(kernels, computed, strict=True):
            for target, result in zip(op.targets, results, strict=True):
                self.array(target)[...] = result

    def _call(self, call: mem.Call) -> None:
        """Run a lowered kernel."""
        views = [self.memory_range(view) for view in call.views]
        self.measure()
        sizes, scratch = self.at.shape(call.sizes), self.at.size(call.scratch)
        function = function_of(call)
        # Tiles are independent, so they run in any order: here the last comes first.
        tiles = reversed(range(self.at.size(call.tiles)))
        if isinstance(function, loop.Func):
            for tile in tiles:
                run_tile(function, views, sizes, tile, scratch)
        else:
            launch = Launch(function, views, sizes, scratch)
            for tile in tiles:
                launch.run(tile)

    def measure(self) -> None:
        """Update the measured sizes from the counts in memory."""
        for op in self.program.body:
            if isinstance(op, mem.MeasuredSize):
                self.at.dims[op.dim] = int(self.array(op.view))

    def memory_range(self, view: Value) -> MemoryRange:
        """The memory of a view from its first to its last element, at the limits of measured sizes."""
        op: Op | None = view.op
        if not isinstance(op, mem.View):
            return MemoryRange(str(op), self.array(view).reshape(-1).view(np.uint8), writable=False)
        limits = {name: self.at.size(limit) for name, limit in self.program.limit_of.items()}
        at = Evaluation({**self.at.dims, **limits})
        shape, strides = at.shape(op.type.shape), at.shape(op.type.strides)
        elements = sum((n - 1) * by for n, by in zip(shape, strides, strict=True)) + 1
        size = 0 if 0 in shape else elements * op.type.dtype.bytes
        start = self._start(op)
        name = f"{view.name or 'a view'} of {op.type}"
        if not size:
            # A formula may load an element that a select then discards: it may be any number.
            return MemoryRange(name, np.full(8, POISON, np.uint8), writable=False)
        root = op.root.op
        updated = self.program.updates.values()
        writable = isinstance(root, mem.Root) and (root.kind != "input" or root.number in updated)
        return MemoryRange(name, self._memory_of(op.root)[start : start + size], writable)

    def _start(self, view: mem.View) -> int:
        """The offset of a view in its root in bytes, in the current iterations of the loops."""
        start = self.at.size(view.offset)
        for counter, step in zip(view.counters, view.steps, strict=True):
            start += self.counters[counter] * self.at.size(step)
        return start

    def results(self, op: kernel.Kernel) -> tuple[Array, ...]:
        """The results of a kernel, computed from the current contents of memory."""
        reads = op.operands[: len(op.operands) - len(op.targets)]
        results = op.evaluate(self.at, *[self.array(view) for view in reads])
        return results if isinstance(results, tuple) else (results,)

    def _refuse_conflicts(self, kernels: Sequence[kernel.Kernel]) -> None:
        for writer in kernels:
            for target in writer.targets:
                written = self.array(target)
                for other in kernels:
                    for used in other.operands:
                        if (
                            used is not target
                            and np.shares_memory(written, self.array(used))
                            and not (other is writer and self._is_in_place(writer, target, used))
                        ):
                            raise PlanConflict(
                                f"{writer.name} at {writer.location.place} writes what {other.name} at "
                                f"{other.location.place} uses"
                            )

    def _is_in_place(self, op: kernel.Kernel, target: Value, used: Value) -> bool:
        """Whether a kernel reads and writes the same elements, each in the same place."""
        overwritable = overwritable_operands(op)
        if target.type is not used.type:
            return False
        same = self.array(target).ctypes.data == self.array(used).ctypes.data
        reads = op.operands[: len(op.operands) - len(op.targets)]
        return same and all(k in overwritable for k, view in enumerate(reads) if view is used)

    def array(self, view: Value) -> Array:
        """A view as a NumPy array over its memory, in the current iterations of the loops."""
        op: Op | None = view.op
        match op:
            case mem.Constant(value=value, type=type):
                return value.array.reshape(self.at.shape(type.shape))
            case mem.Weight(symbol=symbol, type=type):
                return self.at.weights[symbol.name].reshape(self.at.shape(type.shape))
            case mem.View(root=root, type=type):
                return self._window(self._memory_of(root), type, self._start(op))
            case _:
                raise AssertionError(f"{op} is not a view")

    def _memory_of(self, root: Value) -> Bytes:
        """The bytes of a root, or of the constant or weight that a view is a part of."""
        memory = self.memory.get(root)
        return self.array(root).reshape(-1).view(np.uint8) if memory is None else memory

    def _window(self, memory: Bytes, type: ViewType, start: int) -> Array:
        shape = self.at.shape(type.shape)
        step = type.dtype.bytes
        strides = tuple([stride * step for stride in self.at.shape(type.strides)])
        if 0 in shape:
            return np.zeros(shape, type.dtype.numpy)
        return np.ndarray(shape, type.dtype.numpy, memory.data, start, strides)
