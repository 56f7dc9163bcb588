"""`fused A B`: whether one kernel computes two neighbouring values, or why not."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.driver.report.questions.answers import (
    Answer,
    calls_text,
    elsewhere,
    kind_of,
    lines_of,
    shown,
)
from dlc.driver.report.questions.traced import Heard, Node, Traced

PASSES = ("fuse", "fuse_outputs", "fuse_updates", "split_k", "split_reductions", "row_bands")

CHANGES = {
    "it would be computed more than once": "let one value alone read it, or make it cheaper than a load",
    "other kernels read it, too": "let one value alone read it",
    "fusion at -O1": "compile with -O2",
    "the kernel would read": "dlc opt --passes 'fuse{max_inputs=N}' allows more arrays",
    "the formula would have": "dlc opt --passes 'fuse{max_operations=N}' allows longer formulas",
    "its reader loads elements other": "compute both for the same index, without a shift between",
    "its reader is not a formula": "none in the text: a kernel reduces again only within a row",
    "its reader has another domain": "bring both to one shape",
    "its reader iterates over other axes": "leave out the reshape between them",
    "its reader's dtype is not": "cast later, in another kernel",
    "its reader also reads a product": "nothing in the text: the two products run side by side",
}
"""By how a refusal begins: what would change it."""


def answer(traced: Traced, nodes: Sequence[Node]) -> Answer:
    """Whether both are computed by one kernel; with what the passes did, or why they did not."""
    one, other = nodes
    if other.name in one.operands:
        one, other = other, one
    for node in (one, other):
        absent = elsewhere(traced, node)
        if absent:
            return Answer("no", f"there is nothing to fuse: {absent}")
    both = traced.kernels[one.name] & traced.kernels[other.name]
    heard = _about_both(traced, one, other)
    if both:
        did = [each.decision for each in heard if each.decision.kind == "did"]
        return Answer("yes", f"{calls_text(traced, both)} computes both", lines_of(did))
    return _refused(heard) or _unasked(traced, one, other)


def _about_both(traced: Traced, one: Node, other: Node) -> list[Heard]:
    names = {one.name, other.name}
    return [
        each
        for each in traced.heard
        if each.decision.pass_name in PASSES
        and any(name in each.names and names - {name} <= each.beside for name in names)
    ]


def _refused(heard: Sequence[Heard]) -> Answer | None:
    """The last refusal: those before it are of other forms of the kernels, or of the other way to fuse."""
    refusals = [each.decision for each in heard if each.decision.kind == "refused"]
    if not refusals:
        return None
    last = refusals[-1].what
    change = next((text for start, text in CHANGES.items() if last.startswith(start)), "")
    return Answer("no", last, lines_of(refusals), change)


def _unasked(traced: Traced, one: Node, other: Node) -> Answer:
    """Why no pass looked at two kernels."""
    settings = traced.settings
    if "fuse" in settings.disabled:
        return Answer("no", "the pass fuse was left out", change="leave out --disable-pass=fuse")
    if settings.level == 0:
        return Answer("no", "nothing is fused at -O0", change="compile with -O2")
    if other.name not in one.operands and one.name not in other.operands:
        return Answer("no", f"{shown(other)} does not read {shown(one)}: they are not neighbours")
    if one.block != other.block:
        return Answer("no", "one of them is in a loop or a branch, and kernels do not reach across")
    first = kind_of(traced, max(traced.kernels[one.name]))
    second = kind_of(traced, min(traced.kernels[other.name]))
    if second != "generic":
        return Answer(
            "no",
            f"{other.name} begins with a kernel {second}, which reads its operands from memory; a formula "
            "is fused behind such a kernel, not before it",
        )
    if first != "generic":
        return Answer(
            "no",
            f"{one.name} is computed by a kernel {first}, and what lies between it and {other.name} is no "
            "formula of the element that this kernel has just computed",
        )
    return Answer(
        "no",
        f"{one.name} is not a formula of single elements of {other.name}'s domain, and no pass merges such "
        "kernels",
    )
