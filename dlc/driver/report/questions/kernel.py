"""`kernel A`: which kernel computes a value, and what else it computes."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.driver.report.questions.answers import Answer, calls_text, elsewhere, lines_of
from dlc.driver.report.questions.traced import Node, Traced
from dlc.ir.dims import evaluate, names
from dlc.runtime.system.counts import counted


def answer(traced: Traced, nodes: Sequence[Node]) -> Answer:
    """The kernel with its tiles and estimated time, and the other values that it computes."""
    (node,) = nodes
    absent = elsewhere(traced, node)
    if absent:
        return Answer("none", absent)
    numbers = traced.kernels[node.name]
    others = [name for name in traced.together(numbers) if name != node.name]
    evidence = [_work(traced, k) for k in sorted(numbers)]
    if others:
        evidence.append(f"it also computes {', '.join(others)}")
    if node.name not in traced.stored:
        evidence.append(f"{node.name} itself is not stored")
    chosen = traced.about(node.name, "pack", "winograd", "fold_integers", "split_k", "decompose")
    return Answer("kernel", calls_text(traced, numbers), (*evidence, *lines_of(chosen)))


def _work(traced: Traced, number: int) -> str:
    """The work of a call: its tiles and their time at the largest sizes, and what it computes."""
    call, sizes = traced.calls[number], traced.largest_sizes
    needed = names(call.tiles) | names(call.cost)
    at = ", ".join(f"{name} = {sizes[name]}" for name in sizes if name in needed)
    label = f"; {call.label}" if call.label else ""
    if needed - sizes.keys():
        return f"{call.kernel.name}: as many tiles as the call finds out{label}"
    tiles, cost = evaluate(call.tiles, sizes), evaluate(call.cost, sizes)
    amount = f"{counted(tiles, 'tile')} of about {cost:,} ns"
    return f"{call.kernel.name}: {amount}{f' at {at}' if at else ''}{label}"
