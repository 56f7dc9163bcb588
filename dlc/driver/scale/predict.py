"""Predictions: how long a step or a call takes among more and more ranks, and where scaling stops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dlc.driver.scale.programs import RankPrograms, ScaleRequest
from dlc.driver.scale.timeline import Spent
from dlc.errors import UsageError
from dlc.runtime.cpu.threads import check_threads
from dlc.runtime.system.counts import counted

ROUNDS, CLOSE = 100, 1e-9
"""How often the factor of a measured step is approached, and how near is enough; where nothing is waited it
is right after the first time."""
GAIN = 1.25
"""Scaling stops where twice as many ranks are not at least this many times as fast."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """The predicted time of `ranks` ranks, which take `examples` each; `first` is that of the first row."""

    ranks: int
    first: int
    examples: int
    spent: Spent
    rate: float
    """Examples per second of all ranks."""
    speedup: float

    @property
    def efficiency(self) -> float:
        """The speed of a rank as a part of that of one of the fewest ranks."""
        return self.speedup * self.first / self.ranks

    @property
    def share(self) -> float:
        """The part of the time that ranks do nothing but wait for each other, and for what is sent."""
        return self.spent.exposed / self.spent.total if self.spent.total else 0.0

    @property
    def bubble(self) -> float | None:
        """The part that stages wait for values of each other; None where there are no stages."""
        if not self.spent.stages:
            return None
        return self.spent.bubble / self.spent.total if self.spent.total else 0.0


@dataclass(frozen=True, slots=True)
class Scaling:
    """The predictions for a model, and where scaling stops and why."""

    asked: ScaleRequest
    entry: str
    sizes: Mapping[str, int]
    """Those of the call, of which the first is the batch."""
    factor: float
    """What the predicted work was multiplied by, to agree with the measured time of the first row."""
    rows: tuple[Scaled, ...]
    reason: str
    """Why scaling stops; empty where it goes on to the last row."""
    best: int
    """The number of ranks from which on more are not worth it, or the last one."""
    microbatches: int = 1
    """How many a call goes through."""

    @property
    def equal_bubble(self) -> float:
        """The bubble of stages with equal work that send in no time: (p - 1) / (m + p - 1)."""
        stages = len(self.rows[0].spent.stages)
        return (stages - 1) / (self.microbatches + stages - 1)


def predict_scaling(asked: ScaleRequest) -> Scaling:
    """Predict what is asked for.

    Raises UsageError: D0901 for numbers that make no sense, D0905 for what ranks do not divide, D0906 for
    sizes that are missing or unknown; and what compiling raises.
    """
    _check(asked)
    threads = check_threads(asked.threads)
    programs = RankPrograms(asked)
    rows: list[Scaled] = []
    factor, reason, best = 1.0, "", 0
    for ranks in programs.numbers:
        spent = programs.time(ranks, threads, factor)
        if not rows and asked.step is not None:
            factor = _factor(programs, ranks, threads, asked.step * 1e9)
            spent = programs.time(ranks, threads, factor)
        rate = programs.examples(ranks) * programs.parts(ranks) / spent.total * 1e9
        speedup = rate / rows[0].rate if rows else 1.0
        first = rows[0].ranks if rows else ranks
        rows.append(Scaled(ranks, first, programs.examples(ranks), spent, rate, speedup))
        if not reason:
            reason = _reason(rows)
            best = rows[-2].ranks if reason else ranks
    reason = reason or programs.end
    asked = replace(asked, threads=threads)
    return Scaling(
        asked,
        programs.entry.name,
        programs.sizes(rows[0].ranks),
        factor,
        tuple(rows),
        reason,
        best,
        programs.microbatches,
    )


def _check(asked: ScaleRequest) -> None:
    if asked.ranks < 1:
        raise UsageError(f"--ranks is a number from 1 on, found {asked.ranks}", code="D0901")
    if asked.step is not None and not 0 < asked.step < float("inf"):
        raise UsageError(
            f"--step is the time of a step in seconds, found {asked.step:g}",
            code="D0901",
            help="leave it out: then the time is predicted",
        )
    if asked.request.settings.kind != "cpu":
        raise UsageError(
            "the work of a rank is predicted for processors only",
            code="D0901",
            help="leave out --target",
        )


def _factor(programs: RankPrograms, ranks: int, threads: int, wanted: float) -> float:
    """What work is multiplied by, so that a step takes so many nanoseconds with what is waited.

    Raises UsageError (D0901) where it takes longer without any work.
    """
    factor = 1.0
    for _ in range(ROUNDS):
        total = programs.time(ranks, threads, factor).total
        if abs(total - wanted) <= CLOSE * wanted:
            return factor
        factor *= wanted / max(total, 1.0)
    least = programs.time(ranks, threads, 0.0).total
    if wanted > least:
        return factor
    raise UsageError(
        f"--step {wanted / 1e9:g} is less than what ranks wait, {least / 1e9:.3g} s",
        code="D0901",
        help="give the time of the first row, or another --network",
    )


def _reason(rows: list[Scaled]) -> str:
    """Why the last row is not worth it; empty where it is."""
    if len(rows) < 2:
        return ""
    before, last = rows[-2:]
    doubled = last.ranks / before.ranks
    if last.rate / before.rate >= 1 + (GAIN - 1) * (doubled - 1):
        return ""
    spent = last.spent
    gain = f"{last.ranks} are {last.rate / before.rate:.3g} times as fast as {before.ranks}"
    if spent.exposed - spent.idle < spent.compute / 2:
        return f"{gain}, since what each rank computes does not become less"
    time = max(spent.latency, spent.transfer)
    size = spent.bytes / (1 << 20)
    what = "the latency" if spent.latency > spent.transfer else "sending"
    return f"{gain}, since {what} of {_sent(spent)} ({size:.3g} MiB) takes {time / 1e6:.3g} ms"


def _sent(spent: Spent) -> str:
    """How many collectives there are, and how many values go to other stages."""
    collectives, messages = round(spent.collectives), round(spent.messages)
    found = [counted(collectives, "collective")] if collectives or not messages else []
    if messages:
        found.append(counted(messages, "value"))
    return " and ".join(found) + (" between stages" if messages else "")
