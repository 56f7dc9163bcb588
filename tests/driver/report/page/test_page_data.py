"""The page of `dlc show --html`: what became of what, and that the page needs nothing else."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path

import pytest

from dlc.driver.report.page import page
from dlc.driver.report.page.data import page_data
from dlc.driver.report.page.schema import JsonPage
from dlc.driver.report.page.times import add_times
from dlc.driver.report.show import Shown, show_stage
from dlc.driver.run.request import CompileRequest
from dlc.errors import UsageError

EXAMPLES = Path(__file__).parents[4] / "examples"
TWO_LAYERS = """\
dlc 1
import nn (Linear)
dim B = 1..8
module Net {
  use up = Linear(4, 16)
  use down = Linear(16, 2)
  export fn f(x: f32[B, 4]) -> f32[B, 2] = down(tanh(up(x)))
}
"""


@pytest.fixture(scope="module")
def two_layers() -> JsonPage:
    return page_data(CompileRequest("net.dlm", text=TWO_LAYERS))


def reached(data: JsonPage, id: str) -> set[str]:
    """All that a node became."""
    found, pending = set[str](), [id]
    while pending:
        source = pending.pop()
        following = {to for source_, to in data["links"] if source_ == source} - found
        found |= following
        pending += following
    return found


def named(data: JsonPage, name: str, level: str) -> list[str]:
    """The nodes of a level whose names begin so."""
    return [
        id for id, n in data["nodes"].items() if n["name"].startswith(name) and level in n["at"]
    ]


def test_an_operation_of_the_graph_leads_down_to_its_code(two_layers: JsonPage) -> None:
    (tanh,) = named(two_layers, "array.tanh", "graph")
    down = reached(two_layers, tanh)
    assert {id[0] for id in down} == {"k", "p", "f"}
    kernels = {two_layers["nodes"][id]["name"] for id in down if id[0] == "k"}
    assert kernels == {"kernel.gemm"}
    codes = [two_layers["nodes"][id] for id in down if id[0] == "f"]
    assert [sorted(code["at"]) for code in codes] == [["asm", "llvm", "loop"]]


def test_what_is_fused_leads_to_one_kernel_and_layers_to_their_own(two_layers: JsonPage) -> None:
    (tanh,) = named(two_layers, "array.tanh", "graph")
    up, down = named(two_layers, "nn.linear", "graph")
    kernels = [{id for id in reached(two_layers, op) if id[0] == "k"} for op in (tanh, up, down)]
    assert kernels[0] == kernels[1] and len(kernels[2]) == 1 and kernels[1] != kernels[2]


def test_what_is_fused_into_one_of_several_kernels_of_its_reader_leads_to_that_one() -> None:
    text = """\
