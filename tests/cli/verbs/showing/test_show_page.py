"""`dlc show --html` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dlc.cli import main

TEXT = "dlc 1\nexport fn f(x: f32[4]) -> f32[4] = sin(x) * 2\n"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "m.dlm"
    path.write_text(TEXT)
    return path


def test_a_page_is_written_and_its_size_told(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", "m.dlm", "--html", "m.html"]) == 0
    size = Path("m.html").stat().st_size
    assert capsys.readouterr().out == f"m.html: {size:,} bytes\n"
    assert main(["show", "m.dlm", "--html", "m.html", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"model": "m.dlm", "page": "m.html", "bytes": size}


def test_times_need_a_page(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "m.dlm", "--profile", "p.json"]) == 2
    assert "error[D0915]: --profile gives the times of a page" in capsys.readouterr().err
