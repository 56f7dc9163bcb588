"""Predicted times of the stages of a pipeline: the schedule played with the times of parts."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from dlc.driver.compile.compile import Report
from dlc.driver.run.request import CompileRequest
from dlc.driver.run.train import plan_training
from dlc.driver.scale.predict import Scaling, predict_scaling
from dlc.driver.scale.programs import ScaleRequest
from dlc.driver.scale.report import scaling_data, scaling_text
from dlc.driver.scale.stages import CALL, PlayedStage, play
from dlc.errors import UsageError
from dlc.runtime.calling.stage_call import Plan, plan_of
from dlc.target.network import HERE, Network, Sending, network_named

TEXT = """\
dlc 1
import nn (Linear)
dim B = 1..64
mesh data = 2, stage = 2

module Deep(M = 4) {
  use a = Linear(64, 64) on stage 0
  use b = Linear(64, 64) on stage 1
  export fn predict(x: f32[B, 64]) -> f32[B, 64] = b(tanh(a(x)))
}

train Deep {
  data = npz("data.npz", x="x", y="y")
  loss(x: f32[B, 64], y: f32[B, 64]) = mean((predict(x) - y) ** 2)
  optimizer = sgd(lr=0.01)
  batch = 64
  accumulate = M
}
"""
ALONE = TEXT.replace("data = 2, ", "")


@cache
def predicted(text: str = TEXT, ranks: int = 8, network: Network = HERE, **more: object) -> Scaling:
    count = more.pop("microbatches", 4)
    assert isinstance(count, int)
    request = CompileRequest("deep.dlm", text=text, parameters={"M": count})
    asked = ScaleRequest(request, ranks, network=network, threads=1)
    return predict_scaling(replace(asked, **more))


@cache
def plans(microbatches: int) -> tuple[Plan, ...]:
    request = CompileRequest(path="", text=ALONE, parameters={"M": microbatches})
    manifest = plan_training(request).artifact(Report(), 2).manifest
    staged = next(each for each in manifest.staged if each.interface.name == "train_step")
    interfaces = {entry.name: entry for entry in manifest.entries}
    return tuple([plan_of(staged, interfaces, stage) for stage in range(2)])


def played(microbatches: int, sending: Sending, *, beside: bool = True) -> list[PlayedStage]:
    """The stages with parts of a second forward, two backward, three for both, and none for the rest."""
    names = {part.name: part for plan in plans(microbatches) for part in plan.each}
    first = [part.name for part in plans(microbatches)[0].each]
    costs = dict.fromkeys(names, 3.0) | dict(zip(first, (1.0, 2.0), strict=True))
    return play(
        plans(microbatches), lambda name: costs.get(name, 0.0), lambda _: sending, beside=beside
    )


@pytest.mark.parametrize("microbatches", [2, 5])
def test_stages_with_equal_work_wait_as_the_formula_says(microbatches: int) -> None:
    found = played(microbatches, Sending(0, 0))
    end, work = max(stage.end for stage in found), 3.0 * microbatches
    assert 1 - work / end == pytest.approx(1 / (microbatches + 1))
    each = [sum("each" in name for name in stage.parts) for stage in found]
    assert each == [2 * microbatches, microbatches]


def test_what_is_sent_takes_the_time_of_the_network() -> None:
    still = max(stage.end for stage in played(3, Sending(0, 0)))
    late = max(stage.end for stage in played(3, Sending(0.5, 0)))
    sent = max(stage.end for stage in played(3, Sending(0, 0.5)))
    copied = max(stage.end for stage in played(3, Sending(0, 0.5), beside=False))
    assert still < late <= sent <= copied


def test_ranks_are_added_along_data_and_the_stages_stay() -> None:
    found = predicted()
    assert [row.ranks for row in found.rows] == [2, 4, 8]
    assert [row.examples for row in found.rows] == [256, 128, 64]
    for row in found.rows:
        assert len(row.spent.stages) == 2
        assert sum(row.spent.stages) / 2 == pytest.approx(row.spent.compute)
        assert row.bubble is not None
        assert 0 < row.bubble <= row.share < 1
        assert 0 <= row.spent.idle <= row.spent.bubble
    assert found.rows[0].spent.collectives == 0 < found.rows[1].spent.collectives


def test_more_microbatches_make_the_bubble_smaller() -> None:
    few, many = (predicted(ALONE, 2, microbatches=count, step=0.25).rows[0] for count in (2, 8))
    assert few.bubble is not None and many.bubble is not None
    assert many.bubble < few.bubble
    assert len(few.spent.stages) == 2


def test_what_limits_scaling_is_named() -> None:
    slow = predicted(network=network_named("1000Gbit,100000us") or HERE)
    assert "since the latency of" in slow.reason
    assert "between stages" in slow.reason
    assert "no axis data, along which ranks are added" in predicted(ALONE).reason
    assert not predicted(ALONE, 2).reason


def test_a_measured_step_is_the_time_of_the_first_row() -> None:
    found = predicted(step=0.25)
    assert found.rows[0].spent.total == pytest.approx(0.25e9, rel=1e-6)


def test_a_call_goes_through_the_stages_whole() -> None:
    found = predicted(entry="predict")
    assert [(row.ranks, row.examples) for row in found.rows] == [(2, 64)]
    assert "further ranks the same again" in found.reason
    assert found.rows[0].spent.total > 2 * CALL
    assert found.rows[0].bubble is not None
    assert found.rows[0].bubble > 0.3


def test_what_is_printed_has_the_bubble_of_each_row_and_the_work_of_the_stages() -> None:
    lines = scaling_text(predicted()).splitlines()
    assert lines[2].endswith("bubble")
    assert all(line.endswith(" %") for line in lines[3:6])
    assert lines[-2].startswith("on 2 ranks the 2 stages compute ")
    assert lines[-2].endswith("with equal work and 4 microbatches the bubble is 20 %")
    data: Any = scaling_data(predicted())
    assert data["microbatches"] == 4
    assert [len(row["stages_ms"]) for row in data["rows"]] == [2, 2, 2]


def test_a_measured_step_shorter_than_what_stages_wait_is_refused() -> None:
    with pytest.raises(UsageError, match=r"D0901.*less than what ranks wait"):
        predicted(step=1e-6)


def test_fewer_ranks_than_stages_are_refused() -> None:
    with pytest.raises(UsageError, match="D0936"):
        predicted(ranks=1)
