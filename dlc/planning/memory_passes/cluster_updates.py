"""Multi-tensor updates: small weights are updated last, side by side, in one launch of a GPU.

Most weights of a network are small: biases, and the scales and shifts of normalizations. The update of one
takes a launch and little else. Their gradients live longer, but are as small. Where memory is limited
(`--recompute`), updates stay where they free it.
"""

from __future__ import annotations

from collections.abc import Mapping

from dlc.dialects import func, kernel
from dlc.dialects.builtin import Module
from dlc.dialects.measured import measuring
from dlc.ir.core import Op, Value
from dlc.ir.passes import Context, Options, define_pass
from dlc.planning.liveness import Timeline, updates_of
from dlc.target import gpu_of


@define_pass("cluster_updates")
def cluster_updates(module: Op, context: Context) -> None:
    """Move the updates of small weights to the end of the function."""
    assert isinstance(module, Module)
    if context.options.recompute > Options().recompute:
        return
    for function in list(module.body):
        if isinstance(function, func.Func) and function.updates and not measuring(function):
            _cluster(function, context, gpu_of(context.options).occupancy.update_bytes)


def _cluster(function: func.Func, context: Context, most_bytes: int) -> None:
    timeline, updates = Timeline(function), updates_of(function)
    small_updates = [
        op for op in function.body if _is_small_update(op, updates, timeline, most_bytes)
    ]
    if len(small_updates) > 1:
        for op in small_updates:
            context.log.did("update last, in one launch with others", op)
            function.body.move(op, function.body.terminator)


def _is_small_update(
    op: Op, updates: Mapping[Value, Value], timeline: Timeline, most_bytes: int
) -> bool:
    """Whether an operation only updates weights of at most `most_bytes` bytes each."""
    if not isinstance(op, kernel.Generic) or not op.is_map:
        return False
    end = timeline.block.terminator
    return all(
        value in updates and value.uses.keys() <= {end} and timeline.bytes(value) <= most_bytes
        for value in op.results
    )
