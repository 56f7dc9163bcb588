"""benchmarks/moved.py: commits that only move code, and one that changes it, too."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks import moved

LEXER = '"""Words."""\n\nimport re\n\n\ndef words(text):\n    """All of them."""\n    return text.split()\n'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose last commit moved `dlc/lexer.py` to `dlc/text/lexer.py`."""
    (tmp_path / "dlc" / "text").mkdir(parents=True)
    git(tmp_path, "init", "-q")
    old, new = tmp_path / "dlc" / "lexer.py", tmp_path / "dlc" / "text" / "lexer.py"
    old.write_text(LEXER)
    commit(tmp_path)
    old.unlink()
    new.write_text(LEXER.replace("import re", "from dlc import re").replace("All", "Each"))
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=x", "-c", "user.email=x@y")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "x")


def test_a_moved_module_with_other_imports_and_words_is_the_same(checkout: Path) -> None:
    assert moved.differences("HEAD", checkout) == []


def test_a_statement_that_is_changed_is_named(checkout: Path) -> None:
    path = checkout / "dlc" / "text" / "lexer.py"
    path.write_text(LEXER.replace("split()", "split(' ')") + "\n\nWORD = 1\n")
    commit(checkout)
    assert moved.differences("HEAD", checkout) == [
        "- def words(text):",
        "+ def words(text):",
        "+ WORD = 1",
    ]
