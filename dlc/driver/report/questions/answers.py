"""An answer to a question about a compiled model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dlc.driver.report.questions.traced import Node, Traced
from dlc.driver.run.outputs import JSON
from dlc.ir.log import Decision


@dataclass(frozen=True, slots=True)
class Answer:
    """What is so, why, what the passes said about it with their figures, and what would change it."""

    verdict: str
    reason: str
    evidence: tuple[str, ...] = ()
    change: str = ""

    @property
    def text(self) -> str:
        """The answer for people."""
        lines = [f"{self.verdict}: {self.reason}", *[f"  {line}" for line in self.evidence]]
        return "\n".join([*lines, *([f"  to change it: {self.change}"] if self.change else [])])

    @property
    def data(self) -> JSON:
        """The answer for programs."""
        return {
            "verdict": self.verdict,
            "reason": self.reason,
            "evidence": list(self.evidence),
            "change": self.change or None,
        }


def shown(node: Node) -> str:
    """A value with its operation and its place."""
    place = f" at {node.place}" if node.place else ""
    return f"{node.name} ({node.op}{place})"


def lines_of(decisions: Iterable[Decision]) -> tuple[str, ...]:
    """Decisions with their figures, each once."""
    return tuple(dict.fromkeys(map(_line, decisions)))


def _line(decision: Decision) -> str:
    mark = "+" if decision.kind == "did" else "-"
    figures = [f"{name.replace('_', ' ')} {value}" for name, value in decision.figures.items()]
    note = f" ({', '.join(figures)})" if figures else ""
    return f"{mark} {decision.pass_name}: {decision.what}{note}"


def calls_text(traced: Traced, numbers: Iterable[int]) -> str:
    """The kernels of calls, by name, with the waves that they run in."""
    return ", ".join(
        f"{traced.calls[k].kernel.name} (call {k}, wave {traced.waves[k]})" for k in sorted(numbers)
    )


def kind_of(traced: Traced, number: int) -> str:
    """The family of the kernel of a call: `generic`, `gemm`, `sort`."""
    return traced.calls[number].kernel.name.rpartition("_")[0]


def elsewhere(traced: Traced, node: Node) -> str:
    """Why no kernel of the call computes a value; empty where one does."""
    name = node.name
    match traced.state(name):
        case "kernel":
            return ""
        case "weight":
            return f"{name} follows from weights alone and is computed once, when they are loaded"
        case "constant":
            return f"{name} is a constant of the artifact"
        case "control":
            return (
                f"{name} is the result of a loop or a branch, whose kernels are those of its body"
            )
        case "input":
            return f"{name} is passed by the caller"
        case "view":
            others = [other for other in traced.same_memory(name) if other != name]
            of = f" of {others[0]}" if others else ""
            return f"{name} needs no kernel: it is read where it lies, in the memory{of}"
        case "dropped":
            gone = traced.origins[name].gone
            why = gone.why if gone is not None else "its readers read what it is made of"
            return f"nothing is left of {name}: {why}"
