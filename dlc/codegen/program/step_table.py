"""The step table, the program that the engine walks, with its sizes and its certificate, from the plan.

Nothing is decided here; `dlc.runtime.abi` defines the words of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

import numpy as np

from dlc.codegen.program.alias_classes import arena_values
from dlc.codegen.program.certificate import Placed, certificate, first_byte
from dlc.codegen.program.kernels import kernel_records
from dlc.codegen.program.sizes import Entry, Sizes
from dlc.dialects import mem
from dlc.ir.core import Block, Op, Value
from dlc.ir.dims import Size
from dlc.planning.arena import ALIGNMENT
from dlc.runtime import abi
from dlc.runtime.artifact.arena_values import ArenaValues
from dlc.runtime.artifact.certificate import Certificate
from dlc.runtime.artifact.kernel_records import KernelRecord
from dlc.runtime.artifact.manifest import Op as OpRecord

NONE = -1

COMBINED = abi.MAX_COUNTERS - 1
"""The first counter for offsets in nests of loops; further ones count down, loops count up from 0."""


@dataclass(frozen=True, slots=True)
class CompiledEntry:
    """One entry point for the engine. `arena`, `scratch` and `gpu_scratch` are texts of sizes in bytes."""

    words: bytes
    sizes: tuple[str, ...]
    arena: str
    scratch: str
    gpu_scratch: str
    ops: tuple[OpRecord, ...]
    certificate: Certificate
    values: ArenaValues
    kernels: tuple[KernelRecord, ...]
    checks: int = -1
    """The op id of the last check of the call's indices before its work."""


def compile_program(
    program: mem.Program,
    entries: Mapping[str, int],
    weights: Mapping[str, RootOffset],
    results: Sequence[RootOffset] = (),
) -> CompiledEntry:
    """The table for one program.

    `entries` has the offset of each kernel in the image, `weights` the location of each weight symbol.
    Results are outputs of the call unless `results` has their locations.
    """
    return _Writer(program, entries, weights, results).write()


@dataclass(frozen=True, slots=True)
class RootOffset:
    """A location in memory: the byte at `offset` of a root of the call."""

    root: abi.Root
    offset: int


@dataclass(frozen=True, slots=True)
class _Address:
    """The address of a view: a root of the call, an offset into it, and its steps in bytes by loop."""

    root: int
    offset: Entry
    steps: tuple[tuple[int, Entry], ...] = ()


_Argument: TypeAlias = tuple[abi.ArgKind, int, Entry, int, int]
"""Kind, root, offset, counter and step of an argument."""


