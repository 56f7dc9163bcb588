"""What the engine itself costs: a call, waking the threads, sharing a wave, a step.

    python benchmarks/engine.py [--threads 2] [--json]

Every figure is the best of many repetitions, in nanoseconds. Kernels here do nothing.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

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


Step = list[int]


@dataclass(frozen=True, slots=True)
class Call:
    """The words of a `dlc_call`, and the program they point to."""

    words: NDArray[np.int64]
    program: NDArray[np.int64]

    @property
    def address(self) -> int:
        return self.words.ctypes.data


class Bench:
    """The engine, the two functions above, and calls of it."""

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
        """A wave of one op, by sizes' indices."""
        kernel = self.code.entries["nothing"]
        call = [Opcode.CALL, kernel, 0, ARGUMENTS, tiles, cost, 0, 0]
        return [[Opcode.WAVE, 1, 0, 0, 0, 0, 0, 0], call]

    def call(self, steps: list[Step], thread_count: int) -> Call:
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
    return load_image(image.code, hashlib.sha256(image.code).digest(), image.imports)


def best(work: Callable[[], object], repetitions: int = 40) -> float:
    """The shortest time, in nanoseconds."""
    shortest = float("inf")
    for _ in range(repetitions):
        start = time.perf_counter_ns()
        work()
        shortest = min(shortest, time.perf_counter_ns() - start)
    return shortest


def measure(thread_count: int) -> dict[str, float]:
    bench = Bench()
    small, shared = bench.wave(ONE, ONE), bench.wave(MANY, DEAR)
    crew = f"{thread_count} threads"
    return {
        "empty call": bench.native([]),
        "call of three small ops": bench.native(3 * small),
        "the same call from Python": bench.python(3 * small),
        "small op in a loop": bench.native(looped(small), calls=20) / LOOPS,
        f"call with one shared wave, {crew}": bench.native(shared, thread_count),
        "wave in as many chunks as there can be": bench.native(
            looped(shared), thread_count, calls=20
        )
        / LOOPS,
        "wave of two chunks in a loop, 2 threads": bench.native(
            looped(bench.wave(TWO, CHEAP)), 2, calls=20
        )
        / LOOPS,
    }


def looped(steps: list[Step]) -> list[Step]:
    """The steps, `LOOPS` times."""
    loop = [Opcode.LOOP, 0, ARGUMENTS, len(steps) + 2, 0, 0, 0, 0]
    return [loop, *steps, [Opcode.NEXT, 0, 0, 1, 0, 0, 0, 0]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=min(2, threads.default_threads()))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = measure(options.threads)
    if options.json:
        print(json.dumps({name: round(value, 1) for name, value in figures.items()}))
        return
    for name, value in figures.items():
        print(f"{value:9.1f} ns  {name}")


if __name__ == "__main__":
    main()
