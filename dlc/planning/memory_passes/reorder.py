"""Kernels run in an order that holds less, if one is found that is as quick.

Of several orders the one with the lowest peak is kept. The work itself is the same, so it takes as long but
for the barriers between waves and for kernels that have fewer others beside them: an order may have so
many more waves than the one written that their barriers take less than a five-hundredth of the time. What
may fail or be seen from outside keeps its order, and what updates an argument stays behind those that read
it. Loops and branches are moved as a whole; the work of a round of a loop has an order of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dlc.dialects import flow, func
from dlc.dialects.builtin import Module
from dlc.dialects.measured import measuring
from dlc.ir.core import Op, Value
from dlc.ir.passes import Context, define_pass
from dlc.planning.layout import cases_of
from dlc.planning.liveness import SAMPLE, Timeline, updates_of
from dlc.planning.memory_passes.block_tasks import carried, chores_of, work_in
from dlc.planning.schedule import NEW_WAVE
from dlc.planning.scheduling import Chores, Task, as_written, best_order, witnesses
from dlc.target import cpu_of
from dlc.target.cpu_costs import CpuCosts
from dlc.target.estimates import picoseconds

SLOWER = 500
"""The part of the time that further barriers may take."""
MOST_CHORES = 4_000
"""More work than this keeps its order."""


@define_pass("reorder")
def reorder(module: Op, context: Context, *, effort: int | None = None) -> None:
    """Run kernels in an order that holds less, where that takes no longer.

    The search takes `effort` times as long as usual, or what the compilation says.
    """
    assert isinstance(module, Module)
    effort = context.options.plan_effort if effort is None else effort
    for function in list(module.body):
        if isinstance(function, func.Func) and not measuring(function):
            *_, sizes = cases_of(function, context.options.batch)
            # What a round of a loop holds is part of what is held beside the loop.
            for op in reversed(list(function.walk(formulas=False))):
                if isinstance(op, flow.Scan | flow.While):
                    timeline = Timeline(function, op.body, sizes)
                    _reorder_in(timeline, carried(op), op, context, effort)
            timeline = Timeline(function, function.body, sizes)
            _reorder_in(timeline, updates_of(function), function, context, effort)


def _reorder_in(
    timeline: Timeline,
    updates: Mapping[Value, Value],
    subject: Op,
    context: Context,
    effort: int,
) -> None:
    """Change the order of a block. `updates` are the arguments that values of it are written over."""
    work = work_in(timeline)
    if not 2 < len(work) <= MOST_CHORES:
        return
    chores = chores_of(timeline, work, updates)
    before = as_written(chores)
    least = _least(chores, before.held)
    if before.peak <= least:
        return
    most_waves = len(before.held) + _waves_to_spare(timeline, work, cpu_of(context.options).costs)
    after = best_order(chores, most_waves, least, effort, context.compiler)
    is_better = after.peak < before.peak
    log = context.log.did if is_better else context.log.refused
    log(
        "another order" if is_better else "no order of so few waves holds less",
        subject,
        peak_before=before.peak,
        peak_then=after.peak,
        least=least,
        waves_before=len(before.held),
        waves_then=len(after.held),
        how=after.how,
    )
    if is_better:
        for number in after.cuts:
            work[number].attributes[NEW_WAVE] = True
        for op in list(_with_others([work[number] for number in after.order], timeline.ops)):
            timeline.block.move(op, None)


def _waves_to_spare(timeline: Timeline, work: Sequence[Op], costs: CpuCosts) -> int:
    """How many more waves cost less than a `SLOWER`th of the time that the work takes."""
    usual = {name: min(size, SAMPLE) for name, size in timeline.sample.items()}
    return sum(picoseconds(op, usual, costs) for op in work) // (costs.barrier * SLOWER)


def _with_others(order: Sequence[Op], ops: Sequence[Op]) -> Iterator[Op]:
    """Work in an order, with views and constants just before what needs them, and the rest at the end."""
    given = set[Op]()
    for wanted in (*order, *ops):
        pending = [wanted]
        while pending:
            op = pending[-1]
            makers = [value.op for value in op.operands if value.op is not None]
            missing = [
                maker for maker in makers if maker not in given and maker.parent is op.parent
            ]
            if missing and op not in given:
                pending += missing
                continue
            pending.pop()
            if op not in given:
                given.add(op)
                yield op


def _least(chores: Chores, alive: Sequence[int]) -> int:
    """Bytes that every order holds at some time."""
    tasks = [
        Task(frozenset(chore.reads), frozenset(chore.makes), frozenset(chore.over))
        for chore in chores.all
    ]
    wave = chores.waves(range(len(tasks)))
    found = witnesses(tasks, [chores.bytes], [[alive[now] for now in wave]])
    return max((sum(chores.bytes[v] for v in held) for held in found.values()), default=0)
