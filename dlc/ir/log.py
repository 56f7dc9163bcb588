"""The decision log: what each pass did, what it refused, and the figures that decided.

It is an argument of every pass and travels into the artifact, so that "why was this not fused" has an
answer in the user's names and lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from dlc.ir.core import Op, Value

Figures = dict[str, int | float | str]


@dataclass(frozen=True, slots=True)
class Decision:
    """One thing a pass did or refused to do, about one place of the user's text."""

    pass_name: str
    kind: Literal["did", "refused"]
    what: str
    subject: str
    place: str
    figures: Figures = field(default_factory=Figures)

    def __str__(self) -> str:
        figures = ", ".join(f"{key} {value}" for key, value in self.figures.items())
        note = f" ({figures})" if figures else ""
        return f"{self.pass_name}: {self.kind} {self.what}: {self.subject} at {self.place}{note}"


Listener: TypeAlias = Callable[[Decision, "Op | Value", "Op | None"], None]


class DecisionLog:
    """Decisions in the order they were taken."""

    __slots__ = ("_decisions", "current_pass", "listener")

    def __init__(self) -> None:
        self._decisions: list[Decision] = []
        self.current_pass = ""
        self.listener: Listener | None = None
        """Hears each decision with its subject, and with the operation that it is about besides."""

    def did(
        self, what: str, subject: Op | Value, *, beside: Op | None = None, **figures: float | str
    ) -> None:
        """Record something done; `beside` is the other operation of a decision about two."""
        self._add("did", what, subject, figures, beside)

    def refused(
        self, what: str, subject: Op | Value, *, beside: Op | None = None, **figures: float | str
    ) -> None:
        """Record something looked at and not done; `what` says the reason."""
        self._add("refused", what, subject, figures, beside)

    def add(self, decision: Decision) -> None:
        """Record what was decided before any pass."""
        self._decisions.append(decision)

    def _add(
        self,
        kind: Literal["did", "refused"],
        what: str,
        subject: Op | Value,
        figures: Figures,
        beside: Op | None,
    ) -> None:
        op = subject if isinstance(subject, Op) else subject.op
        place = op.location.place if op is not None else None
        decision = Decision(
            self.current_pass, kind, what, _name(subject), str(place) if place else "-", figures
        )
        self._decisions.append(decision)
        if self.listener is not None:
            self.listener(decision, subject, beside)

    def __iter__(self) -> Iterator[Decision]:
        return iter(self._decisions)

    def __len__(self) -> int:
        return len(self._decisions)


def _name(subject: Op | Value) -> str:
    if isinstance(subject, Value):
        return f"%{subject.name}" if subject.name else subject.op.name if subject.op else "argument"
    named = next((result.name for result in subject.results if result.name), None)
    return f"{subject.name} %{named}" if named else subject.name
