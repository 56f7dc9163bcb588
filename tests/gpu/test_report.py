"""What the tests on a GPU found is written down with when, where and of which commit that was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal, cast

import pytest

from tests.gpu import report


def of(
    name: str, outcome: Literal["passed", "failed", "skipped"], why: str = ""
) -> pytest.TestReport:
    nodeid = f"tests/gpu/test_on_a_gpu.py::{name}"
    place = ("tests/gpu/test_on_a_gpu.py", 1, name)
    return pytest.TestReport(nodeid, place, {}, outcome, why, "call", duration=0.5)


def test_the_files_tell_what_failed_where(tmp_path: Path) -> None:
    found = [
        of("test_an_operation_is_right[add]", "passed"),
        of("test_an_operation_is_right[sub]", "failed", "def test\nE   AssertionError: 1 is not 2"),
    ]
    report.write(tmp_path, found)
    page = (tmp_path / "out/gpu/tests.md").read_text("utf-8")
    assert "| an operation is right | 1 | 1 | 0 |" in page
    assert "- `test_an_operation_is_right[sub]`: AssertionError: 1 is not 2" in page
    data = cast(
        "dict[str, object]", json.loads((tmp_path / "out/gpu/tests.json").read_text("utf-8"))
    )
    assert data["counts"] == {"passed": 1, "failed": 1}
    assert {"date", "device", "commit", "numpy"} <= data.keys()
    for fact in ("date", "device", "commit"):
        assert f"- {fact}: {data[fact]}" in page
