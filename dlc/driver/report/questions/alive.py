"""`alive A`: from which wave to which a value's memory is in use, and what holds it."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import mem
from dlc.driver.report.questions.answers import Answer, calls_text, elsewhere, lines_of
from dlc.driver.report.questions.traced import Node, Traced
from dlc.ir.core import Value

PASSES = ("plan_memory", "recompute", "release", "reorder", "forward_slices", "eliminate_concats")


def answer(traced: Traced, nodes: Sequence[Node]) -> Answer:
    """The waves and bytes of its buffer, who reads it last, and what shares the buffer."""
    (node,) = nodes
    view = traced.stored.get(node.name)
    root = view.op.root.op if view is not None and isinstance(view.op, mem.View) else None
    evidence = lines_of(traced.about(node.name, *PASSES))
    if view is None or not isinstance(root, mem.Root):
        reason = elsewhere(traced, node) or "its kernel uses it up: it is in no memory of its own"
        return Answer("never", reason, evidence)
    if root.kind != "arena":
        return Answer(
            "always", f"it is an array of the caller ({root.kind} {root.number})", evidence
        )
    readers = _readers(traced, view)
    lines = [f"read by {calls_text(traced, readers)}" if readers else "read by no kernel as it is"]
    others = [name for name in traced.same_memory(node.name) if name != node.name]
    if others:
        lines.append(f"in the same buffer: {', '.join(others)}")
    waves = f"waves {root.first} to {root.last} of {traced.program.waves}"
    offset = "" if root.offset is None else f" at byte {root.offset} of the arena"
    reason = f"{waves}, {root.bytes} bytes{offset}"
    change = "let its last reader come sooner in the text" if readers else ""
    return Answer("alive", reason, (*lines, *evidence), change)


def _readers(traced: Traced, view: Value) -> set[int]:
    """The calls that read the memory of a view."""
    assert isinstance(view.op, mem.View)
    root = view.op.root
    return {
        number
        for number, call in enumerate(traced.calls)
        for read in call.views[: len(call.views) - call.writes]
        if isinstance(read.op, mem.View) and read.op.root is root
    }
