"""Profiles of calls on a GPU, which is the evaluator: its clock counts pieces of work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dlc
from dlc.driver.compile.settings import Settings
from dlc.driver.profile.data import profile_data
from dlc.driver.profile.events import trace_text
from dlc.driver.profile.flame import flame_svg
from dlc.driver.profile.measured import ProfileRequest, profile_model
from dlc.driver.report.questions.slow import answer
from dlc.driver.run.calls import CallRequest
from dlc.driver.run.request import CompileRequest
from dlc.errors import CallError
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.calling.entry import EntryPoint
from dlc.runtime.hetero import entry as hetero_entry
from dlc.runtime.profiling.profile import Profile
from dlc.runtime.profiling.table import WIDTH
from tests.runtime.gpu.fake_gpu import FakeGpu, fake_gpu

GPU = "cuda:sm_80"
TEXT = """dlc 1
import nn (Linear)
dim B = 1..8

module Net() {
  use up = Linear(8, 16)
  use down = Linear(16, 4)
  export fn f(x: f32[B, 8]) -> f32[B, 4] = softmax(down(relu(up(x))))
  export fn root(a: f32) -> f32 =
    while abs(x * x - a) > 1e-5 with x = a limit 100 { next x = (x + a / x) / 2 }
  export fn added(inout s: f32[8], x: f32[8]) -> f32[8] {
    set s = s + x
    return s
  }
}
"""
LINE = Path(__file__).parents[2] / "gpu/line.dlm"
X = np.random.default_rng(0).standard_normal((2, 8), np.float32)


@pytest.fixture(scope="module")
def gpu() -> Iterator[FakeGpu]:
    with fake_gpu() as fake:
        yield fake


@pytest.fixture(scope="module")
def model(gpu: FakeGpu) -> dlc.Model:
    return dlc.compile(text=TEXT, weights="init:0", target=GPU)


@pytest.fixture(scope="module")
def entry(model: dlc.Model) -> EntryPoint:
    return model.entry_points["f"]


@pytest.fixture(scope="module")
def found(entry: EntryPoint) -> Profile:
    return entry.profile(X, rounds=2)


def uploads(gpu: FakeGpu, before: int) -> int:
    """Copies of some bytes to the GPU since there were `before` copies."""
    return sum(way == "up" and size > 0 for way, size in gpu.transfers[before:])


def test_each_kernel_has_the_time_between_its_events(found: Profile) -> None:
    """The clock of the evaluator ticks once for a kernel, and once for an event, which is taken off."""
    assert {row.busy_ms for row in found.rows} == {1.0}
    assert [row.title for row in found.rows[:2]] == [
        "up · matmul 2×8×16 + relu",
        "down · matmul 2×16×4",
    ]
    assert all(row.place and row.line for row in found.rows)


def test_what_events_take_is_told_beside_the_time_of_computing(found: Profile) -> None:
    """A tick of the evaluator's clock for each kernel."""
    computing = found.call_ms - found.python_ms - found.transfers_ms
    assert found.overhead * computing == pytest.approx(sum(row.runs for row in found.rows))


def test_the_parts_of_a_call_add_up(found: Profile) -> None:
    parts = found.kernels_ms + found.between_ms + found.transfers_ms + found.python_ms
    assert parts == pytest.approx(found.call_ms)


def test_rows_have_the_roof_of_the_architecture(found: Profile) -> None:
    product = found.rows[0]
    assert product.operations >= 2 * 2 * 8 * 16
    assert product.floor.ms >= product.operations / 19_500 / 1e6
    assert {row.floor.bound for row in found.rows} <= {"arithmetic", "L2", "memory"}


def test_matrix_instructions_have_a_roof_of_their_own(gpu: FakeGpu) -> None:
    text = "dlc 1\nexport fn f(x: f16[64, 64], y: f16[64, 64]) -> f16[64, 64] = x @ y\n"
    point = dlc.compile(text=text, target=GPU).entry_points["f"]
    x = np.ones((64, 64), np.float16)
    (row,) = point.profile(x, x, rounds=1).rows
    assert row.floor.ms < row.operations / 19_500 / 1e6


def test_rounds_on_the_device_are_counted(gpu: FakeGpu, model: dlc.Model) -> None:
    """Their kernels are launched round by round, since no event is recorded in a condition."""
    found = model.entry_points["root"].profile(np.float32(9), rounds=1)
    assert max(row.runs for row in found.rows) > 2


@pytest.mark.long
def test_profiling_changes_no_bit_of_the_results(entry: EntryPoint) -> None:
    before = np.asarray(entry(X))
    entry.profile(X, rounds=1)
    assert np.array_equal(np.asarray(entry(X)), before)


def test_what_an_entry_point_changes_is_changed_in_copies(gpu: FakeGpu, model: dlc.Model) -> None:
    ones = np.ones(8, np.float32)
    for state in (np.zeros(8, np.float32), Tensor(np.zeros(8, np.float32)).to("cuda")):
        model.entry_points["added"].profile(state, ones, rounds=2)
        assert not np.asarray(Tensor(state).numpy() if isinstance(state, Tensor) else state).any()


def test_arguments_that_lie_on_the_gpu_stay_there(gpu: FakeGpu, entry: EntryPoint) -> None:
    there = Tensor(X).to("cuda")
    before = len(gpu.transfers)
    entry.profile(there, rounds=1)
    assert uploads(gpu, before) == 0


