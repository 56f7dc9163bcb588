"""The programs of docs/jax.md run, and print what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import documents
from tests.documents import ROOT

pytest.importorskip("jax", reason="JAX is not installed: make test-jax")


def test_programs_on_the_page_print_what_it_says(tmp_path: Path) -> None:
    found = documents.blocks("docs/jax.md")
    done = subprocess.run(
        [sys.executable, "-c", documents.programs(found)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "DLC_CACHE": str(tmp_path / "cache"), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for block, printed in documents.printed(found, done.stdout):
        assert documents.agrees(printed, block.text), printed
