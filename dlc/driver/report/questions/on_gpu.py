"""`on-gpu A`: whether a GPU computes a value."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.comm import is_gpu
from dlc.driver.report.questions.answers import Answer, calls_text, elsewhere, lines_of
from dlc.driver.report.questions.traced import Node, Traced
from dlc.lowering.kernel_to_hetero import device_of


def answer(traced: Traced, nodes: Sequence[Node]) -> Answer:
    """The device of its kernels, by the target or by a placement in the text."""
    (node,) = nodes
    evidence = lines_of(
        each.decision for each in traced.heard if each.decision.pass_name == "auto_target"
    )
    absent = elsewhere(traced, node)
    if absent:
        return Answer("no", absent, evidence)
    target, numbers = traced.settings.target, traced.kernels[node.name]
    if traced.settings.kind == "cuda":
        return Answer("yes", f"all of it is compiled for {target}", evidence)
    devices = sorted({device_of(traced.calls[k]) for k in numbers})
    if any(map(is_gpu, devices)):
        reason = f"{calls_text(traced, numbers)} is placed on {', '.join(devices)}"
        return Answer("yes", reason, evidence)
    change = (
        "--place PATH=cuda:0 or `on cuda:0` places a part, --target cuda all, --target auto chooses"
    )
    return Answer("no", f"the target is {target}, and nothing places it on a GPU", evidence, change)
