"""Updates of small weights come last, side by side, so that a GPU makes them together.

Most weights of a network are small: what is added, and what normalises. An update of one takes a launch,
and no time beside that. What is held for longer are their gradients, which are as small. Where memory
is limited, updates stay where they give it back.
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
    """Put the updates of small weights behind all else."""
    assert isinstance(module, Module)
    if context.options.recompute > Options().recompute:
        return
    for function in list(module.body):
        if isinstance(function, func.Func) and function.updates and not measuring(function):
            _gather(function, context, gpu_of(context.options).occupancy.update_bytes)


def _gather(function: func.Func, context: Context, most: int) -> None:
    timeline, updates = Timeline(function), updates_of(function)
    found = [op for op in function.body if _is_small_update(op, updates, timeline, most)]
    if len(found) > 1:
        for op in found:
            context.log.did("update last, beside others", op)
            function.body.move(op, function.body.terminator)


def _is_small_update(op: Op, updates: Mapping[Value, Value], timeline: Timeline, most: int) -> bool:
    """Whether it updates weights of at most so many bytes, and does nothing else."""
    if not isinstance(op, kernel.Generic) or not op.is_map:
        return False
    end = timeline.block.terminator
    return all(
        value in updates and value.uses.keys() <= {end} and timeline.bytes(value) <= most
        for value in op.results
    )
