"""`copied A`: whether a value's elements are copied, or read and written where they are."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.driver.report.questions.answers import Answer, calls_text, elsewhere, lines_of
from dlc.driver.report.questions.traced import Node, Traced

MOVING = (
    *("array.slice", "array.concatenate", "array.transpose", "array.reshape", "array.broadcast"),
    *("array.pad", "array.reverse", "array.gather", "array.dynamic_slice"),
    "array.dynamic_update_slice",
)
"""Operations that give elements of their operands, so that computing them is copying."""
PASSES = (
    *("plan_memory", "forward_slices", "eliminate_concats", "fold_transposes", "fold_operands"),
    *("materialize_padding", "pad_windows", "layout", "pack"),
)

CHANGES = {
    "a reader cannot use the strides": "copy once on purpose, or let the reader take contiguous rows",
    "in place it would live longer": "let the value be read sooner: it holds the larger one until then",
    "update in place: the value from before": "read the value before it is changed, or not at all after",
}


def answer(traced: Traced, nodes: Sequence[Node]) -> Answer:
    """Whether there is a copy: a kernel that only moves elements, or a wave that copies a carried value."""
    (node,) = nodes
    decided = traced.about(node.name, *PASSES)
    evidence = lines_of(decided)
    refused = [each.what for each in decided if each.kind == "refused"]
    change = next(
        (text for start, text in CHANGES.items() if any(why.startswith(start) for why in refused)),
        "",
    )
    copies = [why for why in refused if why.startswith("update in place")]
    if copies:
        return Answer("yes", f"at the end of the call: {copies[-1]}", evidence, change)
    if traced.state(node.name) != "kernel":
        return Answer("no", elsewhere(traced, node), evidence)
    numbers = traced.kernels[node.name]
    others = [name for name in traced.together(numbers) if name != node.name]
    if node.op not in MOVING:
        return Answer("no", f"{calls_text(traced, numbers)} computes it where it lies", evidence)
    if node.name not in traced.stored:
        return Answer(
            "no", f"{calls_text(traced, numbers)} reads its elements where they are", evidence
        )
    size = f"{node.type.text}, {node.type.size * node.type.dtype.bytes} bytes"
    if any(traced.nodes[name].op not in MOVING for name in others):
        return Answer("no", f"{calls_text(traced, numbers)} computes its elements there", evidence)
    why = refused[-1] if refused else "its readers need the elements in this order"
    return Answer("yes", f"{calls_text(traced, numbers)} copies {size}: {why}", evidence, change)
