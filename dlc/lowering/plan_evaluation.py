"""Evaluating a plan with NumPy, in the arena that it lays out.

Every value is written where the plan says and read from there, so a value that is overwritten too early
shows as a wrong number. The arena starts out full of NaN. The kernels of a wave run in any order: here
they all read before any of them writes what the others might read, and a value that one kernel of a wave
writes where another one reads is a conflict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dlc.dialects import kernel, mem
from dlc.dialects.func import updates_of
from dlc.errors import CallError
from dlc.ir.core import Block, Op, Value
from dlc.ir.evaluation import Array, Evaluation
from dlc.ir.types import TensorType, ViewType
from dlc.lowering.plan_storage import reads_only_own_element
from dlc.passes.place import align

Bytes = NDArray[np.uint8]

POISON = 0xFF
"""A byte that makes every float NaN and every integer unlikely."""


class PlanConflict(Exception):
    """Two kernels of a wave use the same memory, and one of them writes it."""


def evaluate_plan(
    program: mem.Program,
    inputs: Sequence[Array],
    dims: Mapping[str, int] | None = None,
    weights: Mapping[str, Array] | None = None,
) -> tuple[Array, ...]:
    """The results of an entry point whose kernels are still in the plan.

    Raises PlanConflict where the plan would let kernels of one wave disturb each other.
    """
    return _Run(program, inputs, Evaluation(dims, weights)).run()


def arena_offsets(roots: Iterable[mem.Root], at: Evaluation) -> dict[int, int]:
    """Where each arena root lies in bytes, by its number: at its offset, or just above those below it.

    What lies above what may be a chain of any length, so what is not known yet waits on a stack.
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


class _Run:
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
        updates = updates_of(self.program)
        results: list[Array] = []
        for number, type in enumerate(self.program.function_type.results):
            assert isinstance(type, TensorType)
            updated = updates.get(number)
            memory = self.outputs[number] if updated is None else self.inputs[updated]
            shape = self.at.shape(type.shape)
            count = int(np.prod(shape))  # fewer than there is room for, where the call measures
            results.append(memory.view(type.dtype.numpy)[:count].reshape(shape))
        return tuple(results)

    def _roots(self, inputs: Sequence[Array]) -> None:
        roots = [op for op in self.program.body if isinstance(op, mem.Root)]
        places = arena_offsets(roots, self.at)
        ends = [
            places[root.number] + self.at.size(root.bytes) for root in roots if root.kind == "arena"
        ]
        arena = np.full(max(ends, default=0), POISON, np.uint8)
        for root in roots:
            count = self.at.size(root.bytes)
            match root.kind:
                case "arena":
                    start = places[root.number]
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
                    self._wave(op)
                case mem.Loop(body=body, counter=counter, length=length):
                    for number in range(self.at.size(length)):
                        self.counters[counter] = number
                        self._work(body)
                case mem.While():
                    self._while(op)
                case mem.Choose(condition=condition, then=then, otherwise=otherwise):
                    self._work(then if self._array(condition) else otherwise)
                case _:
                    pass

    def _while(self, loop: mem.While) -> None:
        self.counters[loop.counter] = 0
        while True:
            self._work(loop.test)
            if not self._array(loop.condition):
                return
            if self.counters[loop.counter] == loop.limit:
                raise CallError(
                    f"the loop did not end within its limit of {loop.limit} rounds", code="D0808"
                )
            self._work(loop.body)
            self.counters[loop.counter] += 1

    def _wave(self, wave: mem.Wave) -> None:
        kernels = [op for op in wave.body if isinstance(op, kernel.Kernel)]
        computed = [self._results(op) for op in kernels]
        self._refuse_conflicts(kernels)
        for op, results in zip(kernels, computed, strict=True):
            for target, result in zip(op.targets, results, strict=True):
                self._array(target)[...] = result

    def _results(self, op: kernel.Kernel) -> tuple[Array, ...]:
        reads = op.operands[: len(op.operands) - len(op.targets)]
        results = op.evaluate(self.at, *[self._array(view) for view in reads])
        return results if isinstance(results, tuple) else (results,)

    def _refuse_conflicts(self, kernels: Sequence[kernel.Kernel]) -> None:
        for writer in kernels:
            for target in writer.targets:
                written = self._array(target)
                for other in kernels:
                    for used in other.operands:
                        if (
                            used is not target
                            and np.shares_memory(written, self._array(used))
                            and not (other is writer and self._is_in_place(writer, target, used))
                        ):
                            raise PlanConflict(f"{writer} writes what {other} uses")

    def _is_in_place(self, op: kernel.Kernel, target: Value, used: Value) -> bool:
        """Whether a kernel writes exactly the elements that it reads, each over itself."""
        if not isinstance(op, kernel.Generic) or target.type is not used.type:
            return False
        same = self._array(target).ctypes.data == self._array(used).ctypes.data
        return same and all(
            reads_only_own_element(op, argument)
            for argument, view in zip(op.arrays, op.inputs, strict=True)
            if view is used
        )

    def _array(self, view: Value) -> Array:
        """The window on memory that a view is at this point of the loops."""
        op: Op | None = view.op
        match op:
            case mem.Constant(value=value):
                return value.array
            case mem.Weight(symbol=symbol):
                return self.at.weights[symbol.name]
            case mem.View(root=root, type=type, offset=offset, counters=counters, steps=steps):
                start = self.at.size(offset)
                for counter, step in zip(counters, steps, strict=True):
                    start += self.counters[counter] * self.at.size(step)
                return self._window(self._memory_of(root), type, start)
            case _:
                raise AssertionError(f"{op} is no view")

    def _memory_of(self, root: Value) -> Bytes:
        """The bytes of a root, or of the constant or weight that a view is a part of."""
        found = self.memory.get(root)
        return self._array(root).reshape(-1).view(np.uint8) if found is None else found

    def _window(self, memory: Bytes, type: ViewType, start: int) -> Array:
        shape = self.at.shape(type.shape)
        step = type.dtype.bytes
        strides = tuple([stride * step for stride in self.at.shape(type.strides)])
        if 0 in shape:
            return np.zeros(shape, type.dtype.numpy)
        return np.ndarray(shape, type.dtype.numpy, memory.data, start, strides)