@dataclass(slots=True)
class _Writer:
    program: mem.Program
    entries: Mapping[str, int]
    weights: Mapping[str, RootOffset]
    results: Sequence[RootOffset]
    sizes: Sizes = field(default_factory=Sizes)
    steps: list[list[int]] = field(default_factory=list[list[int]])
    arguments: list[list[int]] = field(default_factory=list[list[int]])
    ops: list[OpRecord] = field(default_factory=list[OpRecord])
    addresses: dict[Value, _Address] = field(default_factory=dict[Value, _Address])
    scratch: list[Entry] = field(default_factory=list[Entry])
    gpu_scratch: list[Entry] = field(default_factory=list[Entry])
    """The scratch of GPU kernels, which all threads of a launch share."""
    measured: dict[str, Value] = field(default_factory=dict[str, Value])
    """The view that each measured dim is in."""
    calls: dict[mem.Call, int] = field(default_factory=dict[mem.Call, int])
    """The op id of each call."""
    combined: int = 0
    checks: int = -1

    def write(self) -> CompiledEntry:
        placed = self._roots()
        arena = self.sizes.maximum([self.sizes.sum(each.offset, each.bytes) for each in placed])
        evidence = certificate(self.program, placed, arena, self.sizes)
        for op in self.program.body:
            self._place(op)
        self._work(self.program.body)
        self._step(abi.Opcode.END)
        scratch = self._patch_scratch()
        records = kernel_records(self.program, self.calls, len(self.ops))
        return CompiledEntry(
            self._words(),
            tuple(self.sizes.texts),
            str(arena),
            str(scratch),
            str(self.sizes.maximum(self.gpu_scratch)),
            tuple(self.ops),
            evidence,
            arena_values(self.program, placed, self.calls, records),
            records,
            self.checks,
        )

    # Memory.

    def _roots(self) -> list[Placed]:
        """Assign addresses to all roots; the arena roots with their offsets."""
        ends: dict[int, Entry] = {}
        placed: list[Placed] = []
        roots = [op for op in self.program.body if isinstance(op, mem.Root)]
        for root in _lowest_first([root for root in roots if root.kind == "arena"]):
            offset = self._offset(root, ends)
            self.addresses[root.result] = _Address(abi.Root.ARENA, offset)
            size = self.sizes.aligned(root.bytes, ALIGNMENT)
            ends[root.number] = self.sizes.sum(offset, size)
            placed.append(Placed(root, size, offset))
        inputs = sum(root.kind == "input" for root in roots)
        zero = self.sizes.number(0)
        for root in roots:
            if root.kind == "output" and self.results:
                self.addresses[root.result] = self._fixed(self.results[root.number])
            elif root.kind in ("input", "output"):
                first = abi.Root.INPUTS + (inputs if root.kind == "output" else 0)
                self.addresses[root.result] = _Address(first + root.number, zero)
        return placed

    def _fixed(self, location: RootOffset) -> _Address:
        return _Address(location.root, self.sizes.number(location.offset))

    def _offset(self, root: mem.Root, ends: Mapping[int, Entry]) -> Entry:
        if root.offset is not None:
            return self.sizes.number(root.offset)
        return self.sizes.maximum([ends[other] for other in root.above or ()])

    def _place(self, op: Op) -> None:
        """Note the address of a view, constant or weight."""
        match op:
            case mem.View(root=root):
                base = self.addresses[root]
                first = self.sizes.number(first_byte(op, self.program))
                offset = self.sizes.sum(base.offset, first)
                steps = tuple(
                    (counter, self.sizes.number(step))
                    for counter, step in zip(op.counters, op.steps, strict=True)
                )
                self.addresses[op.result] = _Address(base.root, offset, steps)
            case mem.Constant(offset=offset):
                self.addresses[op.result] = self._fixed(RootOffset(abi.Root.CONSTANTS, offset))
            case mem.Weight(symbol=symbol):
                if symbol.name not in self.weights:
                    raise op.fail(f"{symbol} is not a stored weight, and nothing derives it")
                self.addresses[op.result] = self._fixed(self.weights[symbol.name])
            case mem.MeasuredSize(view=view, dim=dim):
                self.measured[dim] = view
            case _:
                pass

    # Steps.

    def _step(self, opcode: abi.Opcode, *fields: int) -> int:
        """Add a step; returns its number."""
        padding = [0] * (abi.STEP_WORDS - 1 - len(fields))
        self.steps.append([opcode, *fields, *padding])
        return len(self.steps) - 1

    def _work(self, block: Block) -> None:
        for op in block:
            match op:
                case mem.Wave():
                    self._wave(op)
                case mem.Loop():
                    self._loop(op)
                case mem.While():
                    self._while(op)
                case mem.Choose():
                    self._choose(op)
                case _:
                    pass

    def _wave(self, wave: mem.Wave) -> None:
        calls = [op for op in wave.body if isinstance(op, mem.Call)]
        self.combined = 0
        if mem.CHECKED in wave.attributes:
            self.checks = len(self.ops) - 1
        arguments = [self._arguments(call) for call in calls]
        self._step(abi.Opcode.WAVE, len(calls), int(wave.serial), int(wave.commits))
        for call, call_arguments in zip(calls, arguments, strict=True):
            self._call(call, call_arguments)

    def _arguments(self, call: mem.Call) -> list[_Argument]:
        """The views and sizes of a call."""
        views: list[_Argument] = [self._pointer(view) for view in call.views]
        return [*views, *[self._size(size) for size in call.sizes]]

    def _pointer(self, view: Value) -> _Argument:
        address, counter, step = self._moving(view)
        return abi.ArgKind.POINTER, address.root, address.offset, counter, step

    def _size(self, size: Size) -> _Argument:
        """A size, which is computed before the call, or a measured dim, which is loaded in it."""
        view = self.measured.get(str(size))
        if view is None:
            return abi.ArgKind.SIZE, 0, self.sizes.number(size), NONE, NONE
        _, root, offset, counter, step = self._pointer(view)
        return abi.ArgKind.LOADED, root, offset, counter, step

    def _moving(self, view: Value) -> tuple[_Address, int, int]:
        """The address of a view, with the counter that moves it and the size index of its step.

        A view that moves with several loops needs a counter of its own, which is computed here.
        """
        address = self.addresses[view]
        if not address.steps:
            return address, NONE, NONE
        (counter, step), *rest = address.steps
        if rest:
            combined = COMBINED - self.combined
            self.combined += 1
            for other, by in rest:
                self._step(abi.Opcode.COMBINE, combined, counter, step.index, other, by.index)
                counter, step = combined, self.sizes.number(1)
        return address, counter, step.index

    def _loop(self, loop: mem.Loop) -> None:
        self._argument(self._size(loop.length))
        length = len(self.arguments) - 1
        start = self._step(abi.Opcode.LOOP, loop.counter, length, NONE)
        self._work(loop.body)
        self._step(abi.Opcode.NEXT, loop.counter, 0, start + 1)
        self.steps[start][abi.StepWord.C] = len(self.steps)

    def _while(self, loop: mem.While) -> None:
        self._step(abi.Opcode.ZERO, loop.counter)
        start = len(self.steps)
        self._work(loop.test)
        branch = self._branch(loop.condition)
        if loop.limit is not None:
            limit = self.sizes.number(loop.limit).index
            self._step(abi.Opcode.LIMIT, loop.counter, limit, len(self.ops))
            self.ops.append(self._record_of(loop, "while"))
        self._work(loop.body)
        self._step(abi.Opcode.JUMP, start)
        self.steps[branch][abi.StepWord.B] = len(self.steps)

    def _choose(self, choice: mem.Choose) -> None:
        branch = self._branch(choice.condition)
        self._work(choice.then)
        end = self._step(abi.Opcode.JUMP, NONE)
        self.steps[branch][abi.StepWord.B] = len(self.steps)
        self._work(choice.otherwise)
        self.steps[end][abi.StepWord.A] = len(self.steps)

    def _branch(self, condition: Value) -> int:
        """A branch to the next step if the condition is true; its other target is patched later."""
        number = len(self.arguments)
        self._argument(self._pointer(condition))
        return self._step(abi.Opcode.BRANCH, number, NONE, len(self.steps) + 1)

    def _call(self, call: mem.Call, arguments: Sequence[_Argument]) -> None:
        first = len(self.arguments)
        for argument in arguments:
            self._argument(argument)
        entry = self.entries[call.kernel.name]
        if call.scratch != 0:
            self._scratch(call.scratch, on_gpu=entry >= abi.ON_GPU)
        self._step(
            abi.Opcode.CALL,
            entry,
            first,
            len(self.arguments) - first,
            self.sizes.number(call.tiles).index,
            self.sizes.number(call.cost).index,
            len(self.ops),
            len(call.views) - call.writes,
        )
        self.calls[call] = len(self.ops)
        self.ops.append(self._record(call))

    def _scratch(self, size: Size, *, on_gpu: bool) -> None:
        """The last argument of a call that asks for scratch."""
        sizes = self.gpu_scratch if on_gpu else self.scratch
        sizes.append(self.sizes.aligned(size, ALIGNMENT))
        share = (NONE, NONE) if on_gpu else (abi.THREAD, SCRATCH_STRIDE)
        self.arguments.append([abi.ArgKind.POINTER, abi.Root.SCRATCH, SCRATCH_OFFSET, *share])

    def _argument(self, argument: _Argument) -> None:
        kind, root, offset, counter, step = argument
        self.arguments.append([kind, root, offset.index, counter, step])

    def _record(self, call: mem.Call) -> OpRecord:
        name = next((view.name for view in reversed(call.views) if view.name), call.kernel.name)
        return self._record_of(call, name, call.kernel.name)

    def _record_of(self, op: Op, name: str, kernel: str = "") -> OpRecord:
        place = op.location.own.place
        if place is None:
            return OpRecord(name, kernel=kernel)
        return OpRecord(name, str(place), kernel, end=place.end)

    def _patch_scratch(self) -> Entry:
        """Set every thread's scratch to the largest that a kernel asks for; returns that."""
        largest = self.sizes.maximum(self.scratch)
        zero = self.sizes.number(0)
        for argument in self.arguments:
            if argument[abi.ArgWord.OFFSET] == SCRATCH_OFFSET:
                argument[abi.ArgWord.OFFSET] = zero.index
            if argument[abi.ArgWord.STRIDE] == SCRATCH_STRIDE:
                argument[abi.ArgWord.STRIDE] = largest.index
        return largest

    def _words(self) -> bytes:
        table = abi.HEADER_WORDS + abi.STEP_WORDS * len(self.steps)
        head = [len(self.steps), table, 1]
        return np.array([*head, *chain(*self.steps, *self.arguments)], "<i8").tobytes()


SCRATCH_OFFSET = -2
SCRATCH_STRIDE = -2


def _lowest_first(roots: list[mem.Root]) -> list[mem.Root]:
    """Roots in a topological order: each after those that it lies above in the arena."""
    by_number = {root.number: root for root in roots}
    done: dict[int, mem.Root] = {}
    pending = list(reversed(roots))
    while pending:
        root = pending[-1]
        missing = [below for below in root.above or () if below not in done]
        if missing:
            pending.extend(by_number[below] for below in missing)
            continue
        done[root.number] = pending.pop()
    return list(done.values())