dlc 1
import nn (Conv2d)
module Net {
  use conv = Conv2d(1, 16, kernel=3, padding=1)
  export fn f(x: u8[1, 8, 8, 1]) -> f32[1, 8, 8, 16] = tanh(conv(f32(x) / 255))
}
"""
    data = page_data(CompileRequest("net.dlm", text=text))
    names = ("array.cast", "array.multiply", "array.tanh")
    ops = [op for name in names for op in named(data, name, "graph")]
    kernels = [{id for id in reached(data, op) if id[0] == "k"} for op in ops]
    assert [len(each) for each in kernels] == [1, 1, 1]
    assert kernels[0] == kernels[1] != kernels[2]


def test_a_node_stands_at_its_lines_and_comes_from_the_users_line(two_layers: JsonPage) -> None:
    levels = {level["name"]: level["text"].splitlines() for level in two_layers["levels"]}
    assert list(levels) == ["text", "graph", "kernel", "plan", "loop", "llvm", "asm"]
    (tanh,) = (two_layers["nodes"][id] for id in named(two_layers, "array.tanh", "graph"))
    first, last = tanh["at"]["graph"]
    assert first == last and "array.tanh" in levels["graph"][first - 1]
    assert "down(tanh(up(x)))" in levels["text"][tanh["lines"][0] - 1]
    for node in two_layers["nodes"].values():
        for level, (first, last) in node["at"].items():
            assert 1 <= first <= last <= len(levels[level])


def test_decisions_belong_to_the_operations_of_their_place(two_layers: JsonPage) -> None:
    (kernel, *_) = named(two_layers, "kernel.gemm", "kernel")
    numbers = two_layers["nodes"][kernel]["decisions"]
    assert "fuse" in {two_layers["decisions"][number]["pass"] for number in numbers}


def test_the_picture_has_modules_with_rows_for_every_box(two_layers: JsonPage) -> None:
    (entry,) = two_layers["entries"]
    assert "graph" in entry
    graph = entry["graph"]
    titles = [(box["kind"], box["title"]) for box in graph["boxes"]]
    assert titles == [
        ("input", "x"),
        ("op", "nn.linear"),
        ("op", "tanh"),
        ("op", "nn.linear"),
        ("result", "f"),
    ]
    assert sorted(number for row in graph["rows"] for number in row) == list(range(5))
    assert {box["key"] for box in graph["boxes"]} - {""} <= two_layers["nodes"].keys()


def test_memory_names_the_steps_that_make_and_read_each_value(two_layers: JsonPage) -> None:
    (entry,) = two_layers["entries"]
    assert "memory" in entry
    memory = entry["memory"]
    assert memory["title"] == "f at B = 8"
    (hidden,) = [root for root in memory["roots"] if root["bytes"] == 8 * 16 * 4]
    made, read = hidden["made"], hidden["read"]
    assert made and read and set(made).isdisjoint(read)
    assert hidden["first"] < hidden["last"] and hidden["line"] > 0


def test_every_operation_of_an_example_leads_to_code() -> None:
    data = page_data(CompileRequest(str(EXAMPLES / "tiny_gpt.dlm")))
    graph = [id for id in data["nodes"] if id[0] == "g"]
    assert graph and all(any(to[0] == "f" for to in reached(data, id)) for id in graph)


def test_a_page_shows_the_functions_of_a_training() -> None:
    data = page_data(CompileRequest(str(EXAMPLES / "digits_mlp.dlm"), to_train=True))
    assert [entry["name"] for entry in data["entries"]] == ["train_step", "evaluate"]
    assert all("graph" in entry and "memory" in entry for entry in data["entries"])


def test_ir_that_was_read_below_the_graph_is_shown_from_there_on(tmp_path: Path) -> None:
    kernels = tmp_path / "net.dlir"
    kernels.write_text(show_stage(CompileRequest("net.dlm", text=TWO_LAYERS), Shown("kernel")))
    data = page_data(CompileRequest(str(kernels)))
    assert [level["name"] for level in data["levels"]][:3] == ["text", "kernel", "plan"]
    assert {id[0] for id in data["nodes"]} == {"k", "p", "f"}


# The page -----------------------------------------------------------------------------------------


def test_a_page_loads_nothing_and_holds_its_data(two_layers: JsonPage) -> None:
    text = page.page_of(two_layers)
    assert not re.search(r"(?:src|href)\s*=|@import|url\(|https?://(?!www\.w3\.org/2000/svg)", text)
    packed = re.search(r'<script id="data" type="text/plain">(.*?)</script>', text)
    assert packed is not None
    assert json.loads(zlib.decompress(base64.b64decode(packed[1]))) == two_layers
    assert len(text) < 400_000


def test_texts_that_are_too_long_are_left_out(
    two_layers: JsonPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    data: JsonPage = json.loads(json.dumps(two_layers))
    whole = len(page.page_of(data))
    monkeypatch.setattr(page, "LARGEST", whole // 4)
    assert len(page.page_of(data)) < whole
    texts = {level["name"]: level["text"] for level in data["levels"]}
    assert "dlc show --stage llvm prints it" in texts["llvm"]
    assert not any("llvm" in node["at"] for node in data["nodes"].values())


def test_times_of_a_profile_go_to_the_steps_of_the_same_code_and_line(
    two_layers: JsonPage, tmp_path: Path
) -> None:
    data: JsonPage = json.loads(json.dumps(two_layers))
    codes = {step: code for step, code in data["links"] if step[0] == "p"}
    (up, down) = [s for s in codes if data["nodes"][s]["name"].startswith("matmul")]
    rows = [
        {"kernel": data["nodes"][codes[step]]["name"], "place": place(data, step), "ms": ms}
        for step, ms in ((up, 2.0), (down, 1.0))
    ]
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps({"entry": "f", "kernels": rows}))
    add_times(data, str(profile))
    assert data["nodes"][up].get("seconds") == 0.002
    assert data["nodes"][down].get("seconds") == 0.001


def place(data: JsonPage, id: str) -> str:
    """The place of a node as a profile writes it."""
    line = data["nodes"][id]["lines"][0]
    file = [file for file in data["files"] if file["line"] < line][-1]
    return f"{file['name']}:{line - file['line']}:1"


@pytest.mark.parametrize(
    "text", ["no JSON", "{}", '{"entry": "other", "kernels": []}', "[" * 100_000]
)
def test_another_file_is_no_profile(two_layers: JsonPage, tmp_path: Path, text: str) -> None:
    profile = tmp_path / "profile.json"
    profile.write_text(text)
    with pytest.raises(UsageError) as caught:
        add_times(two_layers, str(profile))
    assert caught.value.diagnostics[0].code == "D0907"


@pytest.mark.parametrize(
    ("shown", "option"),
    [(Shown(svg=True), "--svg"), (Shown("plan"), "--stage"), (Shown(after="cse"), "--after")],
)
def test_a_page_is_of_every_level(tmp_path: Path, shown: Shown, option: str) -> None:
    with pytest.raises(UsageError, match=f"--html shows every level, and {option}") as caught:
        page.write_page(CompileRequest("net.dlm", text=TWO_LAYERS), shown, str(tmp_path / "p.html"))
    assert caught.value.diagnostics[0].code == "D0915"
    assert not list(tmp_path.iterdir())
