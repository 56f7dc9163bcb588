"""The decision log as an artifact keeps it: equal decisions are stored once, with their number."""

from __future__ import annotations

from collections import Counter

from dlc.ir.log import Decision, DecisionLog
from dlc.runtime.artifact.decisions import DecisionRecord, Decisions


def recorded(log: DecisionLog) -> Decisions:
    """The decisions of passes, made and refused, in the order in which each first came up."""
    counts = Counter(map(_record, log))
    return Decisions(tuple(each._replace(times=times) for each, times in counts.items()))


def _record(decision: Decision) -> DecisionRecord:
    return DecisionRecord(
        decision.pass_name,
        decision.kind,
        decision.what,
        decision.subject,
        decision.place,
        tuple(f"{name.replace('_', ' ')} {value}" for name, value in decision.figures.items()),
    )
