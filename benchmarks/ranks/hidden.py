"""How much of the time of collectives a step hides, by a network that sends beside the processors.

The same ranks run without the pass `overlap`, too: these wait for all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.contenders.turns import Process

WITH, WITHOUT = "overlap", "without"

Started = Callable[[str], Process]
"""A contender by the pass that it leaves out."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """Milliseconds of a step: all of it, what the network sends, and what the first rank waits for that."""

    name: str
    step: float
    sending: float
    waited: float

    @property
    def text(self) -> str:
        """A line for people."""
        share = 1 - self.waited / self.sending if self.sending else 0.0
        return (
            f"  {self.name:8}  step {self.step:8.2f} ms  network {self.sending:6.2f} ms  "
            f"waited {self.waited:6.2f} ms: {share:.0%} hidden"
        )


def hidden_in(start: Started, rounds: int) -> Iterator[Hidden]:
    """What is hidden with and without the pass: of `rounds` starts each, that of the fastest step."""
    for name, without in ((WITH, ""), (WITHOUT, "overlap")):
        found: list[Hidden] = []
        for _ in range(rounds):
            with start(without) as process:
                facts = process.facts
            times = facts["step_ms"], facts["sending_ms"], facts["waited_ms"]
            found.append(Hidden(name, *times))
        yield min(found, key=lambda row: row.step)
