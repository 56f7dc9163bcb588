"""Memory-aware list scheduling: kernels run in an order with a lower memory peak, if it is as fast.

Of several orders the one with the lowest peak is kept (`dlc.planning.scheduling`). The kernels are the
same, so time is lost only to barriers, and where fewer kernels run side by side: an order may have more
waves than program order as long as their barriers take less than a five-hundredth of the time. Operations
that may fail, or have effects that a caller sees, keep their order, and an update of an argument stays
behind the readers of its old value. Loops and branches move as a whole; the body of a loop is scheduled by
itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from dlc.dialects import flow, func
from dlc.dialects.builtin import Module
from dlc.dialects.measured import measuring
from dlc.ir.core import Op, Value
from dlc.ir.log import DecisionLog
from dlc.ir.passes import Context, define_pass
from dlc.planning.liveness import SAMPLE, Timeline, updates_of
from dlc.planning.memory_passes.block_tasks import carried, in_order, task_graph, work_in
from dlc.planning.offset_assignment import cases_of
from dlc.planning.scheduling import (
    Footprint,
    Schedule,
    TaskGraph,
    as_written,
    best_order,
    witnesses,
)
from dlc.planning.waves import NEW_WAVE
from dlc.target import cpu_of
from dlc.target.cpu_costs import CpuCosts
from dlc.target.estimates import picoseconds

SLOWER = 500
"""Further barriers may take this fraction (1/n) of the time."""
MOST_TASKS = 4_000
"""Blocks of more tasks keep their order."""


@define_pass("reorder")
def reorder(module: Op, context: Context, *, effort: int | None = None) -> None:
    """Run kernels in an order with a lower memory peak, where that takes no longer.

    `effort` multiplies the steps of the search; the default is that of the compilation.
    """
    assert isinstance(module, Module)
    effort = context.options.plan_effort if effort is None else effort
    for function in list(module.body):
        if isinstance(function, func.Func) and not measuring(function):
            *_, sizes = cases_of(function, context.options.planned_batch)
            # Inner loops first: the peak of a body is part of the peak around the loop.
            for op in reversed(list(function.walk(formulas=False))):
                if isinstance(op, flow.Scan | flow.While):
                    timeline = Timeline(function, op.body, sizes)
                    _reorder_in(timeline, carried(op), op, context, effort)
            timeline = Timeline(function, function.body, sizes)
            _reorder_in(timeline, updates_of(function), function, context, effort)


def _counted_at(sizes: Mapping[str, int]) -> str:
    """The sizes of the dims at which bytes are counted, for the log."""
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())


def _reorder_in(
    timeline: Timeline,
    updates: Mapping[Value, Value],
    subject: Op,
    context: Context,
    effort: int,
) -> None:
    """Change the order of a block. `updates` are the arguments that its values update in place."""
    work = work_in(timeline)
    if not 2 < len(work) <= MOST_TASKS:
        return
    graph = task_graph(timeline, work, updates)
    before = as_written(graph)
    lower_bound = _lower_bound(graph, before.held)
    if before.peak <= lower_bound:
        return
    most_waves = len(before.held) + _waves_to_spare(timeline, work, cpu_of(context.options).costs)
    after = best_order(graph, most_waves, lower_bound, effort, context.compiler)
    _log_order(context.log, timeline, subject, before, after, lower_bound)
    if after.peak < before.peak:
        for number in after.cuts:
            work[number].attributes[NEW_WAVE] = True
        for op in list(in_order([work[number] for number in after.order], timeline.ops)):
            timeline.block.move(op, None)


def _log_order(
    decisions: DecisionLog,
    timeline: Timeline,
    subject: Op,
    before: Schedule,
    after: Schedule,
    lower_bound: int,
) -> None:
    """Log the better order, or that there is none."""
    is_better = after.peak < before.peak
    log = decisions.did if is_better else decisions.refused
    if timeline.sample:
        log = partial(log, at=_counted_at(timeline.sample))
    log(
        "run in another order"
        if is_better
        else "no order with about as few waves has a lower peak",
        subject,
        peak_bytes_before=before.peak,
        peak_bytes_after=after.peak,
        lower_bound_bytes=lower_bound,
        waves_before=len(before.held),
        waves_after=len(after.held),
        order=after.how,
    )


def _waves_to_spare(timeline: Timeline, work: Sequence[Op], costs: CpuCosts) -> int:
    """How many more waves cost less than a `SLOWER`th of the time of the block."""
    typical = {name: min(size, SAMPLE) for name, size in timeline.sample.items()}
    return sum(picoseconds(op, typical, costs) for op in work) // (costs.barrier * SLOWER)


def _lower_bound(graph: TaskGraph, live_bytes: Sequence[int]) -> int:
    """The schedule-independent lower bound on the peak, in bytes."""
    footprints = [
        Footprint(frozenset(task.reads), frozenset(task.makes), frozenset(task.over))
        for task in graph.tasks
    ]
    wave = graph.waves(range(len(footprints)))
    witness_sets = witnesses(footprints, [graph.bytes], [[live_bytes[index] for index in wave]])
    return max((sum(graph.bytes[v] for v in live) for live in witness_sets.values()), default=0)
