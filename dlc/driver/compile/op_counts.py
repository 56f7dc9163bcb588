"""Counts of the operations of each kind, before the first pass and after each pass that changes them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from dlc.dialects.builtin import Module
from dlc.ir.core import Op

BEFORE = ""
"""What stands for the name of a pass before the first one."""


@dataclass(slots=True)
class OpCounts:
    """Counts by name of the operation: one row before the first pass, and one for each pass."""

    rows: list[tuple[str, Counter[str]]] = field(default_factory=list[tuple[str, Counter[str]]])

    def see(self, pass_name: str, module: Op) -> None:
        """Count what a pass has left."""
        counts = Counter(op.name for op in module.walk() if not isinstance(op, Module))
        self.rows.append((pass_name, counts))

    @property
    def text(self) -> str:
        """Each pass that changed a count, with both counts; all of them at first and at last."""
        if not self.rows:
            return "no pass ran"
        lines = ["before the first pass", *_all(self.rows[0][1])]
        for (_, before), (name, after) in zip(self.rows, self.rows[1:], strict=False):
            changed = [
                f"  {kind}  {before[kind]} -> {after[kind]}"
                for kind in sorted(before.keys() | after.keys())
                if before[kind] != after[kind]
            ]
            lines += [f"{name}: {before.total()} -> {after.total()}", *changed] if changed else []
        return "\n".join([*lines, "after the last pass", *_all(self.rows[-1][1])])

    @property
    def data(self) -> list[dict[str, object]]:
        """The same for programs: every pass with all counts; `pass` is null before the first one."""
        return [
            {"pass": name or None, "ops": dict(sorted(counts.items()))}
            for name, counts in self.rows
        ]


def _all(counts: Counter[str]) -> list[str]:
    """The counts of each dialect, and in it of each kind."""
    dialects: dict[str, list[str]] = {}
    for kind in sorted(counts):
        dialect, _, name = kind.partition(".")
        dialects.setdefault(dialect, []).append(f"{name} {counts[kind]}")
    return [f"  {dialect}: {', '.join(kinds)}" for dialect, kinds in dialects.items()]
