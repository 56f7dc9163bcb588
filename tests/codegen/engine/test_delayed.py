"""The pool under delays at every atomic operation: no order of events gives another result."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.codegen.engine.delayed_engine import MISTAKES
from tests.suites import every

ROOT = Path(__file__).parents[3]


def wrong_results(*arguments: object) -> int | None:
    """How many calls gave something else in a process of its own; None if it hung or crashed."""
    command = [sys.executable, "-m", "tests.codegen.engine.delayed_engine", *map(str, arguments)]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    return int(done.stdout) if done.returncode == 0 else None


@pytest.mark.parametrize("count", every(2, (40, 200)))
def test_delays_change_no_result(count: int) -> None:
    assert wrong_results(1, count) == 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 12))
def test_ten_patterns_of_delays_change_no_result(seed: int) -> None:
    assert wrong_results(seed, 3_000) == 0


@pytest.mark.parametrize(
    "mistake",
    # The others show only after thousands of calls.
    [m if m == "dismissal" else pytest.param(m, marks=pytest.mark.long) for m in MISTAKES],
)
def test_delays_show_a_mistake_in_the_pool(mistake: str) -> None:
    assert wrong_results(1, 40_000, mistake) != 0
