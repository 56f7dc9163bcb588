"""`dlc.pin_threads`: workers keep to processors, whether they run already or begin later."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import dlc
from dlc.errors import UsageError
from dlc.runtime.cpu.pinning import pinning_order
from tests.suites import together

CPUS = sorted(os.sched_getaffinity(0))
PREAMBLE = """
import os
import numpy as np
import dlc
from dlc.runtime.abi import MAX_THREADS, WorkerWord
from dlc.runtime.cpu import pinning

CPUS = sorted(os.sched_getaffinity(0))
TEXT = "dlc 1\\nexport fn f(x: f32[4096, 256]) -> f32[4096] = sum(exp(x), axis=1)\\n"
x = np.ones((4096, 256), np.float32)

def model():
    return dlc.compile(text=TEXT, threads=2)

def call(found):
    found.f(x)
    while not worker():
        pass

def worker():
    rows = pinning._rows()
    return int(rows[1, WorkerWord.SYSTEM_THREAD])

def kept():
    # A worker has its number before it keeps to its processor.
    for _ in range(1000):
        os.sched_yield()
    return sorted(os.sched_getaffinity(worker()))

"""


def process(script: str) -> list[str]:
    """The lines that a fresh Python prints; the pool of this one has workers that others have started."""
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.skipif(len(CPUS) < 2, reason="one processor has nothing to choose from")
def test_a_worker_that_starts_later_keeps_to_its_processor() -> None:
    assert process(
        """
assert dlc.pin_threads([CPUS[1], CPUS[0]]) == (CPUS[1], CPUS[0])
call(model())
print(kept() == [CPUS[0]], sorted(os.sched_getaffinity(0)) == CPUS)
"""
    ) == ["True True"]


@pytest.mark.skipif(len(CPUS) < 2, reason="one processor has nothing to choose from")
def test_a_worker_that_runs_is_moved_and_let_go() -> None:
    assert process(
        """
found = model()
call(found)
print(kept() == CPUS)
dlc.pin_threads(CPUS)
print(kept() == [CPUS[1]])
before = found.f(x)
dlc.pin_threads(None)
print(kept() == CPUS, np.array_equal(before, found.f(x)))
dlc.pin_threads(CPUS[:1])
print(kept() == CPUS)
"""
    ) == ["True", "True", "True True", "True"]


@pytest.mark.skipif(len(CPUS) < 2, reason="one processor has nothing to choose from")
def test_a_forked_child_begins_without() -> None:
    assert process(
        """
dlc.pin_threads(CPUS)
found = model()
call(found)
child = os.fork()
if child == 0:
    call(found)
    os._exit(0 if kept() == CPUS else 1)
print(os.waitpid(child, 0)[1])
"""
    ) == ["0"]


def core(folder: Path, cpu: int, siblings: str, **speeds: int) -> None:
    """A processor as the system describes it."""
    files = {"topology/thread_siblings_list": siblings}
    files |= {name.replace("__", "/"): str(speed) for name, speed in speeds.items()}
    for name, text in files.items():
        path = folder / f"cpu{cpu}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def test_cores_come_before_their_second_threads_and_quick_ones_first(tmp_path: Path) -> None:
    for cpu, siblings in enumerate(("0-1", "0-1", "2,3", "2,3")):
        core(tmp_path, cpu, siblings, acpi_cppc__highest_perf=60)
    for cpu in (4, 5):
        core(tmp_path, cpu, str(cpu), acpi_cppc__highest_perf=40)
    assert pinning_order(range(6), tmp_path) == [0, 2, 4, 5, 1, 3]
    assert pinning_order([1, 3, 5], tmp_path) == [1, 3, 5]


def test_a_capacity_counts_before_a_frequency(tmp_path: Path) -> None:
    core(tmp_path, 0, "0", cpu_capacity=400, cpufreq__cpuinfo_max_freq=9)
    core(tmp_path, 1, "1", cpu_capacity=1024, cpufreq__cpuinfo_max_freq=8)
    assert pinning_order([0, 1], tmp_path) == [1, 0]


def test_processors_without_a_description_keep_their_order(tmp_path: Path) -> None:
    (tmp_path / "cpu2" / "topology").mkdir(parents=True)
    (tmp_path / "cpu2" / "topology" / "thread_siblings_list").write_bytes(b"\xff-x,,")
    assert pinning_order([3, 2, 1], tmp_path) == [1, 2, 3]


@together(
    ("cpus", "why"),
    [
        ([CPUS[0], CPUS[0]], "found one twice"),
        ([10**6], "may not use 1000000"),
        ([-1], "may not use -1"),
        ([0.5], "found"),
        (7, "found 7"),
    ],
)
def test_what_is_no_list_of_processors_is_refused(cpus: object, why: str) -> None:
    with pytest.raises(UsageError, match=r"D0902.*different processors") as caught:
        dlc.pin_threads(cpus)  # pyright: ignore[reportArgumentType]
    assert why in str(caught.value)
