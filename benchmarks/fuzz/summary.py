"""The outcomes of a run of a fuzzer, summed; a run may be made in parts."""

from __future__ import annotations

import json
import resource
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path

from benchmarks.fuzz.cases import FAILURES, ROOT, Outcome, Verdict, placeholders

VERDICTS: tuple[Verdict, ...] = ("agreed", "refused", "unstable", "no peer", "wrong", "crashed")
SHOWN = 25
"""Reasons that are shown, the most frequent first."""


def _commit() -> str:
    """The commit that runs, with a `+` where files differ from it; empty where that is unknown."""
    command = ["git", "describe", "--always", "--dirty=+", "--match="]
    try:
        told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return told.stdout.strip()


@dataclass(slots=True)
class Part:
    """What one process of many hours' work has done."""

    day: str = field(default_factory=lambda: date.today().isoformat())
    commit: str = field(default_factory=_commit)
    cases: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Of all processes and their peers that have ended."""


@dataclass(slots=True)
class Summary:
    """Counts of outcomes, the reasons of those that did not agree, and each failure."""

    kind: str
    jobs: int
    seed: int = 0
    """That of the first case."""
    parts: list[Part] = field(default_factory=lambda: [Part()])
    """The last one is made now."""
    next: int = -1
    """The first seed that is still to be tried."""
    ahead: set[int] = field(default_factory=set[int])
    """Those behind it that are done."""
    began: float = field(default_factory=time.monotonic)
    counts: Counter[Verdict] = field(default_factory=Counter[Verdict])
    comparisons: int = 0
    reasons: dict[Verdict, Counter[str]] = field(default_factory=dict[Verdict, Counter[str]])
    examples: dict[str, int] = field(default_factory=dict[str, int])
    """For each reason the first seed that had it."""
    failures: list[tuple[int, Outcome]] = field(default_factory=list[tuple[int, Outcome]])

    def __post_init__(self) -> None:
        self.next = max(self.next, self.seed)

    @classmethod
    def going_on(cls, file: Path | None, kind: str, jobs: int, seed: int) -> Summary:
        """A run that goes on behind what a file has of it; one from its beginning where there is no file.

        Raises ValueError if the file is of another kind or begins with another seed.
        """
        if file is None or not file.exists():
            return cls(kind, jobs, seed)
        facts = json.loads(file.read_text(encoding="utf-8"))
        if (facts["kind"], facts["seed"]) != (kind, seed):
            raise ValueError(f"{file} is of {facts['kind']} from seed {facts['seed']} on")
        found = cls(
            kind,
            jobs,
            seed,
            [*[Part(**part) for part in facts["parts"]], Part()],
            facts["next"],
            set(facts["ahead"]),
            counts=Counter(facts["counts"]),
            comparisons=facts["comparisons"],
        )
        for verdict, rows in facts["reasons"].items():
            found.reasons[verdict] = Counter({row["what"]: row["times"] for row in rows})
            found.examples |= {row["what"]: row["seed"] for row in rows}
        found.failures = [
            (row["seed"], Outcome(row["verdict"], row["what"])) for row in facts["failures"]
        ]
        return found

    def left(self, count: int) -> Iterator[int]:
        """The seeds of a run of `count` cases that are still to be tried."""
        todo = range(self.next, self.seed + count)
        done = frozenset(self.ahead)
        return (seed for seed in todo if seed not in done)

    def add(self, seed: int, outcome: Outcome) -> None:
        """Count an outcome."""
        self.ahead.add(seed)
        while self.next in self.ahead:
            self.ahead.remove(self.next)
            self.next += 1
        self.parts[-1].cases += 1
        self.counts[outcome.verdict] += 1
        if outcome.verdict == "agreed":
            self.comparisons += outcome.count
            return
        what = placeholders(outcome.what.split("\n")[0])
        self.reasons.setdefault(outcome.verdict, Counter())[what] += 1
        self.examples.setdefault(what, seed)
        if outcome.verdict in FAILURES:
            self.failures.append((seed, outcome))

    @property
    def cases(self) -> int:
        """How many there were."""
        return self.counts.total()

    @property
    def failed(self) -> bool:
        """Whether anything was wrong or crashed."""
        return bool(self.failures)

    def repeat(self, seed: int) -> str:
        """The command that runs one case again."""
        return f"python -m benchmarks fuzz {self.kind} --seed {seed} --count 1"

    def failure(self, seed: int, outcome: Outcome) -> str:
        """A failure in a line, with the command that repeats it."""
        return f"{outcome.verdict}: seed {seed}: {outcome.what}\n    {self.repeat(seed)}"

    def _timed(self) -> tuple[float, float]:
        """Seconds of the clock, and those of processors of all processes and peers that have ended."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        part = self.parts[-1]
        part.seconds = round(time.monotonic() - self.began, 1)
        part.cpu_seconds = round(used.ru_utime + used.ru_stime, 1)
        return (
            sum(each.seconds for each in self.parts),
            sum(each.cpu_seconds for each in self.parts),
        )

    def lines(self) -> Iterator[str]:
        """The table: seconds of the clock, and of processors with the cases in each of these."""
        yield " ".join([f"{name:>9}" for name in ("cases", *VERDICTS, "seconds", "cpu", "/s cpu")])
        numbers = [f"{n:9}" for n in (self.cases, *[self.counts[each] for each in VERDICTS])]
        seconds, worked = self._timed()
        speed = self.cases / max(worked, 1e-9)
        yield " ".join([*numbers, f"{seconds:9.1f}", f"{worked:9.1f}", f"{speed:9.2f}"])
        yield f"{self.comparisons} comparisons in the cases that agreed"
        for verdict, reasons in self.reasons.items():
            yield f"{verdict}:"
            for what, times in reasons.most_common(SHOWN):
                yield f"{times:7} {what}  (seed {self.examples[what]})"
            if len(reasons) > SHOWN:
                yield f"        and {len(reasons) - SHOWN} further reasons"

    def as_json(self) -> str:
        """Everything that was counted."""
        seconds, worked = self._timed()
        facts = {
            "kind": self.kind,
            "seed": self.seed,
            "next": self.next,
            "ahead": sorted(self.ahead),
            "cases": self.cases,
            "comparisons": self.comparisons,
            "jobs": self.jobs,
            "seconds": round(seconds, 1),
            "cpu_seconds": round(worked, 1),
            "parts": [asdict(part) for part in self.parts],
            "counts": {name: self.counts[name] for name in VERDICTS},
            "reasons": {
                verdict: [
                    {"what": what, "times": times, "seed": self.examples[what]}
                    for what, times in reasons.most_common()
                ]
                for verdict, reasons in self.reasons.items()
            },
            "failures": [
                {
                    "seed": seed,
                    "verdict": one.verdict,
                    "what": one.what,
                    "repeat": self.repeat(seed),
                }
                for seed, one in self.failures
            ],
        }
        return json.dumps(facts, indent=2) + "\n"
