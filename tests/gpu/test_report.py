"""What the tests on a GPU found is written down with when, where and of which commit that was."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, cast

import pytest

from dlc.codegen.nvptx.ptx import has_ptxas
from dlc.driver.compile import code_maker
from dlc.target.gpu import GpuTarget
from tests.gpu import report
from tests.gpu.cases import Operator
from tests.gpu.conftest import Findings, check_machine_code
from tests.gpu.report import Found
from tests.gpu.worker import CaseFailed

FOUND = [
    Found("test_an_operation_is_right[add]", "passed", 0.5),
    Found(
        "test_an_operation_is_right[sub]", "failed", 0.5, "AssertionError: 1\nis not 2\n\nTraceback"
    ),
]


def test_the_files_tell_what_failed_where(tmp_path: Path) -> None:
    report.write(tmp_path, FOUND)
    assert {file.name for file in tmp_path.iterdir()} == {"tests.md", "tests.json"}
    page = (tmp_path / "tests.md").read_text("utf-8")
    assert "| an operation is right | 1 | 1 | 0 |" in page
    assert "- `test_an_operation_is_right[sub]`: AssertionError: 1 is not 2" in page
    data = cast("dict[str, object]", json.loads((tmp_path / "tests.json").read_text("utf-8")))
    assert data["counts"] == {"passed": 1, "failed": 1}
    assert {"date", "device", "commit", "numpy"} <= data.keys()
    for fact in ("date", "device", "commit"):
        assert f"- {fact}: {data[fact]}" in page


def test_a_report_of_pytest_says_what_became_of_a_test() -> None:
    nodeid = "tests/gpu/test_on_a_gpu.py::test_it[add]"
    place = ("tests/gpu/test_on_a_gpu.py", 1, "test_it[add]")
    told = pytest.TestReport(nodeid, place, {}, "failed", "E   no", "call", duration=0.25)
    assert Found.of(told) == Found("test_it[add]", "failed", 0.25, "E   no")


def test_a_run_goes_on_from_one_of_the_same_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert report.earlier(tmp_path) == []
    monkeypatch.setattr(report, "facts", lambda: {"date": "today", "commit": "one"})
    report.write(tmp_path, FOUND)
    monkeypatch.setattr(report, "facts", lambda: {"date": "tomorrow", "commit": "one"})
    assert report.earlier(tmp_path) == FOUND
    monkeypatch.setattr(report, "facts", lambda: {"date": "today", "commit": "other"})
    assert report.earlier(tmp_path) == []


@dataclass(frozen=True)
class Asked:
    """The part of `pytest.Config` that is looked at."""

    rootpath: Path
    seconds: float | None
    out: str | None = None
    compile_for: str | None = None

    def getoption(self, name: str, default: object) -> object:
        return asdict(self).get(name, default)


def findings(
    root: Path, seconds: float | None, out: str | None = None, compile_for: str | None = None
) -> Findings:
    return Findings(cast(pytest.Config, Asked(root, seconds, out, compile_for)))


def told(outcome: Literal["passed", "failed", "skipped"], name: str) -> pytest.TestReport:
    nodeid = f"tests/gpu/test_on_a_gpu.py::{name}"
    return pytest.TestReport(nodeid, (nodeid, 1, name), {}, outcome, None, "call")


def test_a_run_with_seconds_goes_on_from_one_before(tmp_path: Path) -> None:
    first = findings(tmp_path, 60)
    assert 0 < first.left <= 60
    first.pytest_runtest_logreport(told("passed", "test_it[add]"))
    first.pytest_runtest_logreport(told("skipped", "test_it[sub]"))
    first.pytest_runtest_logreport(told("failed", "test_it[mul]"))
    first.write()
    again, whole = findings(tmp_path, 60), findings(tmp_path, None)
    names = ("test_it[add]", "test_it[sub]", "test_it[mul]", "test_it[div]")
    nodes = [f"tests/gpu/test_on_a_gpu.py::{name}" for name in names]
    assert [again.before(node) for node in nodes] == ["passed", None, "failed", None]
    assert {whole.before(node) for node in nodes} == {None}
    assert whole.left == float("inf")


def test_what_failed_is_not_forgotten_where_there_was_no_time_to_try_it_again(
    tmp_path: Path,
) -> None:
    first = findings(tmp_path, 60)
    for outcome in ("failed", "skipped"):
        first.pytest_runtest_logreport(told(outcome, "test_it[add]"))
    assert first.before("tests/gpu/test_on_a_gpu.py::test_it[add]") == "failed"


def test_the_files_also_go_to_the_folder_that_is_named(tmp_path: Path) -> None:
    for out, folder in (("found", "found"), (str(tmp_path / "x"), "x")):
        run = findings(tmp_path, None, out)
        run.pytest_runtest_logreport(told("passed", "test_it[add]"))
        run.write()
        for each in (folder, "out/gpu"):
            assert (tmp_path / each / "tests.json").exists()


def test_what_was_only_compiled_has_files_of_its_own_that_say_so(tmp_path: Path) -> None:
    first = findings(tmp_path, 60, compile_for="sm_90a")
    first.pytest_runtest_logreport(told("passed", "test_it[add]"))
    first.write()
    node = "tests/gpu/test_on_a_gpu.py::test_it[add]"
    assert findings(tmp_path, 60, compile_for="sm_90a").before(node) == "passed"
    assert findings(tmp_path, 60, compile_for="sm_80").before(node) is None
    assert findings(tmp_path, 60).before(node) is None, "it has not run"
    page = (tmp_path / "out/gpu/sm_90a/tests.md").read_text("utf-8")
    assert "- device: none: everything is compiled for sm_90a, nothing is run" in page


def artifacts(folder: Path) -> list[Path]:
    (folder / "0.dlc").write_bytes(Operator("array.add", 2, 1).compile("cuda:sm_90a")[0])
    return [folder / "0.dlc"]


def no_machine_code(ptx: str, kind: GpuTarget, cache: object) -> bytes:
    return b""


def test_a_case_that_is_only_compiled_is_assembled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if has_ptxas():
        check_machine_code(artifacts(tmp_path))
        assert not [*tmp_path.iterdir()]
    monkeypatch.setenv("DLC_CACHE", "")
    monkeypatch.setattr(code_maker, "assemble_ptx", no_machine_code)
    with pytest.raises(CaseFailed, match="no ptxas that knows cuda:sm_90a"):
        check_machine_code(artifacts(tmp_path))


def test_without_a_gpu_nothing_is_written(tmp_path: Path) -> None:
    none = findings(tmp_path, None)
    none.pytest_runtest_logreport(told("skipped", "test_it[add]"))
    none.write()
    assert not (tmp_path / "out").exists()
