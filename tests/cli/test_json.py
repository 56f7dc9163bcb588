"""`--json`: every verb writes one JSON value to stdout, whether it succeeds or fails."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

import numpy as np
import onnx
import pytest
from onnx import helper

from dlc.cli.app import VERBS
from dlc.errors.catalog import PAGES
from tests.cli.conftest import Command
from tests.documents import ROOT
from tests.suites import together

Data = dict[str, object]

TRAINED = """\
dlc 1
import nn (Linear)
dim B = 1..8

module Small() {
  use layer = Linear(3, 2)
  export fn scores(x: f32[B, 3]) -> f32[B, 2] = layer(x)
}

train Small {
  data = npz("rows.npz", x="x", y="y")
  loss(x: f32[B, 3], y: i32[B]) = mean(cross_entropy(scores(x), y))
  optimizer = sgd(lr=0.1)
  batch = 4
  epochs = 1
}
"""

SUCCEED = {
    "compile": "rows.dlm -o made.dlc",
    "run": "rows.dlm --input x=[[1,2,3]]",
    "train": "small.dlm",
    "show": "rows.dlm --stage plan",
    "opt": "rows.dlm --passes cse",
    "bench": "rows.dlm --seconds 0",
    "profile": "rows.dlm --rounds 1",
    "probe": "rows.dlm",
    "scale": "small.dlm --ranks 2",
    "check": "rows.dlm",
    "gradcheck": "rows.dlm",
    "diff": "rows.dlm",
    "reduce": "rows.dlm --test true",
    "fmt": "--check rows.dlm",
    "import": "sums.onnx -o sums.dlm",
    "inspect": "rows.dlm",
    "stubs": "rows.dlm",
    "memory": "rows.dlm",
    "why": "rows.dlm",
    "ops": "softmax",
    "doc": "softmax",
    "lsp": "",
    "cache": "ls",
    "tune": "--quick -o costs.json",
    "new": "fresh",
    "doctor": "",
    "explain": "D0301",
}
FAIL = {
    "compile": ("rows.dlm --target gpu", "D0902"),
    "run": ("rows.dlm --input x=[[1,2]]", "D0803"),
    "train": ("rows.dlm", "D0531"),
    "show": ("rows.dlm --stage soup", "D0915"),
    "opt": ("rows.dlm --passes nothing", "D0901"),
    "bench": ("gone.dlm", "D0501"),
    "profile": ("rows.dlm --compare rows.dlm", "D0907"),
    "probe": ("gone.dlm", "D0501"),
    "scale": ("small.dlm --ranks 0", "D0901"),
    "check": ("wrong.dlm", "D0321"),
    "gradcheck": ("rows.dlm --order 3", "D0901"),
    "diff": ("rows.dlm --against rows.txt", "D0901"),
    "reduce": ("rows.dlm --test false", "D0905"),
    "fmt": ("rows.txt", "D0903"),
    "import": ("rows.dlm", "D0903"),
    "inspect": ("broken.dlc", "D0601"),
    "stubs": ("broken.dlc", "D0601"),
    "memory": ("rows.dlm --dim C=3", "D0906"),
    "why": ("gone.dlm", "D0501"),
    "ops": ("qqqqq", "D0914"),
    "doc": ("sofmax", "D0914"),
    "lsp": ("--everything", "D0901"),
    "cache": ("explain zz", "D0961"),
    "tune": ("-o gone/costs.json", "D0502"),
    "new": ("3d", "D0913"),
    "doctor": ("--everything", "D0901"),
    "explain": ("D9999", "D0917"),
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of a few entries, as one verb lists them all."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def files(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DLC_CACHE", str(cache))
    (folder / "small.dlm").write_text(TRAINED)
    (folder / "wrong.dlm").write_text("dlc 1\nexport fn f(x: f32[3]) -> i32[3] = x\n")
    (folder / "buffers.csv").write_text("id,lower,upper,size\n0,0,2,64\n1,1,3,32\n")
    (folder / "broken.dlc").write_bytes(b"nothing of that kind")
    np.savez(
        folder / "rows.npz",
        x=np.arange(24, dtype=np.float32).reshape(8, 3),
        y=np.arange(8, dtype=np.int32) % 2,
    )
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        "sums",
        [value("x", onnx.TensorProto.FLOAT, [2, 3])],
        [value("y", onnx.TensorProto.FLOAT, [2, 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    (folder / "sums.onnx").write_bytes(model.SerializeToString())
    return folder


def test_every_verb_is_tried() -> None:
    assert set(SUCCEED) == set(FAIL) == set(VERBS)


@pytest.mark.parametrize(
    "verb", [pytest.param(each, marks=[pytest.mark.long] * (each == "tune")) for each in SUCCEED]
)
def test_a_result_is_one_json_value_whose_names_the_page_has(
    dlc: Command, files: Path, verb: str
) -> None:
    done = dlc(verb, *SUCCEED[verb].split(), "--json")
    assert done.code == 0, done.err
    assert done.data
    assert '"errors"' not in done.out
    data = list(cast("Data", done.data).values()) if verb == "explain" else done.data
    first = cast("Data", cast("list[object]", data)[0] if isinstance(data, list) else data)
    assert set(first) <= documented(verb)


@together("verb", FAIL)
def test_a_failure_is_one_json_value(dlc: Command, files: Path, verb: str) -> None:
    arguments, code = FAIL[verb]
    done = dlc(verb, *arguments.split(), "--json")
    assert done.code != 0
    first = cast("dict[str, list[Data]]", done.data)["errors"][0]
    assert first["code"] == code, first
    assert code in PAGES
    assert str(first["message"]) in done.err


def test_an_error_has_its_place_and_both_sides(dlc: Command, files: Path) -> None:
    done = dlc("check", "wrong.dlm", "--json")
    (error,) = cast("dict[str, list[Data]]", done.data)["errors"]
    assert (error["file"], error["line"], error["column"], error["end"]) == ("wrong.dlm", 2, 36, 37)
    assert (error["found"], error["expected"]) == ("f32[3]", "i32[3]")
    assert error["help"] == "convert it: i32(...)"


def test_the_version_is_json_too(dlc: Command) -> None:
    assert list(cast("Data", dlc("--version", "--json").data)) == ["version"]
    assert cast("Data", dlc("--json", "--version").data) == dlc("--version", "--json").data
    verbs = cast("dict[str, Data]", dlc("--json").data)["verbs"]
    assert list(verbs) == list(VERBS)
    assert dlc("--json", "check", "rows.dlm").code == 2


def test_a_model_is_described_by_fields(dlc: Command, files: Path) -> None:
    found = cast("dict[str, list[Data]]", dlc("inspect", "rows.dlm", "--json").data)
    (entry,) = found["entries"]
    assert entry["name"] == "f"
    assert entry["doc"] == "Sums of rows, and of everything."
    assert entry["dims"] == [{"name": "B", "low": 1, "high": 64, "at_most": None}]
    assert entry["inputs"] == [
        {
            "name": "x",
            "dtype": "f32",
            "shape": ["B", 3],
            "doc": "",
            "optional": False,
            "default": None,
            "inout": False,
        },
        {
            "name": "y",
            "dtype": "f32",
            "shape": [3],
            "doc": "",
            "optional": True,
            "default": [1.0, 2.0, 3.0],
            "inout": False,
        },
    ]
    assert entry["results"] == [
        {"name": "total", "dtype": "f32", "shape": [], "doc": ""},
        {"name": "rows", "dtype": "f32", "shape": ["B"], "doc": ""},
    ]
    assert cast("Data", dlc("check", "rows.dlm", "--json").data)["entries"] == [entry]


def test_an_artifact_is_described_by_fields(dlc: Command, files: Path) -> None:
    assert dlc("compile", "small.dlm", "--weights", "init:0").code == 0
    found = cast("dict[str, list[Data]]", dlc("inspect", "small.dlc", "--json").data)
    assert found["stage"] == "artifact"
    assert found["parameters"] == 8
    assert [row["name"] for row in found["weights"]] == ["layer.w", "layer.b"]
    assert [row["bytes"] for row in found["weights"]] == [24, 8]
    assert [row["type"] for row in found["layers"]] == ["Small()", "Linear(inputs=3, outputs=2)"]
    assert {"text/small.dlm", "graph", "weights"} < {row["name"] for row in found["sections"]}
    assert found["targets"][0]["name"] == "cpu"


def test_a_page_is_described_by_fields(dlc: Command) -> None:
    page = cast("Data", dlc("doc", "softmax", "--json").data)
    assert page["signature"] == "softmax(x: float, axis: axis = -1)"
    assert page["example"] == "softmax([0.0, 0.0])"
    assert page["gives"] == "[0.5, 0.5]: f32[2]"
    assert page["operations"] == ["nn.softmax"]
    assert page["derivative"] == "by a rule of its own"
    assert [part["name"] for part in cast("list[Data]", page["parts"])] == ["x", "axis"]


PAGE = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
"""The page about all of this."""


def documented(verb: str) -> set[str]:
    """The names that the page has for a verb's value."""
    (row,) = re.findall(rf"^\| `{verb}` \| (.*) \|$", PAGE, flags=re.M)
    return set(re.findall(r"`(\w+)`", row))


def documented_in(title: str) -> set[str]:
    """The names that a section of the page has."""
    _, _, rest = PAGE.partition(f"## {title}\n")
    return set(re.findall(r"`(\w+)`", rest.partition("\n## ")[0]))


def test_the_page_about_json_has_every_name_of_errors_and_entry_points(
    dlc: Command, files: Path
) -> None:
    (error,) = cast("dict[str, list[Data]]", dlc("check", "wrong.dlm", "--json").data)["errors"]
    (entry,) = cast("dict[str, list[Data]]", dlc("check", "rows.dlm", "--json").data)["entries"]
    parts = [part for name in ("inputs", "results", "dims") for part in rows(entry, name)]
    for name in {*error, *entry, *[name for part in parts for name in part]}:
        assert f"`{name}`" in PAGE, name


def rows(entry: Data, name: str) -> list[Data]:
    return cast("list[Data]", entry[name])
