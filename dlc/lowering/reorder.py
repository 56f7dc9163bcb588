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
from dlc.lowering.block_work import carried, chores_of, work_in
from dlc.lowering.estimate import picoseconds
from dlc.lowering.plan_layout import cases_of
from dlc.lowering.plan_schedule import NEW_WAVE
from dlc.lowering.timeline import SAMPLE, Timeline, updates_of
from dlc.passes.ordering import Chores, Task, as_written, best_order, witnesses

BARRIER = 4_000_000
"""What a barrier costs, in picoseconds: twice what it takes where threads wait for each other."""
SLOWER = 500
"""The part of the time that further barriers may take."""
MOST_CHORES = 4_000
"""More work than this keeps its order."""


@define_pass("reorder")
def reorder(module: Op, context: Context) -> None:
    """Run kernels in an order that holds less, where that takes no longer."""
    assert isinstance(module, Module)
    for function in list(module.body):
        if isinstance(function, func.Func) and not measuring(function):
            *_, sizes = cases_of(function, context.options.batch)
            # What a round of a loop holds is part of what is held beside the loop.
            for op in reversed(list(function.walk(formulas=False))):
                if isinstance(op, flow.Scan | flow.While):
                    _reorder_in(Timeline(function, op.body, sizes), carried(op), op, context)
            timeline = Timeline(function, function.body, sizes)
            _reorder_in(timeline, updates_of(function), function, context)


def _reorder_in(
    timeline: Timeline, updates: Mapping[Value, Value], subject: Op, context: Context
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
    usual = {name: min(size, SAMPLE) for name, size in timeline.sample.items()}
    time = sum(picoseconds(op, usual) for op in work)
    most_waves = len(before.held) + time // (BARRIER * SLOWER)
    found = best_order(chores, most_waves, least, context.options.plan_effort)
    figures = {
        "peak_before": before.peak,
        "peak_then": found.peak,
        "least": least,
        "waves_before": len(before.held),
        "waves_then": len(found.held),
        "how": found.how,
    }
    if found.peak >= before.peak:
        context.log.refused("no order of so few waves holds less", subject, **figures)
        return
    context.log.did("another order", subject, **figures)
    for number in found.cuts:
        work[number].attributes[NEW_WAVE] = True
    for op in list(_with_others([work[number] for number in found.order], timeline.ops)):
        timeline.block.move(op, None)


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
