"""Ranks of MPI train as one process does: four networks, each way of sharding, meshes and stages."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from benchmarks.contenders.turns import ranked

ROOT = Path(__file__).parents[3]
SECONDS = 1800
"""Far more than it takes, also where four ranks share a processor."""


@pytest.mark.parametrize(
    ("ranks", "which", "trainings"),
    [
        (2, "small", 24),
        (4, "share", 9),
        pytest.param(4, "small", 24, marks=pytest.mark.long),
        pytest.param(2, "examples", 15, marks=pytest.mark.long),
        pytest.param(4, "examples", 12, marks=pytest.mark.long),
    ],
)
def test_the_losses_are_those_of_one_process(ranks: int, which: str, trainings: int) -> None:
    pytest.importorskip("mpi4py")
    done = subprocess.run(
        ranked(ranks, "tests.runtime.ranks.by_mpi", which),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == trainings
