"""`layout A`: in which order the elements of a value lie in memory."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import mem
from dlc.driver.report.questions.answers import Answer, elsewhere, lines_of
from dlc.driver.report.questions.traced import Node, Traced
from dlc.ir.types import ViewType
from dlc.ir.value_map import Permuted, Reshaped, Scaled, Slice

PASSES = ("layout", "fold_transposes", "fold_operands", "pack", "materialize_padding", "collapse")


def answer(traced: Traced, nodes: Sequence[Node]) -> Answer:
    """The shape and strides of its memory, and how the value of the text is had from them."""
    (node,) = nodes
    view = traced.stored.get(node.name)
    evidence = lines_of(traced.about(node.name, *PASSES))
    if view is None or not isinstance(view.op, mem.View | mem.Constant | mem.Weight):
        kernels = traced.kernels.get(node.name)
        reason = (
            "it is in registers only: the kernel that computes it uses it up"
            if kernels
            else elsewhere(traced, node)
        )
        return Answer("none", reason, evidence)
    type = view.type
    assert isinstance(type, ViewType)
    how = [_step(step) for step in traced.origins[node.name].steps]
    strides = ", ".join(map(str, type.strides))
    order = "row-major" if type.is_contiguous else f"with strides {strides} in elements"
    memory = f"{type.tensor.text}, {order}"
    root = view.op.root.op if isinstance(view.op, mem.View) else None
    where = f", {_place(root)}" if isinstance(root, mem.Root) else ""
    relation = f"{node.name} of the text, {node.type.text}, is that {', '.join(how)}" if how else ""
    return Answer("memory", memory + where, (*([relation] if relation else []), *evidence))


def _place(root: mem.Root) -> str:
    kinds = {"input": "an array of the caller", "output": "an array of the result"}
    return kinds.get(root.kind, f"buffer {root.number} of the arena")


def _step(step: object) -> str:
    match step:
        case Permuted(axes=axes):
            return f"with its axes in the order {list(axes)}"
        case Reshaped():
            return "in another shape"
        case Slice():
            return "as a part of a larger array"
        case Scaled(factor=factor):
            return f"times {factor:g}"
        case _:
            return "as it is"
