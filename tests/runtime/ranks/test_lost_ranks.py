"""Ranks that watch each other: who is lost, and who only takes long."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlc.runtime.ranks.lost_ranks import Watcher
from dlc.runtime.ranks.pulse import ENDED, FAILED, OwnPulse, exit_path


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Ranks:
    """Two ranks in one process, whose beats a test counts."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.pulses = [OwnPulse(folder, rank) for rank in range(2)]
        self.watcher = Watcher(folder, 2, clock=self.clock)
        for pulse in self.pulses:
            pulse.begin(0)

    def after(self, seconds: int, *, silent: tuple[int, ...] = ()) -> str | None:
        """What the watcher finds within so many seconds; only these ranks do not beat."""
        for _ in range(seconds):
            self.clock.now += 1
            for rank, pulse in enumerate(self.pulses):
                if rank not in silent:
                    pulse.count_beat()
            lost = self.watcher.look()
            if lost is not None:
                return str(lost)
        return None


@pytest.fixture
def ranks(tmp_path: Path) -> Ranks:
    return Ranks(tmp_path)


def test_a_long_step_is_no_loss(ranks: Ranks) -> None:
    with ranks.pulses[0].call(), ranks.pulses[1].call():
        assert ranks.after(60) is None


def test_data_that_take_long_on_all_ranks_are_no_loss(ranks: Ranks) -> None:
    assert ranks.after(60) is None


def test_a_rank_that_does_not_come_to_the_step_of_the_others_is_lost(ranks: Ranks) -> None:
    ranks.pulses[1].finish_step(7)
    with ranks.pulses[0].call():
        assert ranks.after(19) is None
        found = ranks.after(3)
    assert found is not None
    assert found.startswith("rank 1 on ")
    assert "has come no further for 21 s" in found
    assert found.endswith("after step 7")


def test_a_rank_that_others_wait_for_may_write_a_checkpoint(ranks: Ranks) -> None:
    with ranks.pulses[1].call(), ranks.pulses[0].busy():
        assert ranks.after(60) is None


def test_a_rank_that_does_not_beat_is_lost_whatever_it_does(ranks: Ranks) -> None:
    with ranks.pulses[0].busy():
        found = ranks.after(30, silent=(0,))
    assert found is not None
    assert found.startswith("rank 0 on ")
    assert "has not answered for 20 s" in found or "has not answered for 21 s" in found


def test_an_exit_code_is_a_loss_unless_the_rank_had_ended(ranks: Ranks, tmp_path: Path) -> None:
    ranks.pulses[0].end(ENDED)
    exit_path(tmp_path, 0).write_text("1")
    assert ranks.after(1) is None
    exit_path(tmp_path, 1).write_text("137")
    assert "was killed" in (ranks.after(1) or "")


def test_a_rank_that_has_told_its_error_is_known(ranks: Ranks) -> None:
    ranks.pulses[1].end(FAILED)
    lost = ranks.watcher.look()
    assert lost is not None
    assert lost.failed
    assert lost.rank == 1
