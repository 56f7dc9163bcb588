"""The engine with random delays: `python -m tests.codegen.engine.delayed_engine SEED CALLS [MISTAKE]`.

Before and behind each atomic operation and each chunk a thread spins for a while, at random, so that orders
of events that are rare become usual. Prints how many results were wrong. A process has one engine, so this
is one of its own; a MISTAKE is planted to see that it would be found.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence

import numpy as np

from dlc.codegen.engine import assemble
from tests.codegen.assembly import Call, Program
from tests.codegen.engine.test_programs import chain, chained, words

LONGEST = 20_000
"""Cycles of a delay: longer than a wave, shorter than a time slice."""
PATIENCE = 0.5
"""Seconds without a call that ends, after which a process with a mistake is taken to hang."""

_DELAY = f"""
; ---- delays

; Spins, one time of four, for a time that the clock's low bits and the place choose.
define internal void @delay(i64 %place) noinline {{
entry:
  %now = call i64 @cycles()
  %mixed = add i64 %now, %place
  %scrambled = mul i64 %mixed, -7046029254386353131
  %number = lshr i64 %scrambled, 33
  %choice = and i64 %number, 3
  %is_chosen = icmp eq i64 %choice, 0
  br i1 %is_chosen, label %begin, label %done

begin:
  %length = urem i64 %number, {LONGEST}
  %end = add i64 %now, %length
  br label %spin

spin:
  call void @relax()
  %later = call i64 @cycles()
  %is_over = icmp uge i64 %later, %end
  br i1 %is_over, label %done, label %spin

done:
  ret void
}}
"""

MISTAKES: Mapping[str, tuple[str, str]] = {
    # A queue is read and written, and not compared in between.
    "swap": (
        "  %swapped = cmpxchg ptr %place, i64 %found, i64 %rest acq_rel monotonic\n"
        "  %is_mine = extractvalue { i64, i1 } %swapped, 1\n"
        "  br i1 %is_mine, label %taken, label %try\n",
        "  store atomic i64 %rest, ptr %place release, align 8\n  br label %taken\n",
    ),
    # Whoever comes late to a wave takes chunks of the next one.
    "late": ("%is_over = icmp sgt i64 %found_wave, %wave", "%is_over = icmp sgt i64 0, 1"),
    # The caller goes on while others compute.
    "wait": ("  call void @wait_for(ptr %done, i64 %chunks)\n", ""),
    # The pool is given back before the caller has done its part.
    "dismissal": (
        "  call void @run(ptr %call, ptr %pool, i64 %threads)\n  call void @dismiss(ptr %pool)\n",
        "  call void @dismiss(ptr %pool)\n  call void @run(ptr %call, ptr %pool, i64 %threads)\n",
    ),
}
"""What is replaced by what, once, in the engine's text."""


def delayed(text: str, seed: int) -> str:
    """The engine's text with a delay before and behind each atomic operation and each chunk."""
    lines: list[str] = []
    for number, line in enumerate(text.split("\n")):
        code = line.partition(";")[0].split()
        is_atomic = "atomic" in code or "cmpxchg" in code or "atomicrmw" in code
        is_chunk = code[:2] == ["call", "void"] and code[2].startswith("@compute(")
        delay = f"  call void @delay(i64 {seed * 1_000_003 + number})"
        lines += [delay, line, delay] if is_atomic or is_chunk else [line]
    return "\n".join(lines) + _DELAY


def failing() -> Program:
    """Many tiles of two calls that fail: the lowest place is reported."""
    program = Program()
    program.wave(
        program.call("fail", program.number(30), program.number(100), tiles=64, op=2),
        program.call("fail", program.number(3), program.number(101), tiles=64, op=3),
    )
    return program


def reported(call: Call, threads: int) -> tuple[int, ...]:
    """What is said of a call that fails."""
    result = call.run(threads)
    return (result.status, result.op, result.tile, result.a, result.b)


def end_without_progress(ended: Sequence[int]) -> None:
    """End the process when no call ends any more: nothing else ends threads that spin in machine code."""
    seen = -1
    while len(ended) != seen:
        seen = len(ended)
        time.sleep(PATIENCE)
    os._exit(1)


def wrong_results(calls: int, *, has_mistake: bool) -> int:
    """Calls by four threads at once, each on up to four threads, that gave something else."""
    expected = chained(12)
    wrong: list[int] = []
    ended: list[int] = []

    def work(number: int) -> None:
        call, broken = Call(chain(12), words(32)), Call(failing(), words(1))
        for _ in range(calls):
            if has_mistake and wrong:
                break
            call.arena[:] = words(32)
            call.run(2 + number % 3)
            found = reported(broken, 2 + number % 3)
            ended.append(number)
            if not np.array_equal(call.arena, expected) or found != alone:
                wrong.append(number)

    alone = reported(Call(failing(), words(1)), 1)
    if has_mistake:
        threading.Thread(target=end_without_progress, args=(ended,), daemon=True).start()
    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return len(wrong)


def main(seed: int, calls: int, mistake: str | None) -> None:
    text = assemble.engine_text()
    if mistake is not None:
        old, new = MISTAKES[mistake]
        assert text.count(old) == 1, mistake
        text = text.replace(old, new)
    changed = delayed(text, seed)
    assemble.engine_text = lambda: changed
    print(wrong_results(calls, has_mistake=mistake is not None))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *(sys.argv[3:] or [None]))
