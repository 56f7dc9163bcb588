"""What the stages of a pipeline do in a call: when each runs parts, sends and waits, and the shares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple


class Span(NamedTuple):
    """Something that a stage does in a call, in nanoseconds from its beginning.

    A part has the name of its entry point in `what`, a value on its way the stage that it goes to or comes
    from in `other`. `arrow` is the same where a value is sent and where it is waited for.
    """

    kind: Literal["part", "send", "wait"]
    title: str
    start: float
    end: float
    microbatch: int | None = None
    what: str = ""
    other: int | None = None
    arrow: str = ""


class Share(NamedTuple):
    """What a rank does in a call, in milliseconds: the whole, its parts, waiting for others, sending.

    The call is over when the last rank has ended it.
    """

    stage: int
    call_ms: float
    busy_ms: float
    waits_ms: float
    sends_ms: float


def until_the_last(shares: Sequence[Share]) -> tuple[Share, ...]:
    """The shares of ranks, of which each waits at its end for the one that takes longest.

    >>> until_the_last([Share(0, 5.0, 4.0, 1.0, 0.0), Share(1, 4.0, 3.0, 1.0, 0.0)])[1]
    Share(stage=1, call_ms=5.0, busy_ms=3.0, waits_ms=2.0, sends_ms=0.0)
    """
    longest = max(share.call_ms for share in shares)
    return tuple(
        [
            share._replace(call_ms=longest, waits_ms=share.waits_ms + longest - share.call_ms)
            for share in shares
        ]
    )


@dataclass(frozen=True, slots=True)
class StageTimes:
    """What a rank of a pipeline does in one of the calls, and the shares of all ranks."""

    stage: int
    stages: int
    microbatches: int
    host: str
    began: int
    """When the call that is shown began, in nanoseconds of the host's clock."""
    spans: tuple[Span, ...]
    shares: tuple[Share, ...]
    """By rank, of the same calls."""

    @property
    def bubble(self) -> float:
        """The share of the time of all stages in which they wait for each other."""
        whole = sum(share.call_ms for share in self.shares)
        return sum(share.waits_ms for share in self.shares) / whole if whole else 0.0

    @property
    def equal_bubble(self) -> float:
        """The bubble of as many stages with equal work that send in no time: (p - 1) / (m + p - 1)."""
        return (self.stages - 1) / (self.microbatches + self.stages - 1)


def stage_lines(times: StageTimes) -> Iterator[str]:
    """What each rank does with its time, and the bubble, as lines for people."""
    for rank, share in enumerate(times.shares):
        busy, waits, sends = (
            part / share.call_ms if share.call_ms else 0.0
            for part in (share.busy_ms, share.waits_ms, share.sends_ms)
        )
        yield (
            f"rank {rank}, stage {share.stage}: {busy:6.1%} in its parts, "
            f"{waits:6.1%} waits for others, {sends:5.1%} sends"
        )
    many = "a microbatch" if times.microbatches == 1 else f"{times.microbatches} microbatches"
    yield (
        f"bubble: {times.bubble:.1%} of {many} on {times.stages} stages; "
        f"{times.equal_bubble:.1%} with equal work"
    )


def stage_data(times: StageTimes) -> dict[str, object]:
    """The same as data."""
    return {
        "microbatches": times.microbatches,
        "bubble": round(times.bubble, 5),
        "equal_bubble": round(times.equal_bubble, 5),
        "ranks": [_rounded(share) for share in times.shares],
    }


def _rounded(share: Share) -> dict[str, object]:
    names: Sequence[str] = ("call_ms", "busy_ms", "waits_ms", "sends_ms")
    return {"stage": share.stage, **{name: round(getattr(share, name), 7) for name in names}}
