"""The programs of the pages that need PyTorch run, and print what the pages say."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests import documents
from tests.documents import ROOT

pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")


def test_programs_on_the_page_print_what_it_says(tmp_path: Path) -> None:
    found = documents.blocks("docs/pytorch.md")
    for block, printed in documents.printed(found, output(documents.programs(found), tmp_path)):
        assert documents.agrees(printed, block.text), printed


@pytest.mark.parametrize("page", ["docs/from-pytorch.md", "docs/recipes.md"])
def test_programs_of_pytorch_on_a_page_run(page: str, tmp_path: Path) -> None:
    found = [
        replace(block, title="") if block.title == "PyTorch" else block
        for block in documents.blocks(page)
        if block.title
    ]
    output(documents.programs(found), tmp_path)


def output(program: str, folder: Path) -> str:
    """What a program prints that runs by itself in a folder."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "DLC_CACHE": str(folder / "cache"), "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
