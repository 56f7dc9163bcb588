"""JAX's own cases of single operations: how many agree, are refused and why, or are wrong, by primitive.

    python -m benchmarks stablehlo_suite [--only PATTERN] [--count N] [--jobs J] [--x64] [--json FILE]
                                         [--show wrong,broken] [--seconds 60]

JAX exports each case to StableHLO once, as text or portable bytecode, and computes its results; they are
kept in the cache folder. `--count` takes a number of cases, evenly spread. No case may be wrong or
broken: the program ends with 3.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.stablehlo_suite import cases
from benchmarks.stablehlo_suite.examine import VERDICTS, Outcome, Task, examine
from benchmarks.stablehlo_suite.workers import Lost, work_through

NUMBERS_DIFFER = 3


def main() -> int:
    """Run it and print the tables; gives the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="a regular expression for the names of cases")
    parser.add_argument("--count", type=int, help="at most this many cases")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60, help="the most for a case")
    parser.add_argument("--x64", action="store_true", help="with types of 64 bits")
    parser.add_argument("--show", default="wrong,broken")
    parser.add_argument("--json", type=Path, help="a line for each case, as they are done")
    given = parser.parse_args()
    tasks = chosen(given.only, given.count, x64=given.x64)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["DLC_CACHE"] = cache
        found = sorted(
            outcomes(tasks, given.jobs, given.seconds, given.json), key=lambda one: one.name
        )
    print_tables(found, set(given.show.split(",")))
    return NUMBERS_DIFFER if {"wrong", "broken"} & {one.verdict for one in found} else 0


def chosen(pattern: str, count: int | None, *, x64: bool) -> list[Task]:
    """The cases whose names have the pattern; with a count that many of them, evenly spread."""
    names = [name for name in cases.harnesses(x64=x64) if re.search(pattern, name)]
    step = 1 if count is None else max(1, len(names) // count)
    return [Task(name, x64) for name in names[::step][:count]]


def outcomes(
    tasks: Sequence[Task], jobs: int, seconds: float, lines: Path | None = None
) -> Iterator[Outcome]:
    """What becomes of each case, as they are done; each is a line of JSON in the file `lines`, too."""
    if lines is not None:
        lines.write_text("", encoding="utf-8")
    for number, (task, found) in enumerate(work_through(examine, tasks, jobs, seconds), 1):
        if isinstance(found, Lost):
            primitive = cases.primitive_of(task.name, x64=task.x64)
            found = Outcome(task.name, primitive, "broken", found.why)
        if number % 200 == 0:
            print(f"{number} of {len(tasks)}", file=sys.stderr, flush=True)
        if lines is not None:
            with lines.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(found)) + "\n")
        yield found


def reason(why: str) -> str:
    """A refusal without what is particular to a case: names, numbers, shapes."""
    first = " ".join(why.partition("\n")[0].split())
    first = re.sub(r"tensor<[^>]*>|[a-z]+\d*\[[^\]]*\]", "T", first)
    return re.sub(r"\b\d+\b", "N", first.replace("case.mlir", "it"))[:110]


def print_tables(found: Sequence[Outcome], shown: set[str]) -> None:
    """Single cases, then refusals by reason, then counts by primitive and in all."""
    for one in found:
        if one.verdict in shown:
            print(f"{one.verdict:8} {one.name[:110]}: {' '.join(one.why.split())[:240]}")
    refused = Counter(reason(one.why) for one in found if one.verdict == "refused")
    for why, count in refused.most_common():
        print(f"{count:6} refused: {why}")
    print(f"{'primitive':28}", *[f"{verdict:>9}" for verdict in VERDICTS])
    for primitive in sorted({one.primitive for one in found}):
        print_row(primitive, [one for one in found if one.primitive == primitive])
    print_row("portable bytecode", [one for one in found if not one.is_text])
    print_row("all", found)


def print_row(name: str, found: Sequence[Outcome]) -> None:
    """How many of these have which verdict."""
    counts = Counter(one.verdict for one in found)
    print(f"{name:28}", *[f"{counts[verdict] or '':>9}" for verdict in VERDICTS])


if __name__ == "__main__":
    sys.exit(main())
