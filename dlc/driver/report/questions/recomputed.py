"""`recomputed A`: whether a value is computed more than once, and what that saves."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.driver.report.questions.answers import Answer, calls_text, elsewhere, lines_of
from dlc.driver.report.questions.traced import Node, Traced


def answer(traced: Traced, nodes: Sequence[Node]) -> Answer:
    """By rematerialization, or within several kernels that read it; with bytes and microseconds."""
    (node,) = nodes
    decided = traced.about(node.name, "recompute")
    evidence = lines_of(decided)
    did = [each for each in decided if each.kind == "did"]
    if did:
        return Answer(
            "yes", did[-1].what, evidence, "--disable-pass=recompute keeps it, for more memory"
        )
    numbers = traced.kernels.get(node.name, set())
    if len(numbers) > 1:
        kernels = calls_text(traced, numbers)
        reason = f"it is cheaper to compute than to load, so each reader does: {kernels}"
        return Answer("yes", reason, lines_of(traced.about(node.name, "fuse")))
    refused = [each for each in decided if each.kind == "refused"]
    if refused:
        return Answer("no", refused[-1].what, evidence)
    absent = elsewhere(traced, node)
    if absent:
        return Answer("no", absent)
    if traced.settings.level == 0 or "recompute" in traced.settings.disabled:
        return Answer("no", "the pass recompute does not run", change="compile with -O2")
    return Answer(
        "no",
        f"{calls_text(traced, numbers)} computes it once, and keeping it does not raise the peak of memory",
    )
