"""Kernels and programs written by hand, and calls of them through the real engine."""

from __future__ import annotations

import ctypes
import hashlib
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from dlc.codegen.engine.assemble import ENTRY, engine_image
from dlc.codegen.link.image import Image, link
from dlc.codegen.llvm.target_machine import compile_object
from dlc.runtime.abi import (
    ABI_VERSION,
    ARG_WORDS,
    HEADER_WORDS,
    STEP_WORDS,
    ArgKind,
    CallWord,
    Opcode,
    Root,
    Status,
    TraceWord,
)
from dlc.runtime.cpu import threads
from dlc.runtime.cpu.executable_memory import Engine, LoadedImage, load_engine, load_image
from dlc.target.cpu import CpuTarget

Words = NDArray[np.int64]
SHARED_COST = 1_000_000
"""A tile so dear that every thread gets its part of any wave."""


def kernel(name: str, arguments: Sequence[str], body: str) -> str:
    """A kernel that runs `body` for each tile `%t`; `arguments` become values of these names (i64)."""
    loads = "".join(
        f"  %{argument}.at = getelementptr i64, ptr %args, i64 {number}\n"
        f"  %{argument} = load i64, ptr %{argument}.at\n"
        f"  %{argument}.p = inttoptr i64 %{argument} to ptr\n"
        for number, argument in enumerate(arguments)
    )
    return f"""
define void @{name}(ptr %args, i64 %first, i64 %last, ptr %fault) {{
entry:
{loads}
  br label %next
next:
  %t = phi i64 [ %first, %entry ], [ %t.next, %done ]
  %t.next = add i64 %t, 1
  %more = icmp slt i64 %t, %last
  br i1 %more, label %body, label %end
body:
{body}
  br label %done
done:
  br label %next
end:
  ret void
}}
"""


KERNELS = {
    # x[t] = 3 * x[t] + c
    "step": kernel(
        "step",
        ["x", "c"],
        """
  %place = getelementptr i64, ptr %x.p, i64 %t
  %old = load i64, ptr %place
  %three = mul i64 %old, 3
  %new = add i64 %three, %c
  store i64 %new, ptr %place""",
    ),
    # y[t] = sum of x[0..n): every tile needs all of the wave before
    "total": kernel(
        "total",
        ["y", "x", "n"],
        """
  br label %add
add:
  %i = phi i64 [ 0, %body ], [ %i.next, %add ]
  %sum = phi i64 [ 0, %body ], [ %sum.next, %add ]
  %from = getelementptr i64, ptr %x.p, i64 %i
  %value = load i64, ptr %from
  %sum.next = add i64 %sum, %value
  %i.next = add i64 %i, 1
  %again = icmp slt i64 %i.next, %n
  br i1 %again, label %add, label %store
store:
  %to = getelementptr i64, ptr %y.p, i64 %t
  %mixed = add i64 %sum.next, %t
  store i64 %mixed, ptr %to""",
    ),
    # x[t] += 1, atomically: counts how often a tile runs
    "count": kernel(
        "count",
        ["x"],
        """
  %place = getelementptr i64, ptr %x.p, i64 %t
  %old = atomicrmw add ptr %place, i64 1 monotonic""",
    ),
    # x[x[0] += 1] = t
    "note": kernel(
        "note",
        ["x"],
        """
  %before = atomicrmw add ptr %x.p, i64 1 monotonic
  %number = add i64 %before, 1
  %place = getelementptr i64, ptr %x.p, i64 %number
  store i64 %t, ptr %place""",
    ),
    # *to = value
    "store": kernel("store", ["to", "value"], "  store i64 %value, ptr %to.p"),
    # *to = (*x < limit)
    "less": kernel(
        "less",
        ["to", "x", "limit"],
        """
  %value = load i64, ptr %x.p
  %is = icmp slt i64 %value, %limit
  %byte = zext i1 %is to i8
  store i8 %byte, ptr %to.p""",
    ),
    # fails at every tile t >= from, saying (t, n)
    "fail": kernel(
        "fail",
        ["from", "n"],
        f"""
  %bad = icmp sge i64 %t, %from
  br i1 %bad, label %fails, label %fine
fails:
  store i64 {Status.INDEX}, ptr %fault
  %fault.1 = getelementptr i64, ptr %fault, i64 1
  store i64 %t, ptr %fault.1
  %fault.2 = getelementptr i64, ptr %fault, i64 2
  store i64 %t, ptr %fault.2
  %fault.3 = getelementptr i64, ptr %fault, i64 3
  store i64 %n, ptr %fault.3
  ret void
fine:""",
    ),
    # x[t] = quotient of floats, for the rounding mode and denormals
    "divide": kernel(
        "divide",
        ["x", "bits"],
        """
  %numerator = bitcast i64 %bits to double
  %quotient = fdiv double %numerator, 4.0
  %place = getelementptr double, ptr %x.p, i64 %t
  store double %quotient, ptr %place""",
    ),
    # x[t] = MXCSR without the sticky flags
    "float_state": "declare void @llvm.x86.sse.stmxcsr(ptr)\n"
    + kernel(
        "float_state",
        ["x"],
        """
  %place = getelementptr i64, ptr %x.p, i64 %t
  call void @llvm.x86.sse.stmxcsr(ptr %place)""",
    ),
    # spins for about so many cycles
    "spin": "declare i64 @llvm.readcyclecounter()\n"
    + kernel(
        "spin",
        ["cycles"],
        """
  %start = call i64 @llvm.readcyclecounter()
  br label %look
look:
  %now = call i64 @llvm.readcyclecounter()
  %passed = sub i64 %now, %start
  %early = icmp ult i64 %passed, %cycles
  br i1 %early, label %look, label %over
over:""",
    ),
    # own += 1, then waits until n tiles have come here: n threads have one each; it gives up after long
    "meet": kernel(
        "meet",
        ["come", "n", "own"],
        f"""
  %before = load i64, ptr %own.p
  %after = add i64 %before, 1
  store i64 %after, ptr %own.p
  %earlier = atomicrmw add ptr %come.p, i64 1 seq_cst
  %start = call i64 @llvm.readcyclecounter()
  br label %look
look:
  %there = load atomic i64, ptr %come.p seq_cst, align 8
  %all = icmp sge i64 %there, %n
  br i1 %all, label %met, label %wait
wait:
  %ignored = call i32 @sched_yield()
  %now = call i64 @llvm.readcyclecounter()
  %passed = sub i64 %now, %start
  %late = icmp ugt i64 %passed, {100 << 30}
  br i1 %late, label %fails, label %look
fails:
  store i64 {Status.LIMIT}, ptr %fault
  ret void
met:""",
    )
    + "declare i64 @llvm.readcyclecounter()\ndeclare i32 @sched_yield()\n",
    "nothing": "define void @nothing(ptr %args, i64 %first, i64 %last, ptr %fault) { ret void }",
}


