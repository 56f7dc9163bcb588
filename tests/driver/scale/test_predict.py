"""Predicted times among many ranks: what they consist of, and where scaling stops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from dlc.driver.run.request import CompileRequest
from dlc.driver.scale.predict import Scaling, predict_scaling
from dlc.driver.scale.programs import RankPrograms, ScaleRequest
from dlc.driver.scale.report import scaling_data, scaling_text
from dlc.errors import UsageError
from dlc.target.network import HERE, network_named

TEXT = """\
dlc 1
import nn (Linear)
dim B = 1..8192

module Wide() {
  use a = Linear(64, 64)
  use b = Linear(64, 64)
  export fn predict(x: f32[B, 64]) -> f32[B, 64] = b(tanh(a(x)))
}

train Wide {
  data = npz("data.npz", x="x", y="y")
  loss(x: f32[B, 64], y: f32[B, 64]) = mean((predict(x) - y) ** 2)
  optimizer = adam(lr=0.01)
  batch = 4096
}
"""
WEIGHTS = 4 * 2 * (64 * 64 + 64)
"""The bytes of the gradients."""
MESHED = TEXT.replace("import", "mesh data = 2, model = 2\nimport", 1).replace(
    "use a = Linear(64, 64)", "param w: f32[64, 64] split (none, model) = normal(0.02)"
).replace("a(x)", "x @ w")  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def lowered_once() -> Iterator[None]:
    """What ranks run does not depend on their network: it is lowered once for all tests."""
    lower, lowered = RankPrograms._lower, dict[tuple[object, ...], Any]()  # pyright: ignore[reportPrivateUsage]

    def once(programs: RankPrograms, parts: int) -> object:
        asked = programs._asked  # pyright: ignore[reportPrivateUsage]
        key = (asked.request.text, asked.entry, asked.shard, asked.weak, parts)
        if key not in lowered:
            lowered[key] = lower(programs, parts)
        return lowered[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RankPrograms, "_lower", once)
        yield


def request(text: str = TEXT, ranks: int = 4, **more: object) -> ScaleRequest:
    asked = ScaleRequest(CompileRequest("wide.dlm", text=text), ranks, threads=1)
    return replace(asked, **more)


def predicted(**more: object) -> Scaling:
    return predict_scaling(request(**more))  # pyright: ignore[reportArgumentType]


def test_ranks_divide_the_work_and_exchange_the_gradients() -> None:
    found = predicted(ranks=8)
    assert [row.ranks for row in found.rows] == [1, 2, 4, 8]
    assert [row.examples for row in found.rows] == [4096, 2048, 1024, 512]
    alone, two, four, _ = (row.spent for row in found.rows)
    assert alone.collectives == alone.exposed == 0
    assert two.bytes == four.bytes == pytest.approx(WEIGHTS, rel=0.01)
    assert four.compute < two.compute < alone.compute
    sent = HERE.sending("MPI_Allreduce", WEIGHTS, 4).transfer
    assert four.transfer == pytest.approx(sent, rel=0.01)


def test_with_weak_each_rank_has_the_whole_batch() -> None:
    found = predicted(weak=True, ranks=6)
    assert [(row.ranks, row.examples) for row in found.rows] == [(k, 4096) for k in (1, 2, 4, 6)]
    assert found.rows[1].spent.compute == pytest.approx(found.rows[3].spent.compute)
    assert found.rows[1].speedup <= 2


def test_scaling_stops_where_sending_takes_longer_than_computing_and_says_so() -> None:
    slow = network_named("0.001Gbit")
    found = predicted(network=slow)
    assert found.best == 1
    assert "since sending of" in found.reason
    late = predicted(network=network_named("1000Gbit,100000us"))
    assert "since the latency of" in late.reason


@pytest.mark.long
def test_a_batch_has_no_more_parts_than_examples() -> None:
    found = predicted(ranks=64, dims={"B": 24}, network=network_named("1000Gbit,0us"))
    assert [row.ranks for row in found.rows] == [1, 2, 4, 8]
    assert found.reason


@pytest.mark.long
def test_two_threads_hide_what_a_network_sends_beside_them() -> None:
    fast = network_named("100Gbit,1us")
    alone, both = (predicted(network=fast, threads=n, weak=True).rows[2] for n in (1, 2))
    assert both.spent.transfer == pytest.approx(alone.spent.transfer)
    assert both.spent.compute < alone.spent.compute
    assert 0 <= both.spent.exposed <= both.spent.latency + both.spent.transfer


@pytest.mark.long
def test_a_measured_step_is_the_time_of_the_first_row() -> None:
    found = predicted(step=0.25)
    assert found.rows[0].spent.total == pytest.approx(0.25e9)
    usual = predicted()
    assert found.factor == pytest.approx(0.25e9 / usual.rows[0].spent.total)
    assert found.rows[1].spent.transfer == usual.rows[1].spent.transfer


@pytest.mark.long
def test_the_batch_that_is_given_counts() -> None:
    assert [row.examples for row in predicted(dims={"B": 6000}).rows] == [6000, 3000, 1500]


def test_a_call_is_predicted_as_a_step_is() -> None:
    found = predicted(entry="predict")
    assert found.entry == "predict"
    assert found.sizes == {"B": 8192}
    assert found.rows[1].spent.compute < found.rows[0].spent.compute


def test_split_weights_are_gathered_and_gradients_scattered() -> None:
    usual, split = predicted(ranks=4), predicted(ranks=4, shard="weights")
    assert split.rows[2].spent.collectives > usual.rows[2].spent.collectives


def test_the_mesh_of_a_text_stays_beside_the_parts_of_the_batch() -> None:
    found = predicted(text=MESHED, ranks=8)
    assert [row.ranks for row in found.rows] == [2, 4, 8]
    assert [row.examples for row in found.rows] == [4096, 2048, 1024]
    assert all(row.spent.collectives for row in found.rows)
    assert found.rows[0].efficiency == 1


WRONG = {
    "no ranks": ({"ranks": 0}, "D0901"),
    "no time": ({"step": 0.0}, "D0901"),
    "a time that is none": ({"step": float("nan")}, "D0901"),
    "an unknown size": ({"dims": {"C": 3}}, "D0906"),
    "a size beyond its bounds": ({"dims": {"B": 8193}}, "D0906"),
    "no entry point": ({"entry": "nothing"}, "D0904"),
    "weights of a call": ({"entry": "predict", "shard": "weights"}, "D0901"),
    "fewer ranks than the mesh": ({"text": MESHED, "ranks": 1}, "D0936"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_makes_no_sense_is_refused(name: str) -> None:
    more, code = WRONG[name]
    with pytest.raises(UsageError, match=code):
        predicted(**more)


def test_what_is_printed_has_a_row_for_each_number_and_the_end() -> None:
    found = predicted(network=network_named("25Gbit,5us"))
    lines = scaling_text(found).splitlines()
    assert "25Gbit,5us (5 µs a message, 356 ps a byte)" in lines[0]
    assert [line.split()[0] for line in lines[2:6]] == ["ranks", "1", "2", "4"]
    assert lines[-1].startswith("scales to ")
    data = scaling_data(found)
    assert data["scales_to"] == found.best
