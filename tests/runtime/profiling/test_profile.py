"""Profiles: the timeline of records, rows with names and places, floors, and tables that fit a terminal."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

import dlc
from dlc.errors import CallError
from dlc.runtime.artifact.kernel_records import Roof
from dlc.runtime.calling.entry import EntryPoint
from dlc.runtime.calling.profiled import MAX_RECORDS, Measured, profile
from dlc.runtime.calling.profiled_rows import Subject
from dlc.runtime.profiling.profile import Profile
from dlc.runtime.profiling.rows import floor_of
from dlc.runtime.profiling.table import WIDTH
from dlc.runtime.profiling.timeline import Words, timeline

TEXT = """dlc 1
import nn (Linear)
dim B = 1..256

module Net() {
  use up = Linear(64, 128)
  use down = Linear(128, 10)
  export fn f(x: f32[B, 64]) -> f32[B, 10] = softmax(
    down(relu(up(x))))
}
"""
LOOP = """dlc 1
export fn f(x: f32[9, 300, 300]) -> f32[300, 300] =
  scan each in x with h = x[0] { next h = tanh(h @ each) }
"""
SHORT = "dlc 1\nexport fn f(x: f32[8, 16]) -> f32[8, 16] = softmax(tanh(x) * 2)\n"
ROUNDS = 8
X = np.random.default_rng(0).standard_normal((32, 64), np.float32)


@pytest.fixture(scope="module")
def entry() -> EntryPoint:
    return dlc.compile(text=TEXT, weights="init:0").entry_points["f"]


@pytest.fixture(scope="module")
def found(entry: EntryPoint) -> Profile:
    return entry.profile(X, rounds=ROUNDS)


def test_every_row_has_a_name_and_a_place_in_the_text(found: Profile) -> None:
    titles = [row.title for row in found.rows]
    assert titles[0] == "up · matmul 32×64×128 + relu"
    assert titles[1].startswith("down · matmul 32×128×10")
    assert [row.place.rpartition(":")[0].rpartition(":")[2] for row in found.rows] == [
        "9",
        "9",
        "8",
    ]
    assert found.rows[0].line == "down(relu(up(x))))"


def test_rows_have_times_amounts_and_floors(found: Profile) -> None:
    for row in found.rows:
        assert row.runs == 1
        assert 0 < row.ms <= row.busy_ms + 1e-9
        assert row.operations > 0
        assert row.bytes > 0
        assert row.predicted_ms > 0
        assert row.floor.ms > 0
    assert found.dims == {"B": 32}
    assert found.rounds >= ROUNDS


def test_the_parts_of_a_call_add_up(found: Profile) -> None:
    parts = found.kernels_ms + found.between_ms + found.python_ms + found.interrupted_ms
    assert parts == pytest.approx(found.call_ms, rel=0.1)
    assert sum(row.ms for row in found.by("layer")) == pytest.approx(found.kernels_ms)
    assert sum(row.ms for row in found.by("line")) == pytest.approx(found.kernels_ms)


def test_the_trace_costs_less_than_3_percent_and_the_rows_add_up() -> None:
    """Compiled code of a microsecond has the most to lose. Other work may disturb nine profiles of ten."""
    point = dlc.compile(text=SHORT, threads=1).entry_points["f"]
    x = X[:8, :16].copy()
    told: list[tuple[float, float]] = []
    for _ in range(10):
        found = point.profile(x, rounds=2000)
        parts = found.kernels_ms + found.between_ms + found.python_ms
        told.append((found.overhead, parts / found.call_ms - 1))
        if found.overhead < 0.03 and abs(parts / found.call_ms - 1) < 0.03:
            return
    pytest.fail(f"overhead, and how far the rows are from the call: {told}")


def test_profiling_changes_no_bit_of_the_results(entry: EntryPoint) -> None:
    before = np.asarray(entry(X))
    entry.profile(X, rounds=1)
    result, records = entry.trace(X)
    assert records
    assert np.array_equal(np.asarray(result), before)
    assert np.array_equal(np.asarray(entry(X)), before)


@pytest.mark.parametrize("rounds", ["a", 0, -1, 1.5, True])
def test_rounds_that_are_no_whole_number_from_1_are_refused(
    entry: EntryPoint, rounds: object
) -> None:
    with pytest.raises(CallError, match="which is not a whole number from 1") as caught:
        entry.profile(X, rounds=cast("int", rounds))
    assert caught.value.diagnostics[0].code == "D0801"


def test_inputs_of_bf16_are_profiled() -> None:
    point = dlc.compile(text="dlc 1\nexport fn f(x: bf16[8]) -> bf16[8] = x + 1\n").entry_points[
        "f"
    ]
    x = dlc.Tensor.from_bits(np.zeros(8, np.uint16), "bf16")
    assert point.profile(x, rounds=1).rows


def test_what_an_entry_point_changes_is_changed_in_copies() -> None:
    text = "dlc 1\nexport fn f(inout s: f32[8], x: f32[8]) -> f32[8] {\n  set s = s + x\n  return s\n}\n"
    state, ones = np.zeros(8, np.float32), np.ones(8, np.float32)
    dlc.compile(text=text).entry_points["f"].profile(state, ones, rounds=2)
    assert not state.any()


def test_rows_of_a_loop_say_how_often_they_run() -> None:
    point = dlc.compile(text=LOOP).entry_points["f"]
    rows = point.profile(np.zeros((9, 300, 300), np.float32), rounds=2).rows
    assert max(row.runs for row in rows) == 9
    assert any("matmul 300×300×300 + tanh" in row.title for row in rows)


@pytest.mark.parametrize("by", ["kernel", "layer", "line"])
def test_a_table_fits_80_columns(found: Profile, by: str) -> None:
    for text in (found.table(by), found.table(by, rows=1), found.roofline()):  # pyright: ignore[reportArgumentType]
        assert max(map(len, text.splitlines())) <= WIDTH + 1
    assert "2 more" in found.table(rows=1)


def test_a_notebook_shows_a_table(found: Profile) -> None:
    page = found._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert page.count("<tr>") == 1 + len(found.rows)
    assert "matmul 32×64×128" in page


def test_intervals_are_of_one_call_and_do_not_overlap_on_a_thread(found: Profile) -> None:
    last: dict[int, float] = {}
    for each in sorted(found.intervals, key=lambda each: each.start):
        assert each.start >= last.get(each.thread, 0.0)
        assert each.op in found.ops
        last[each.thread] = each.end


def test_a_moment_is_divided_among_the_records_that_run_then() -> None:
    records = np.array([[0, 0, 0, 10], [1, 1, 0, 10], [1, 0, 10, 14]])
    line = timeline(records, 2, 2)
    assert line.wall.tolist() == [5.0, 9.0]
    assert line.busy.tolist() == [10.0, 14.0]
    assert line.threads.tolist() == [14.0, 10.0]
    assert (line.span, line.covered) == (14, 14.0)


def test_a_call_without_kernels_has_an_empty_timeline() -> None:
    line = timeline(np.zeros((0, 4), np.int64), 2, 1)
    assert (line.span, line.covered, line.wall.sum()) == (0, 0.0, 0.0)


ROOF = Roof(1000, ((100, 1), (1000, 2), (10_000, 4), (0, 8)))


@pytest.mark.parametrize(
    ("operations", "moved", "bound"),
    [
        (10**6, 10, "arithmetic"),
        (0, 100, "L1"),
        (0, 101, "L2"),
        (0, 5000, "L3"),
        (0, 20_000, "memory"),
    ],
)
def test_the_floor_is_the_dearer_of_arithmetic_and_traffic(
    operations: int, moved: int, bound: str
) -> None:
    assert floor_of(ROOF, operations, moved, 1, 1).bound == bound


def test_threads_share_memory_and_have_caches_of_their_own() -> None:
    one, two = (floor_of(ROOF, 0, 500, 3, threads).ms for threads in (1, 2))
    assert two == one / 2
    assert floor_of(ROOF, 0, 20_000, 1, 1) == floor_of(ROOF, 0, 20_000, 1, 2)
    assert floor_of(Roof(), 10, 10, 1, 1).bound == ""


class Many:
    """A frame whose runs have more records than are kept."""

    traced = MAX_RECORDS + 1

    def trace_into(self, records: Words | None, *, alone: bool = False) -> None: ...


def test_a_call_of_too_many_kernels_is_refused(entry: EntryPoint) -> None:
    subject = Subject(entry.artifact, "cpu", "f", "f", 1, {}, (), {}, {})
    measured = Measured(lambda: None, lambda: None, Many())
    with pytest.raises(CallError, match="too many to trace"):
        profile(subject, measured, 1)