@pytest.mark.long
def test_events_are_given_back(gpu: FakeGpu, entry: EntryPoint) -> None:
    before = gpu.events
    entry.profile(X, rounds=1)
    assert gpu.events == before


@pytest.mark.long
def test_a_kernel_that_fails_is_reported_with_its_line(gpu: FakeGpu, entry: EntryPoint) -> None:
    names = [row.kernel for row in entry.profile(X, rounds=1).rows]
    gpu.refuses = names[-1]
    try:
        with pytest.raises(CallError, match="as told"):
            entry.profile(X, rounds=1)
    finally:
        gpu.refuses = None
    assert np.isfinite(np.asarray(entry(X))).all()


def test_a_step_of_training_has_its_weights_on_the_gpu(gpu: FakeGpu) -> None:
    request = CompileRequest(str(LINE), settings=Settings(target=GPU))
    counts: list[int] = []
    for rounds in (1, 3):
        before = len(gpu.transfers)
        call = CallRequest(str(LINE), dims={"B": 3}, seed=0)
        found = profile_model(ProfileRequest(request, call, rounds=rounds, train=True))
        assert any("gradient" in row.title for row in found.rows)
        counts.append(uploads(gpu, before))
    assert counts[0] == counts[1] > 0, "weights and examples are brought once"


def test_a_profile_of_a_gpu_is_a_table_a_trace_a_picture_and_data(found: Profile) -> None:
    table = found.table()
    assert max(map(len, table.splitlines())) <= WIDTH
    assert "ms on cuda:sm_80, B = 2" in table
    assert "copies between host and GPU" in table
    assert "cuda:sm_80" in trace_text(found)
    assert "matmul" in flame_svg(found)
    data = profile_data(found)
    assert isinstance(data, dict)
    assert data["device"] == GPU
    assert data["transfers_ms"] == round(found.transfers_ms, 7)
    assert "1. " in answer(found).text


PLACED = """dlc 1
export fn f(x: f32[4, 4], w: f32[4, 4]) -> f32[4, 4] {
  let y = on cuda:0 { exp(x) @ w }
  let z = while sum(v) < 1e3 with v = abs(x) + 1 { next v = v * 2 }
  return y + z
}
"""


@pytest.fixture(scope="module")
def placed(gpu: FakeGpu) -> EntryPoint:
    return dlc.compile(text=PLACED, target="cpu+" + GPU, threads=2).entry_points["f"]


@pytest.fixture(scope="module")
def of_both(placed: EntryPoint) -> Profile:
    return placed.profile(np.ones((4, 4), np.float32), np.eye(4, dtype=np.float32), rounds=2)


def test_a_program_for_a_processor_and_a_gpu_has_times_of_all_kernels(of_both: Profile) -> None:
    """Those of the GPU by its clock, which ticks once for a kernel; those of the processor by its own."""
    on_gpu = [row for row in of_both.rows if row.busy_ms == 1.0]
    assert [row.what for row in on_gpu if "matmul" in row.what], of_both
    assert len(on_gpu) == 2 < len(of_both.rows)
    others = [row for row in of_both.rows if row not in on_gpu]
    assert all(0 < row.ms <= row.busy_ms < 1 for row in others)
    assert max(row.runs for row in others) == 6, "the rounds of the loop, and its last test"
    assert of_both.transfers_ms > 0


def test_what_events_take_is_told_beside_the_time_of_a_call_of_both(of_both: Profile) -> None:
    """A tick of the evaluator's clock for each of the two kernels of the GPU."""
    assert of_both.overhead * of_both.call_ms == pytest.approx(2)


def test_the_parts_of_a_call_of_both_add_up(of_both: Profile) -> None:
    parts = of_both.kernels_ms + of_both.between_ms + of_both.transfers_ms
    assert parts == pytest.approx(of_both.call_ms)


def test_rows_of_both_have_the_roofs_of_their_devices(of_both: Profile) -> None:
    product = next(row for row in of_both.rows if "matmul" in row.what)
    assert 0 < product.floor.ms < product.operations / 1_000 / 1e6 + 1e-6
    assert {row.floor.bound for row in of_both.rows} > {"L2"}


def test_the_trace_of_both_has_the_gpu_as_a_thread(of_both: Profile) -> None:
    trace = trace_text(of_both)
    assert '"name": "cuda:sm_80"' in trace
    assert '"name": "thread 1"' in trace
    assert {each.thread for each in of_both.intervals} >= {0, 2}
    assert "cpu+cuda:sm_80, 2 threads" in of_both.table()
    assert "copies between host and GPU" in of_both.table()


def test_a_profile_of_both_changes_no_bit_and_gives_its_events_back(
    gpu: FakeGpu, placed: EntryPoint
) -> None:
    x, w = np.full((4, 4), 0.5, np.float32), np.eye(4, dtype=np.float32)
    before = np.asarray(placed(x, w))
    placed.profile(x, w, rounds=1)
    events = gpu.events
    placed.profile(x, w, rounds=1)
    assert gpu.events == events
    np.testing.assert_array_equal(np.asarray(placed(x, w)), before)


def test_a_segment_with_more_records_than_room_is_traced_again(
    placed: EntryPoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w = np.ones((4, 4), np.float32), np.eye(4, dtype=np.float32)
    wanted = {row.title: row.runs for row in placed.profile(x, w, rounds=1).rows}
    monkeypatch.setattr(hetero_entry, "FEW_RECORDS", 1)
    assert {row.title: row.runs for row in placed.profile(x, w, rounds=1).rows} == wanted
