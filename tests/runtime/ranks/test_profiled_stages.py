"""Profiles of calls by stages: when each runs its parts, sends and waits, in figures and in a trace."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.driver.profile.data import profile_data
from dlc.driver.profile.events import trace_text
from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.errors import CallError
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.calling.stage_call import schedule
from dlc.runtime.model import Model
from dlc.runtime.profiling.profile import Profile
from dlc.runtime.profiling.stages import StageTimes
from dlc.runtime.ranks.mesh import Mesh
from dlc.runtime.ranks.simulated import SimulatedRanks, run_simulated
from dlc.runtime.training.trainer import Trainer
from tests.runtime.ranks.test_stages import TIED, calls, trains

STAGES = 3
X = np.random.default_rng(4).standard_normal((32, 8), np.float32)


@cache
def trained() -> Artifact:
    return trains(TIED, STAGES)


@cache
def profiles() -> list[Profile]:
    """Those of a step, by rank."""

    def work(at: SimulatedRanks) -> Profile:
        trainer = Trainer(trained(), threads=1, comm=at)
        before = weights(trainer)
        found = trainer.profile(rounds=3, x=X, y=X)
        for name, array in weights(trainer).items():
            np.testing.assert_array_equal(array, before[name])
        return found

    return run_simulated(Mesh({"stage": STAGES}), work)


def weights(trainer: Trainer) -> Mapping[str, NDArray[Any]]:
    return {name: np.asarray(trainer.weights[name]).copy() for name in trainer.weights}


def stages_of(profile: Profile) -> StageTimes:
    assert profile.stages is not None
    return profile.stages


def test_each_stage_runs_its_parts_in_the_order_of_the_schedule() -> None:
    for stage, profile in enumerate(profiles()):
        spans = [span for span in stages_of(profile).spans if span.kind == "part"]
        each = [
            (span.title.rpartition(" ")[0], span.microbatch)
            for span in spans
            if span.microbatch is not None
        ]
        last = stage == STAGES - 1
        titles = ["forward and backward"] if last else ["forward", "backward"]
        order = schedule(stage, STAGES, 4, len(titles))
        assert each == [(titles[part], k) for part, k in order]
        assert all(a.end <= b.start for a, b in pairwise(spans))


def test_kernels_lie_within_the_parts_and_rows_add_up_to_the_call() -> None:
    for profile in profiles():
        parts = [span for span in stages_of(profile).spans if span.kind == "part"]
        assert profile.intervals
        for each in profile.intervals:
            assert any(part.start <= each.start <= each.end <= part.end for part in parts)
        whole = profile.kernels_ms + profile.between_ms + profile.python_ms
        assert whole + profile.interrupted_ms == pytest.approx(profile.call_ms, rel=1e-6)
        runs = {row.title: row.runs for row in profile.rows if row.kernel}
        assert 4 in runs.values()


def test_what_is_sent_is_waited_for_on_another_rank() -> None:
    sent, awaited = (
        sorted(
            span.arrow
            for profile in profiles()
            for span in stages_of(profile).spans
            if span.kind == kind and span.arrow
        )
        for kind in ("send", "wait")
    )
    assert sent == awaited
    assert len(set(sent)) == len(sent) > 2 * 4 * (STAGES - 1)


def test_all_ranks_have_the_shares_of_all_and_they_are_printed() -> None:
    first, *others = [stages_of(profile) for profile in profiles()]
    assert all(each.shares == first.shares for each in others)
    assert [share.stage for share in first.shares] == [0, 1, 2]
    for share in first.shares:
        assert 0 < share.busy_ms + share.waits_ms + share.sends_ms <= share.call_ms
    assert first.equal_bubble == pytest.approx(2 / 6)
    lines = profiles()[1].table().splitlines()
    assert any(line.startswith("rank 2, stage 2: ") for line in lines)
    assert any(
        f"bubble: {first.bubble:.1%} of 4 microbatches on 3 stages" in line for line in lines
    )
    assert max(map(len, lines)) <= 80
    data: Any = profile_data(profiles()[0])["stages"]
    assert [each["stage"] for each in data["ranks"]] == [0, 1, 2]


def test_a_trace_has_a_process_for_each_rank_with_kernels_in_slices_and_arrows() -> None:
    events = json.loads(trace_text(*profiles()))["traceEvents"]
    names = [each["args"]["name"] for each in events if each["name"] == "process_name"]
    assert [name.partition(", ")[2] for name in names] == [
        f"rank {stage}, stage {stage}" for stage in range(STAGES)
    ]
    slices = [each for each in events if each["ph"] == "X"]
    for process in range(1, STAGES + 1):
        own = sorted(
            (each["ts"], -each["dur"], each["ts"] + each["dur"])
            for each in slices
            if each["pid"] == process
        )
        ends: list[float] = []
        for start, _, end in own:  # slices of a thread lie beside or inside one another
            while ends and ends[-1] <= start + 0.002:
                ends.pop()
            assert not ends or end <= ends[-1] + 0.002
            ends.append(end)
    starts, ends_ = ({e["id"]: e for e in events if e["ph"] == kind} for kind in ("s", "f"))
    assert starts.keys() == ends_.keys()
    for number, start in starts.items():
        assert start["ts"] <= ends_[number]["ts"]
        assert start["pid"] != ends_[number]["pid"]


def test_an_entry_point_is_profiled_too_and_wrong_rounds_end_it_on_all_ranks() -> None:
    made = calls(TIED)

    def work(at: SimulatedRanks) -> tuple[Profile, str]:
        model = Model(made, threads=1, comm=at)
        found = model.predict.profile(X, rounds=1)
        with pytest.raises(CallError) as error:
            model.predict.profile(X, rounds=1 - at.rank // 2)
        return found, str(error.value)

    found = run_simulated(Mesh({"stage": STAGES}), work)
    for stage, (profile, _) in enumerate(found):
        times = stages_of(profile)
        assert (times.stage, times.microbatches) == (stage, 1)
        assert [span.title for span in times.spans if span.kind == "part"] == ["part"]
    assert "D0801" in found[2][1]
    assert all("D0824" in error for _, error in found[:2])


HALF = """\
dlc 1
dim B = 1..64
mesh stage = 2

module Net() {
  param a: f32[3, 4] = normal(0.5)
  param b: f32[4, 2] = normal(0.5)
  export fn low(x: f32[B, 3]) -> f32[B, 4] = on stage 0 { tanh(x @ a) }
  export fn high(x: f32[B, 3]) -> f32[B, 2] = on stage 1 { low(x) @ b }
}
"""


def test_a_stage_that_has_no_part_of_an_entry_point_waits_for_its_result() -> None:
    request = CompileRequest(path="", text=HALF, weights="init:3", ranks=2)
    made = make_artifact(request).artifact
    x = np.ones((4, 3), np.float32)

    def work(at: SimulatedRanks) -> Profile:
        return Model(made, threads=1, comm=at).low.profile(x, rounds=1)

    one, other = run_simulated(Mesh({"stage": 2}), work)
    assert {row.title for row in other.rows} == {"wait for stage 0", "wait until all is sent"}
    assert stages_of(other).shares[1].busy_ms == 0 < stages_of(other).shares[0].busy_ms
    assert one.device == other.device
