"""The outcomes of a run of a fuzzer, summed."""

from __future__ import annotations

import json
import resource
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.fuzz.cases import FAILURES, Outcome, Verdict, placeholders

VERDICTS: tuple[Verdict, ...] = ("agreed", "refused", "unstable", "no peer", "wrong", "crashed")
SHOWN = 25
"""Reasons that are shown, the most frequent first."""


@dataclass(slots=True)
class Summary:
    """Counts of outcomes, the reasons of those that did not agree, and each failure."""

    kind: str
    jobs: int
    began: float = field(default_factory=time.monotonic)
    counts: Counter[Verdict] = field(default_factory=Counter[Verdict])
    comparisons: int = 0
    reasons: dict[Verdict, Counter[str]] = field(default_factory=dict[Verdict, Counter[str]])
    examples: dict[str, int] = field(default_factory=dict[str, int])
    """For each reason the first seed that had it."""
    failures: list[tuple[int, Outcome]] = field(default_factory=list[tuple[int, Outcome]])

    def add(self, seed: int, outcome: Outcome) -> None:
        """Count an outcome."""
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

    @property
    def worked(self) -> float:
        """Seconds of processors that the processes and their peers took, once all have ended."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def lines(self) -> Iterator[str]:
        """The table: seconds of the clock, and of processors with the cases in each of these."""
        yield " ".join([f"{name:>9}" for name in ("cases", *VERDICTS, "seconds", "cpu", "/s cpu")])
        numbers = [f"{n:9}" for n in (self.cases, *[self.counts[each] for each in VERDICTS])]
        seconds, worked = time.monotonic() - self.began, self.worked
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
        facts = {
            "kind": self.kind,
            "cases": self.cases,
            "comparisons": self.comparisons,
            "jobs": self.jobs,
            "seconds": round(time.monotonic() - self.began, 3),
            "cpu_seconds": round(self.worked, 3),
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
