"""Calls and steps on a GPU cost the host microseconds, as the benchmark of them tells on a stub."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.cuda.stub import library

ROOT = Path(__file__).parents[3]
BUSY = 3
"""How much longer a slow and busy machine may take than was promised."""


@pytest.mark.long
def test_a_call_of_two_kernels_takes_15_microseconds_and_a_step_of_gpt_40() -> None:
    pytest.importorskip("cuda.bindings.driver")
    if library.compiler() is None:
        pytest.skip("there is no C compiler to build the stub of the driver with")
    command = [sys.executable, "-m", "benchmarks", "gpu_calls"]
    told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    spent: list[tuple[str, float]] = []
    for line in told.splitlines():
        what, _, microseconds = line.rpartition(": ")
        spent.append((what, float(microseconds)))
    assert len(spent) == 7
    calls, steps = [*spent[:3], spent[6]], spent[3:6]
    assert all("of GPT" in what for what, _ in (steps[0], steps[2]))
    assert max(each for _, each in calls) < 15 * BUSY, calls
    assert max(each for _, each in steps) < 40 * BUSY, steps
