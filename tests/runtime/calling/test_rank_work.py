"""The share of the time in collectives, from calls that are traced now and then."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.runtime.artifact.manifest import Op
from dlc.runtime.calling.rank_work import RankWork, Sampler, told

OPS = [Op("f", kernel=name) for name in ("gemm_0", "start_all_reduce_1", "generic_2", "wait_3")]


def test_a_call_is_looked_at_every_half_second_but_not_the_first() -> None:
    times = iter([0.0, 0.1, 0.2, 0.7, 0.8])
    sampler = Sampler(OPS, clock=lambda: next(times))
    assert [sampler.records() is not None for _ in range(5)] == [False, True, False, True, False]


def test_programs_without_collectives_are_not_looked_at() -> None:
    sampler = Sampler(OPS[:1])
    assert [sampler.records() for _ in range(3)] == [None] * 3


def test_what_is_sent_and_waited_for_is_a_share_of_the_call() -> None:
    """Of 100 cycles 5 begin a sum and 20 wait for it; a trace that did not fit is left out."""
    sampler = Sampler(OPS)
    trace = np.array([[0, 0, 0, 60], [1, 0, 60, 65], [2, 0, 65, 80], [3, 0, 80, 100], [0] * 4])
    sampler.note(trace, 4, 0.2)
    sampler.note(trace, 6, 0.2)
    assert sampler.work == (1, 0.2, pytest.approx(0.05))


def test_the_slowest_rank_works_longest_itself() -> None:
    """One that waits little has most work of its own, whatever the number of calls looked at."""
    works = [RankWork(4, 0.4, 0.2), RankWork(2, 0.2, 0.02), RankWork(4, 0.4, 0.18)]
    assert told(works) == "40% in collectives  slowest rank 1"
    assert told([*works, RankWork()]) == ""
    assert told(works[:1]) == ""
