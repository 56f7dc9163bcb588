"""`python -m benchmarks NAME`: each benchmark says what it measures, and pages name no other ones."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.__main__ import IN_FOLDERS, programs, summary

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(r"-m benchmarks[ .]([a-z_]+)")


def test_contenders_are_not_benchmarks() -> None:
    known = programs()
    assert {"compile", "training", *IN_FOLDERS} <= known.keys()
    assert not [name for name in known if name.startswith("contender")]


def test_every_benchmark_says_what_it_measures() -> None:
    assert [name for name, module in programs().items() if not summary(module)] == []


def test_every_benchmark_that_a_page_names_exists() -> None:
    pages = [
        *ROOT.glob("docs/*.md"),
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "Makefile",
    ]
    named = {name for page in pages for name in COMMAND.findall(page.read_text("utf-8"))}
    assert len(named) > 10
    assert named - programs().keys() == set()
