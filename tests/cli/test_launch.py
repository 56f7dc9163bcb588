"""The process that starts ranks: what it makes of their end."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from dlc.cli.launch import _Run  # pyright: ignore[reportPrivateUsage] - what watches one start
from dlc.cli.ranks import FACTS
from dlc.runtime.ranks.lost_ranks import Watcher
from dlc.runtime.ranks.pulse import ENDED, OwnPulse


@pytest.mark.parametrize(("code", "expected"), [(137, 0), (0, 0), (3, 3), (130, 130)])
def test_a_rank_that_is_killed_after_its_work_has_done_its_work(
    tmp_path: Path, code: int, expected: int
) -> None:
    for rank in range(2):
        OwnPulse(tmp_path, rank).end(ENDED)
    run = _Run(tmp_path, 2, 20.0)
    process = subprocess.Popen(["sh", "-c", f"exit {code}"])
    assert run.watch(process, Watcher(tmp_path, 2), []) == expected
    assert run.lost is None


def test_a_rank_that_is_killed_before_its_end_is_lost(tmp_path: Path) -> None:
    pulses = [OwnPulse(tmp_path, rank) for rank in range(2)]
    pulses[0].end(ENDED)
    (tmp_path / "exit1").write_text("137")
    run = _Run(tmp_path, 2, 20.0)
    process = subprocess.Popen(["sh", "-c", "exit 137"])
    assert run.watch(process, Watcher(tmp_path, 2), []) == 1
    assert run.lost is not None
    assert run.lost.rank == 1


def test_after_a_loss_as_many_ranks_go_on_as_the_training_says(tmp_path: Path) -> None:
    run, checkpoint = _Run(tmp_path, 4, 20.0), tmp_path / "a.safetensors"
    assert run.rest() == (4, [])  # before the training
    (tmp_path / FACTS).write_text(
        json.dumps({"ranks": 3, "checkpoint": str(checkpoint), "before": None})
    )
    assert run.rest() == (3, [])
    checkpoint.touch()
    assert run.rest() == (3, ["--resume", str(checkpoint)])
