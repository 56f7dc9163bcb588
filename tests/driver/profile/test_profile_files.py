"""What is made of a profile: data and back, comparisons, flame graphs, traces, the question `slow`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dlc.driver.profile.compare import compare, differences, profile_comparison_text
from dlc.driver.profile.data import profile_data, read_profile
from dlc.driver.profile.events import trace_text
from dlc.driver.profile.flame import flame_svg
from dlc.driver.profile.measured import ProfileRequest, profile_model
from dlc.driver.report.questions.slow import answer, largest_gaps
from dlc.driver.run.calls import CallRequest
from dlc.driver.run.request import CompileRequest
from dlc.errors import UsageError
from dlc.runtime.profiling.profile import Profile
from dlc.runtime.profiling.rows import Floor, Interval, Row


def row(path: str, what: str, ms: float, floor: float, line: int) -> Row:
    title = f"{path} · {what}"
    bound = Floor(floor, "arithmetic")
    place = f"m.dlm:{line}:5"
    return Row(title, path, what, "gemm_0", place, f"line {line}", 1, ms, ms, 1000, 100, ms, bound)


ROWS = (
    row("blocks.0.up", "matmul 8×16×64 + silu", 3.0, 2.9, 7),
    row("blocks.0.down", "matmul 8×64×16 + add", 4.0, 1.0, 8),
    row("blocks.1.up", "matmul 8×16×64 + silu", 2.0, 0.5, 7),
    row("", "softmax 8×16", 0.5, 0.1, 9),
)
DECISIONS = {"m.dlm:8": ("fuse: fuse as epilogue", "pack: not: too few rows (rows 8)")}
PROFILE = Profile(
    "m.dlm",
    "f",
    "cpu",
    {"B": 8},
    2,
    10,
    10.0,
    9.9,
    0.2,
    0.3,
    0.0,
    0.001,
    (0.9, 0.5),
    ROWS,
    (Interval(0, 0, 0.0, 3000.0), Interval(1, 1, 3000.0, 7000.0)),
    dict(enumerate(ROWS)),
    DECISIONS,
)


@pytest.fixture
def old(tmp_path: Path) -> str:
    path = tmp_path / "old.json"
    path.write_text(json.dumps(profile_data(PROFILE)))
    return str(path)


def test_data_has_each_kernel_with_the_decisions_about_its_line() -> None:
    data = json.loads(json.dumps(profile_data(PROFILE)))
    assert [each["path"] for each in data["kernels"]][:2] == ["blocks.0.down", "blocks.0.up"]
    assert data["kernels"][0]["decisions"] == list(DECISIONS["m.dlm:8"])
    assert data["kernels"][0]["bound"] == "arithmetic"


def test_a_profile_beside_itself_has_not_changed(old: str) -> None:
    found = compare(read_profile(old), PROFILE)
    assert all(each.old_ms == each.new_ms for each in found)
    assert "no kernel changed by more" in profile_comparison_text(read_profile(old), PROFILE)


def test_a_comparison_names_what_became_slower_and_what_was_decided_otherwise(old: str) -> None:
    slower = replace(ROWS[1], ms=6.0, what="matmul 8×64×16", title="blocks.0.down · matmul 8×64×16")
    now = replace(
        PROFILE,
        call_ms=12.0,
        rows=(ROWS[0], slower, *ROWS[2:]),
        decisions={"m.dlm:8": ("pack: not: too few rows (rows 8)",)},
    )
    first, *rest = compare(read_profile(old), now)
    assert (first.old_ms, first.new_ms) == (4.0, 6.0)
    assert first.decided == ("- fuse: fuse as epilogue",)
    assert "(before: matmul 8×64×16 + add)" in first.title
    assert all(each.old_ms == each.new_ms for each in rest)
    text = profile_comparison_text(read_profile(old), now)
    assert "1.20 times as long" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_profile_of_another_entry_point_is_refused(old: str) -> None:
    with pytest.raises(UsageError, match="the old profile is of f, and this one of g") as caught:
        compare(read_profile(old), replace(PROFILE, entry="g"))
    assert caught.value.diagnostics[0].code == "D0907"


def test_another_model_and_other_sizes_are_told(old: str) -> None:
    now = replace(PROFILE, model="other.dlm", dims={"B": 16}, threads=1)
    assert profile_comparison_text(read_profile(old), now).splitlines()[1:4] == [
        "not the same model: m.dlm before, other.dlm now",
        "not the same size B: 8 before, 16 now",
        "not the same threads: 2 before, 1 now",
    ]
    assert differences(read_profile(old), PROFILE) == ()


def test_a_kernel_that_is_gone_is_told(old: str) -> None:
    found = compare(read_profile(old), replace(PROFILE, rows=ROWS[1:]))
    assert (found[0].title, found[0].new_ms) == (f"{ROWS[0].title} (gone)", 0.0)


@pytest.mark.parametrize("text", ["{}", "[1]", "nothing", '{"entry": "f", "call_ms": "x"}'])
def test_a_file_that_is_no_profile_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="is not a profile"):
        read_profile(str(path))
    with pytest.raises(UsageError, match="cannot read"):
        read_profile(str(tmp_path / "gone.json"))


def test_a_flame_graph_is_svg_with_a_part_for_each_module_and_kernel() -> None:
    root = ElementTree.fromstring(flame_svg(PROFILE))
    space = "{http://www.w3.org/2000/svg}"
    titles = [each.text or "" for each in root.iter(f"{space}title")]
    assert [title.partition(":")[0] for title in titles[:4]] == ["f", "blocks", "0", "up"]
    assert len(titles) == 1 + 1 + 2 + 3 + 4
    widths = [float(each.attrib["width"]) for each in root.findall(f"{space}g/{space}rect")]
    assert max(widths) == pytest.approx(1199.5)


def test_a_trace_has_an_event_for_each_interval() -> None:
    events = json.loads(trace_text(PROFILE))["traceEvents"]
    done = [each for each in events if each["ph"] == "X"]
    assert [(each["tid"], each["ts"], each["dur"]) for each in done] == [
        (0, 0.0, 3.0),
        (1, 3.0, 4.0),
    ]
    assert done[0]["name"] == ROWS[0].title
    assert [each["args"]["name"] for each in events[:3]] == ["m.dlm: f", "thread 0", "thread 1"]


def test_slow_names_the_three_largest_gaps_with_reasons() -> None:
    assert [each.path for each in largest_gaps(PROFILE)] == ["blocks.0.down", "blocks.1.up", ""]
    found = answer(PROFILE)
    assert "1. blocks.0.down · matmul 8×64×16 + add" in found.text
    assert "m.dlm:8:5 | line 8" in found.text
    assert "the compiler left it so: pack: too few rows (rows 8)" in found.text
    assert "threads work on it at a time" in found.text
    assert len(found.data["gaps"]) == 3  # pyright: ignore[reportArgumentType]


TRAINED = """dlc 1
dim B = 1..50
module Line {
  param w: f32[3] = normal(1)
  fn guess(x: f32[B, 3]) -> f32[B] = x @ w
}
train Line {
  data = npz("points.npz", x="x", y="y")
  loss(x: f32[B, 3], y: f32[B]) = mean(square(guess(x) - y))
  optimizer = adam(lr=0.01)
  batch = 12
  epochs = 1
}
"""


def test_a_model_is_profiled_from_its_text_with_its_decisions() -> None:
    text = "dlc 1\nexport fn f(x: f32[64, 64]) -> f32[64, 64] = exp(x @ x) + 1\n"
    request = CompileRequest("m.dlm", text=text)
    found = profile_model(ProfileRequest(request, CallRequest("m.dlm", seed=0), 1, 2))
    assert found.rows[0].title == "matmul 64×64×64 + exp + add"
    assert any("epilogue" in told for told in found.decisions["m.dlm:2"])


@pytest.mark.parametrize(("dims", "bound", "wanted"), [({}, 50, 12), ({"B": 3}, 50, 3), ({}, 8, 8)])
def test_a_step_of_training_takes_a_batch_of_the_block(
    dims: dict[str, int], bound: int, wanted: int
) -> None:
    request = CompileRequest("m.dlm", text=TRAINED.replace("1..50", f"1..{bound}"))
    call = CallRequest("m.dlm", dims=dims, seed=0)
    found = profile_model(ProfileRequest(request, call, 1, 1, train=True))
    assert found.dims["B"] == wanted


def test_a_step_of_training_and_another_entry_point_are_one_too_many() -> None:
    asked = ProfileRequest(
        CompileRequest("m.dlm", text="dlc 1\n"), CallRequest("m.dlm", "f"), train=True
    )
    with pytest.raises(UsageError, match="--train profiles a step of training"):
        profile_model(asked)


@pytest.mark.parametrize(
    ("text", "code"), [("{", "D0907"), ("[" * 100_000, "D0907"), (None, "D0501")]
)
def test_a_file_that_is_not_a_profile_is_refused(
    tmp_path: Path, text: str | None, code: str
) -> None:
    path = tmp_path / "old.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read_profile(str(path))
    assert caught.value.diagnostics[0].code == code
    assert "No such" not in caught.value.diagnostics[0].message
