"""What the tests on a GPU found, as files: `out/gpu/tests.md` for people, `tests.json` for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.gpu_machine import facts

OUT = Path("out/gpu")


def write(root: Path, reports: Sequence[pytest.TestReport]) -> None:
    """Write both files below the folder of the checkout."""
    folder = root / OUT
    folder.mkdir(parents=True, exist_ok=True)
    data = {**facts(), **gathered(reports)}
    (folder / "tests.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    (folder / "tests.md").write_text(page(facts(), reports), encoding="utf-8")


def gathered(reports: Sequence[pytest.TestReport]) -> dict[str, object]:
    """How many passed, and what became of each."""
    counts = Counter(report.outcome for report in reports)
    tests = [
        {
            "name": report.nodeid.partition("::")[2],
            "outcome": report.outcome,
            "seconds": round(report.duration, 3),
            **({"why": report.longreprtext[-4000:]} if report.outcome == "failed" else {}),
        }
        for report in reports
    ]
    return {"counts": dict(counts), "tests": tests}


def page(machine: dict[str, str], reports: Sequence[pytest.TestReport]) -> str:
    """A table of the kinds of tests, then the names of those that failed."""
    kinds: dict[str, Counter[str]] = {}
    for report in reports:
        kind = report.nodeid.partition("::")[2].partition("[")[0]
        kinds.setdefault(kind, Counter())[report.outcome] += 1
    lines = ["# The tests on a GPU", ""]
    lines += [f"- {what}: {value}" for what, value in machine.items()]
    lines += ["", "| tests | passed | failed | skipped |", "| :-- | --: | --: | --: |"]
    for kind, counts in kinds.items():
        cells = " | ".join(str(counts[outcome]) for outcome in ("passed", "failed", "skipped"))
        lines.append(f"| {kind.removeprefix('test_').replace('_', ' ')} | {cells} |")
    failed = [report for report in reports if report.outcome == "failed"]
    if failed:
        lines += ["", "Failed:", ""]
        lines += [f"- `{report.nodeid.partition('::')[2]}`: {_reason(report)}" for report in failed]
    return "\n".join([*lines, ""])


def _reason(report: pytest.TestReport) -> str:
    """The last line that says something."""
    lines = [line for line in report.longreprtext.splitlines() if line.startswith("E ")]
    return (lines or report.longreprtext.splitlines() or [""])[0].removeprefix("E").strip()[:200]
