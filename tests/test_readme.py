"""Every block of the README that can be run is run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dlc.text.parser import parse
from dlc.text.source import Source

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)


def blocks(language: str) -> list[str]:
    return [text for found, text in BLOCKS if found == language]


def test_every_block_has_a_language_that_is_tested() -> None:
    assert {language for language, _ in BLOCKS} <= {"dlm", "python"}


@pytest.mark.parametrize("text", blocks("dlm"))
def test_model_texts_of_the_readme_are_right(text: str) -> None:
    assert parse(Source("readme.dlm", text)).diagnostics == ()


@pytest.mark.parametrize("text", blocks("python"))
def test_python_of_the_readme_runs(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    exec(compile(text, "README.md", "exec"), {})
    assert "[[ 8. 14.]" in capsys.readouterr().out
