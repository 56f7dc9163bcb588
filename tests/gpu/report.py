"""What the tests on a GPU found, as two files: `tests.md` for people, `tests.json` for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypedDict, cast

import pytest

from benchmarks.gpu.machine import facts

OUT = Path("out/gpu")
"""The folder that the next run goes on from."""
KINDS = ("passed", "failed", "skipped")
MOST = 8000
"""Letters that are kept of why a test failed: what went wrong, with the log of the driver, comes first."""


@dataclass(frozen=True, slots=True)
class Found:
    """What became of a test."""

    name: str
    outcome: str
    seconds: float
    why: str = ""

    @classmethod
    def of(cls, report: pytest.TestReport) -> Found:
        why = report.longreprtext[:MOST] if report.outcome == "failed" else ""
        name = report.nodeid.partition("::")[2]
        return cls(name, report.outcome, round(report.duration, 3), why)


class _File(TypedDict):
    tests: list[dict[str, object]]


def write(folder: Path, found: Sequence[Found], compiled_for: str | None = None) -> None:
    """Write both files into a folder: of what ran here, or was only compiled for a kind of GPU."""
    told = _facts(compiled_for)
    folder.mkdir(parents=True, exist_ok=True)
    counts = Counter(each.outcome for each in found)
    data = {**told, "counts": dict(counts), "tests": [asdict(each) for each in found]}
    _replace(folder / "tests.json", json.dumps(data, indent=1) + "\n")
    _replace(folder / "tests.md", page(told, found))


def _replace(file: Path, text: str) -> None:
    """Write a file that is whole at any time: the next run reads it if this one is ended now."""
    new = file.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(file)


def _facts(compiled_for: str | None) -> Mapping[str, str]:
    if compiled_for is None:
        return facts()
    return {**facts(), "device": f"none: everything is compiled for {compiled_for}, nothing is run"}


def earlier(folder: Path, compiled_for: str | None = None) -> list[Found]:
    """What a run before found, of this commit, on this device and with these packages."""
    file = folder / "tests.json"
    if not file.exists():
        return []
    data: Mapping[str, object] = json.loads(file.read_text("utf-8"))
    now = _facts(compiled_for)
    if any(data.get(name) != value for name, value in now.items() if name != "date"):
        return []
    return [Found(**each) for each in cast(_File, data)["tests"]]  # pyright: ignore[reportArgumentType]


def page(machine: Mapping[str, str], found: Sequence[Found]) -> str:
    """A table of the kinds of tests, then the names of those that failed."""
    kinds: dict[str, Counter[str]] = {}
    for each in found:
        kinds.setdefault(each.name.partition("[")[0], Counter())[each.outcome] += 1
    lines = ["# The tests on a GPU", ""]
    lines += [f"- {what}: {value}" for what, value in machine.items()]
    lines += ["", "| tests | passed | failed | skipped |", "| :-- | --: | --: | --: |"]
    for kind, counts in kinds.items():
        cells = " | ".join(str(counts[outcome]) for outcome in KINDS)
        lines.append(f"| {kind.removeprefix('test_').replace('_', ' ')} | {cells} |")
    failed = [each for each in found if each.outcome == "failed"]
    if failed:
        lines += ["", "Failed:", ""]
        lines += [f"- `{each.name}`: {_reason(each.why)}" for each in failed]
    return "\n".join([*lines, ""])


def _reason(why: str) -> str:
    """What went wrong, without where, in one line."""
    return " ".join(why.partition("\n\n")[0].split())[:300]