def digest(code: bytes) -> bytes:
    return hashlib.sha256(code).digest()


_loading = (
    threading.Lock()
)  # several threads may ask first; a second copy must not replace the first


def kernels() -> tuple[Image, LoadedImage]:
    """All of `KERNELS`, linked and loaded."""
    with _loading:
        return _kernels()


@cache
def _kernels() -> tuple[Image, LoadedImage]:
    target = CpuTarget.named("x86-64")
    image = link({name: compile_object(text, target) for name, text in KERNELS.items()})
    return image, load_image(image.code, digest(image.code), image.imports)


@cache
def engine() -> Engine:
    image = engine_image()
    return load_engine(image.code, digest(image.code), image.imports, image.entries[ENTRY])


_FLOAT_STATE = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define i32 @exchange(i32 %new) {
  %before = alloca i32
  %after = alloca i32
  store i32 %new, ptr %after
  call void @llvm.x86.sse.stmxcsr(ptr %before)
  call void @llvm.x86.sse.ldmxcsr(ptr %after)
  %old = load i32, ptr %before
  ret i32 %old
}
"""
FLUSHING = 0x9FC0
"""MXCSR with denormals flushed to zero, on input and output."""


@contextmanager
def flushed_denormals() -> Generator[None]:
    """This thread flushes denormals inside, as some libraries make it do; checks that it still does."""
    image = link({"exchange": compile_object(_FLOAT_STATE, CpuTarget.named("x86-64"))})
    loaded = load_image(image.code, digest(image.code), image.imports)
    exchange = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32)(loaded.base)
    before = exchange(FLUSHING)
    try:
        yield
    finally:
        after = exchange(before)
    assert after & FLUSHING == FLUSHING


Argument = tuple[int, int, int, int, int]


@dataclass
class Program:
    """A program under construction; steps that go forward name a label that comes later."""

    sizes: list[int] = field(default_factory=list[int])
    arguments: list[Argument] = field(default_factory=list[Argument])
    steps: list[list[int]] = field(default_factory=list[list[int]])

    def size(self, value: int) -> int:
        if value not in self.sizes:
            self.sizes.append(value)
        return self.sizes.index(value)

    def number(self, value: int) -> Argument:
        return (ArgKind.SIZE, 0, self.size(value), -1, 0)

    def pointer(
        self, root: int = Root.ARENA, offset: int = 0, counter: int = -1, stride: int = 0
    ) -> Argument:
        return (ArgKind.POINTER, root, self.size(offset), counter, self.size(stride))

    def loaded(self, offset: int, counter: int = -1, stride: int = 0) -> Argument:
        return (ArgKind.LOADED, Root.ARENA, self.size(offset), counter, self.size(stride))

    def counter(self, number: int) -> Argument:
        return (ArgKind.COUNTER, 0, 0, number, 0)

    def argument(self, *values: Argument) -> int:
        self.arguments += values
        return len(self.arguments) - len(values)

    @property
    def here(self) -> int:
        return len(self.steps)

    def step(self, opcode: Opcode, *fields: int) -> int:
        words = [int(opcode), *fields]
        self.steps.append(words + [0] * (STEP_WORDS - len(words)))
        return self.here - 1

    def call(
        self, name: str, *values: Argument, tiles: int = 1, cost: int = SHARED_COST, op: int = 0
    ) -> list[int]:
        """A step that belongs into `wave`."""
        offset = kernels()[0].entries[name]
        first = self.argument(*values)
        return [
            *(Opcode.CALL, offset, first, len(values)),
            *(self.size(tiles), self.size(cost), op, 0),
        ]

    def wave(self, *calls: list[int], serial: bool = False) -> int:
        index = self.step(Opcode.WAVE, len(calls), serial)
        self.steps += calls
        return index

    def words(self, shared: int = 1) -> Words:
        if not self.steps or self.steps[-1][0] != Opcode.END:
            self.step(Opcode.END)
        head = [len(self.steps), HEADER_WORDS + STEP_WORDS * len(self.steps), shared]
        rows = [*self.steps, *self.arguments]
        assert all(len(row) in (STEP_WORDS, ARG_WORDS) for row in rows)
        return np.array([*head, *(word for row in rows for word in row)], np.int64)


@dataclass(frozen=True)
class Result:
    status: Status
    op: int
    tile: int
    a: int
    b: int
    used: int
    trace: Words


class Call:
    """One `dlc_call` over an arena of 64-bit words; `run` may be repeated."""

    def __init__(self, program: Program, arena: Words, scratch: Words | None = None) -> None:
        self.table = program.words()
        self.sizes = np.array(program.sizes or [0], np.int64)
        self.arena = arena
        self.scratch = np.zeros(1, np.int64) if scratch is None else scratch
        self.cancel = ctypes.c_int32(0)
        self.roots = np.zeros(Root.INPUTS, np.int64)
        self.roots[Root.ARENA] = arena.ctypes.data
        self.roots[Root.SCRATCH] = self.scratch.ctypes.data
        self.words = np.zeros(CallWord.COUNT, np.int64)
        self.words[CallWord.VERSION] = ABI_VERSION
        self.words[CallWord.POOL] = threads.POOL
        self.words[CallWord.CODE] = kernels()[1].base
        self.words[CallWord.PROGRAM] = self.table.ctypes.data
        self.words[CallWord.SIZES] = self.sizes.ctypes.data
        self.words[CallWord.ROOTS] = self.roots.ctypes.data
        self.words[CallWord.CANCEL] = ctypes.addressof(self.cancel)

    def run(self, thread_count: int = 1, stop_after: int = -1, trace: int = 0) -> Result:
        records = np.zeros((trace, TraceWord.COUNT), np.int64)
        self.words[CallWord.THREADS] = thread_count
        self.words[CallWord.STOP_AFTER] = stop_after
        self.words[CallWord.TRACE] = records.ctypes.data if trace else 0
        self.words[CallWord.TRACE_CAPACITY] = trace
        code = engine().enter(self.words.ctypes.data)
        said = {word: int(self.words[word]) for word in CallWord if word != CallWord.COUNT}
        assert code == said[CallWord.STATUS]
        return Result(
            status=Status(code),
            op=said[CallWord.STATUS_STEP],
            tile=said[CallWord.STATUS_TILE],
            a=said[CallWord.STATUS_A],
            b=said[CallWord.STATUS_B],
            used=said[CallWord.USED],
            trace=records[: said[CallWord.TRACE_COUNT]],
        )


def run(program: Program, arena: Words, thread_count: int = 1) -> Result:
    return Call(program, arena).run(thread_count)


def endless() -> Program:
    """A program that runs until it is cancelled, in waves worth several threads."""
    program = Program()
    loop = program.step(Opcode.LOOP, 0, program.argument(program.number(1 << 60)))
    program.wave(program.call("spin", program.number(1000), tiles=8))
    program.step(Opcode.NEXT, 0, 0, loop + 1)
    return program
