"""The pool in a real process: many callers, forks, signals, too few processors, the end of the process."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from dlc.runtime.abi import GRAIN, CallWord, Status
from tests.codegen.assembly import Call, Words, endless
from tests.codegen.engine.test_programs import chain, chained, words
from tests.suites import every

_PREAMBLE = """
import os, signal, sys, threading, time
import numpy as np
from tests.codegen.assembly import Call, endless, engine
from tests.codegen.engine.test_programs import chain, chained, words

def answer(threads):
    call = Call(chain(20), words(32))
    used = call.run(threads).used
    assert np.array_equal(call.arena, chained(20))
    return used

def tasks():
    return len(os.listdir("/proc/self/task"))
"""


def process(script: str, seconds: float = 60) -> str:
    """What a fresh Python prints; it must end by itself, with success and without complaint."""
    done = subprocess.run(
        [sys.executable, "-c", _PREAMBLE + script],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_eight_callers_at_once_all_get_the_right_answer() -> None:
    expected = chained(20)
    wrong: list[Words] = []
    used: set[int] = set()

    def work() -> None:
        call = Call(chain(20), words(32))
        for _ in range(500):
            call.arena[:] = words(32)
            used.add(call.run(3).used)
            if not np.array_equal(call.arena, expected):
                wrong.append(call.arena.copy())

    callers = [threading.Thread(target=work) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong
    assert 3 in used and used <= {1, 3}


def test_while_the_pool_is_busy_a_call_runs_on_its_caller_alone() -> None:
    assert Call(chain(1), words(32)).run(2).used == 2
    other = Call(endless(), words(1))
    busy = threading.Thread(target=other.run, args=(2,))
    busy.start()
    time.sleep(0.05)
    call = Call(chain(20), words(32))
    assert call.run(2).used == 1
    assert np.array_equal(call.arena, chained(20))
    other.cancel.value = 1
    busy.join()
    assert call.run(2).used == 2


def test_more_threads_than_processors_do_not_collapse() -> None:
    call = Call(chain(200), words(32))
    start = time.perf_counter()
    assert call.run(16).used == 16
    assert time.perf_counter() - start < 5
    assert np.array_equal(call.arena, chained(200))


@pytest.mark.parametrize("count", every(2, (400, 4000)))
def test_workers_that_are_late_for_a_wave_take_nothing_of_the_next_calls(count: int) -> None:
    """Calls in between are of other threads, and their memory is gone when they end."""
    draw = random.Random(0)
    calls = [Call(chain(waves), words(32)) for waves in (1, 2, 3)]
    for _ in range(count):
        call = draw.choice(calls)
        threads = draw.randint(2, 6)
        assert call.run(threads).used == threads


def test_workers_wake_up_after_a_long_sleep() -> None:
    call = Call(chain(20), words(32))
    for pause in (0.0, 0.0001, 0.001, 0.1):
        for _ in range(20):
            call.arena[:] = words(32)
            assert call.run(3).used == 3
            assert np.array_equal(call.arena, chained(20))
            time.sleep(pause)


def test_sleeping_workers_use_no_processor_time() -> None:
    output = process("""
answer(2)
time.sleep(0.1)
start = time.process_time()
time.sleep(0.5)
print(time.process_time() - start)
""")
    assert float(output) < 0.05


def test_workers_are_started_when_needed_and_kept() -> None:
    output = process("""
before = tasks()
for threads in (1, 3, 2, 3, 4, 1):
    answer(threads)
    print(tasks() - before, end=" ")
""")
    assert output.split() == ["0", "2", "2", "2", "3", "3"]


def test_cheap_calls_start_no_workers() -> None:
    output = process(f"""
before = tasks()
call = Call(chain(20, cost={GRAIN // 16}), words(32))
print(call.run(4).used, tasks() - before)
""")
    assert output.split() == ["1", "0"]


def test_a_forked_child_starts_its_own_workers() -> None:
    output = process("""
answer(3)
for generation in range(3):
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        assert answer(3) == 3
        os._exit(os.waitstatus_to_exitcode(status))
    assert tasks() == 1
    assert answer(3) == 3
    assert tasks() == 3
print("fine", flush=True)
""")
    assert output == "fine\n"


def test_a_child_forked_in_the_middle_of_a_call_can_call() -> None:
    output = process("""
answer(2)
call = Call(endless(), words(1))
running = threading.Thread(target=call.run, args=(2,))
running.start()
time.sleep(0.05)
for _ in range(20):
    child = os.fork()
    if child == 0:
        assert answer(3) == 3
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert answer(2) == 1
call.cancel.value = 1
running.join()
assert answer(2) == 2
print("fine")
""")
    assert output == "fine\n"


def test_signals_reach_the_main_thread_and_no_worker() -> None:
    output = process("""
# What is started in the background of a shell ignores SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
others = set(os.listdir("/proc/self/task"))
answer(4)

def blocks(task):
    with open(f"/proc/self/task/{task}/status") as lines:
        blocked = next(int(line.split()[1], 16) for line in lines if line.startswith("SigBlk"))
    return [bool(blocked >> (number - 1) & 1) for number in (signal.SIGINT, signal.SIGSEGV)]

workers = set(os.listdir("/proc/self/task")) - others
while [True, True] in map(blocks, workers):  # a thread begins with all signals blocked
    time.sleep(0.01)
print(blocks(os.getpid()), *map(blocks, workers))
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)
except KeyboardInterrupt:
    print("interrupted")
""")
    assert output == "[False, False]" + 3 * " [True, False]" + "\ninterrupted\n"


def test_a_process_ends_while_workers_spin_or_sleep() -> None:
    assert process("answer(4); print('spinning')") == "spinning\n"
    assert process("answer(4); time.sleep(0.2); print('asleep')") == "asleep\n"


def test_a_process_ends_while_another_thread_is_calling() -> None:
    script = """
answer(2)
call = Call(endless(), words(1))
threading.Thread(target=call.run, args=(2,), daemon=True).start()
time.sleep(0.1)
print("leaving")
"""
    assert process(script) == "leaving\n"


def test_without_a_pool_a_call_runs_alone() -> None:
    call = Call(chain(20), words(32))
    call.words[CallWord.POOL] = 0
    result = call.run(4)
    assert (result.status, result.used) == (Status.OK, 1)
    assert np.array_equal(call.arena, chained(20))


def test_without_room_for_threads_a_call_runs_alone() -> None:
    output = process("""
import resource
engine()
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
threading.stack_size()
block = bytearray((1 << 30) - (int(open("/proc/self/statm").read().split()[0]) << 12) - (6 << 20))
call = Call(chain(20), words(32))
used = call.run(4).used
assert np.array_equal(call.arena, chained(20))
print(used)
""")
    assert output == "1\n"
