"""Calls of the engine without Python between them: programs of steps whose kernels do nothing."""

from __future__ import annotations

import ctypes
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.codegen.engine.assemble import ENTRY, engine_image
from dlc.codegen.link.image import Image, link
from dlc.codegen.llvm.target_machine import compile_object
from dlc.runtime.abi import (
    ABI_VERSION,
    GRAIN,
    HEADER_WORDS,
    STEP_WORDS,
    ArgKind,
    CallWord,
    Opcode,
    Root,
    Status,
)
from dlc.runtime.cpu import threads
from dlc.runtime.cpu.executable_memory import LoadedImage, load_engine, load_image
from dlc.target.cpu import CpuTarget

TEXT = """
define void @nothing(ptr %args, i64 %first, i64 %last, ptr %fault) { ret void }

; Calls the engine many times, without Python between the calls.
define void @repeat(ptr %enter, ptr %call, i64 %times) {
entry:
  br label %next
next:
  %n = phi i64 [ 0, %entry ], [ %n.next, %next ]
  %status = call i32 %enter(ptr %call)
  %n.next = add i64 %n, 1
  %more = icmp slt i64 %n.next, %times
  br i1 %more, label %next, label %done
done:
  ret void
}
"""
LOOPS = 1000
SIZES = np.array([0, 1, 256, 100 * GRAIN, LOOPS, 2, GRAIN], np.int64)
NO_BYTES, ONE, MANY, DEAR, TURNS, TWO, CHEAP = range(len(SIZES))
"""Indices of sizes."""
ARGUMENTS = 4
Step: TypeAlias = list[int]
"""The words of a step."""


@dataclass(frozen=True, slots=True)
class Call:
    """The words of a `dlc_call`, and the program they point to."""

    words: NDArray[np.int64]
    program: NDArray[np.int64]

    @property
    def address(self) -> int:
        return self.words.ctypes.data


class EngineCalls:
    """The engine, functions of LLVM's text, and calls of it."""

    def __init__(self) -> None:
        self.code = link({"bench": compile_object(TEXT, CpuTarget.named("x86-64"))})
        self.loaded = load(self.code)
        engine = engine_image()
        digest = hashlib.sha256(engine.code).digest()
        self.engine = load_engine(engine.code, digest, engine.imports, engine.entries[ENTRY])
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
        self.repeat = prototype(self.loaded.base + self.code.entries["repeat"])
        self.roots = np.zeros(Root.INPUTS, np.int64)

    def wave(self, tiles: int, cost: int) -> list[Step]:
        """A wave of one op; of both numbers the index in `SIZES`."""
        kernel = self.code.entries["nothing"]
        call = [Opcode.CALL, kernel, 0, ARGUMENTS, tiles, cost, 0, 0]
        return [[Opcode.WAVE, 1, 0, 0, 0, 0, 0, 0], call]

    def call(self, steps: list[Step], thread_count: int) -> Call:
        """A call of these steps by `thread_count` threads."""
        rows = [*steps, [Opcode.END] + [0] * (STEP_WORDS - 1)]
        rows += [[ArgKind.POINTER, Root.ARENA, NO_BYTES, -1, -1]] * ARGUMENTS
        rows += [[ArgKind.SIZE, 0, TURNS, -1, -1]]
        head = [len(steps) + 1, HEADER_WORDS + STEP_WORDS * (len(steps) + 1), 1]
        program = np.array([*head, *chain.from_iterable(rows)], np.int64)
        words = np.zeros(CallWord.COUNT, np.int64)
        words[CallWord.VERSION] = ABI_VERSION
        words[CallWord.THREADS] = thread_count
        words[CallWord.POOL] = threads.POOL
        words[CallWord.CODE] = self.loaded.base
        words[CallWord.PROGRAM] = program.ctypes.data
        words[CallWord.SIZES] = SIZES.ctypes.data
        words[CallWord.ROOTS] = self.roots.ctypes.data
        words[CallWord.STOP_AFTER] = -1
        return Call(words, program)

    def native(self, steps: list[Step], thread_count: int = 1, calls: int = 2000) -> float:
        """Nanoseconds for a call of these steps, made by native code."""
        call = self.call(steps, thread_count)
        found = best(lambda: self.repeat(self.engine.address, call.address, calls)) / calls
        assert call.words[CallWord.STATUS] == Status.OK
        assert call.words[CallWord.USED] == thread_count
        return found

    def python(self, steps: list[Step], calls: int = 2000) -> float:
        """Nanoseconds for a call of these steps, made by Python."""
        call, enter = self.call(steps, 1), self.engine.enter
        address = call.address

        def work() -> None:
            for _ in range(calls):
                enter(address)

        return best(work) / calls


def load(image: Image) -> LoadedImage:
    """An image in executable memory."""
    return load_image(image.code, hashlib.sha256(image.code).digest(), image.imports)


def best(work: Callable[[], object], repetitions: int = 40) -> float:
    """The shortest time, in nanoseconds."""
    shortest = float("inf")
    for _ in range(repetitions):
        start = time.perf_counter_ns()
        work()
        shortest = min(shortest, time.perf_counter_ns() - start)
    return shortest


def looped(steps: list[Step]) -> list[Step]:
    """The steps, `LOOPS` times."""
    loop = [Opcode.LOOP, 0, ARGUMENTS, len(steps) + 2, 0, 0, 0, 0]
    return [loop, *steps, [Opcode.NEXT, 0, 0, 1, 0, 0, 0, 0]]
