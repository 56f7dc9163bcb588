"""Whole programs of JAX through dlc: values at several sizes and gradients, against JAX.

    python -m benchmarks jax_programs [--only PATTERN] [--jobs J] [--json FILE] [--show]

JAX exports each program to StableHLO; dlc imports and compiles it. Three checks: its values; the values of
its gradient, traced by JAX into a program of its own; and dlc's gradient of the imported program, by
`dlc.to_jax`. A figure is the largest error relative to the largest element; what is not within a few
roundings of JAX must be as near to a computation in f64. Ends with 3 if anything is wrong or broken.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from benchmarks.jax_programs.examine import CHECKS, Finding, examine
from benchmarks.jax_programs.program import load_programs
from benchmarks.stablehlo_suite.workers import Lost, work_through

NUMBERS_DIFFER = 3
SECONDS = 300
"""The most for a program."""


def main() -> int:
    """Print the table; gives the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="a regular expression for the names of programs")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="why a program is refused or wrong")
    parser.add_argument("--json", type=Path, help="where to write the findings")
    given = parser.parse_args()
    names = [name for name in load_programs() if re.search(given.only, name)]
    found: dict[str, Mapping[str, Finding]] = {}
    print(f"{'program':42}", *[f"{check:>16}" for check in CHECKS])
    for name, findings in work_through(examine, names, given.jobs, SECONDS):
        if isinstance(findings, Lost):
            findings = dict.fromkeys(CHECKS, Finding("broken", why=findings.why))
        found[name] = findings
        print(f"{name:42}", *[f"{spelled(findings[check]):>16}" for check in CHECKS], flush=True)
        if given.show:
            for check in CHECKS:
                if findings[check].why:
                    print(f"    {check}: {' '.join(findings[check].why.split())[:300]}")
    if given.json is not None:
        given.json.write_text(json.dumps(as_json(found), indent=1), encoding="utf-8")
    return print_counts(found)


def spelled(finding: Finding) -> str:
    """A finding in a column."""
    return f"{finding.error:.0e}" if finding.verdict == "agrees" else finding.verdict


def as_json(found: Mapping[str, Mapping[str, Finding]]) -> object:
    """The findings by program and check."""
    return {
        name: {
            check: {"verdict": one.verdict, "error": one.error, "why": one.why}
            for check, one in findings.items()
        }
        for name, findings in found.items()
    }


def print_counts(found: Mapping[str, Mapping[str, Finding]]) -> int:
    """How many programs have which verdict by check; gives the exit code."""
    bad = 0
    for check in CHECKS:
        counts = Counter(findings[check].verdict for findings in found.values())
        bad += counts["wrong"] + counts["broken"]
        print(f"{check:42}", ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return NUMBERS_DIFFER if bad else 0


if __name__ == "__main__":
    sys.exit(main())
