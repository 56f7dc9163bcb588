"""Compiled code touches nothing outside its arrays, and does not depend on what memory held before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.cpu.guard_pages import POISON, guarded, guarded_copy
from tests.suites import every

ROOT = Path(__file__).parents[3]


def run_guarded(what: str, every: int, first: int = 0) -> str:
    """The names of what ran in a process of its own, which a guard page would have ended."""
    command = [sys.executable, "-m", "tests.runtime.cpu.guarded_runs", what, str(every), str(first)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"in {done.stdout.splitlines()[-1:]}: {done.stderr}"
    return done.stdout


@pytest.mark.parametrize("step", every(3, (81, 27, 9)))
def test_operators_touch_nothing_outside_their_arrays(step: int) -> None:
    assert "-O2" in run_guarded("operators", step, 1)


@pytest.mark.parametrize("step", every(3, (54, 9, 3)))
def test_examples_touch_nothing_outside_their_arrays(step: int) -> None:
    assert run_guarded("models", step)


@pytest.mark.parametrize("step", every(2, (11, 1)))
def test_nothing_is_read_of_an_empty_array(step: int) -> None:
    """Padding, windows and concatenations loaded an element of one, which they did not select."""
    assert run_guarded("empty", step)


@pytest.mark.long
@pytest.mark.parametrize("what", ["operators", "models"])
def test_nothing_at_all_touches_what_is_outside_its_arrays(what: str) -> None:
    assert run_guarded(what, 1)


@pytest.mark.parametrize(("after", "place"), [(True, 12), (False, -4)])
def test_a_guard_ends_a_process_that_reads_outside(after: bool, place: int) -> None:
    program = (
        "import ctypes, numpy as np; from tests.runtime.cpu.guard_pages import guarded_copy;"
        f"x = guarded_copy(np.arange(3, dtype=np.int32), after={after});"
        f"print(x.sum(), ctypes.c_int32.from_address(x.ctypes.data + {place}).value)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode < 0
    assert done.stdout == ""


def test_guarded_memory_is_poisoned_and_as_long_as_it_says() -> None:
    block = guarded(5000, after=True)
    assert block.nbytes == 5000
    assert (block == POISON).all()
    copy = guarded_copy(np.eye(3), after=False)
    np.testing.assert_array_equal(copy, np.eye(3))
