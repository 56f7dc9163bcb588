"""Kernels run in an order that holds less, if one is found that is as quick.

Of several orders the one with the lowest peak is kept. The work itself is the same, so it takes as long but
for the barriers between waves and for kernels that have fewer others beside them: an order may have so
many more waves than the one written that their barriers take less than a five-hundredth of the time. What
may fail or be seen from outside keeps its order, and what updates an argument stays behind those that read
it. Loops and branches are moved as a whole; the work of a round of a loop has an order of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from dlc.dialects import flow, func, kernel
from dlc.dialects.builtin import Module
from dlc.dialects.measured import measuring
from dlc.ir.core import Op, Value
from dlc.ir.passes import Context, define_pass
from dlc.lowering.estimate import picoseconds
from dlc.lowering.plan_layout import cases_of
from dlc.lowering.plan_schedule import NEW_WAVE
from dlc.lowering.plan_storage import replaceable
from dlc.lowering.timeline import SAMPLE, Timeline, origin, readers, updates_of
from dlc.passes.ordering import Chore, Chores, Task, as_written, best_order, witnesses

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
            for op in reversed(list(function.walk())):
                if isinstance(op, flow.Scan | flow.While):
                    _reorder_in(Timeline(function, op.body, sizes), _carried(op), op, context)
            timeline = Timeline(function, function.body, sizes)
            _reorder_in(timeline, updates_of(function), function, context)


def _carried(op: flow.Scan | flow.While) -> dict[Value, Value]:
    """The arguments of a loop's body that have other values in the next round, by those values."""
    lead = 1 if isinstance(op, flow.Scan) else 0
    arguments = op.body.arguments[lead : lead + len(op.initial)]
    following = op.body.terminator.operands
    return {origin(value): argument for value, argument in zip(following, arguments, strict=False)}


def _reorder_in(
    timeline: Timeline, updates: Mapping[Value, Value], subject: Op, context: Context
) -> None:
    """Change the order of a block. `updates` are the arguments that values of it are written over."""
    work = [op for op in timeline.ops if _is_work(op)]
    if not 2 < len(work) <= MOST_CHORES:
        return
    chores = _chores(timeline, work, updates)
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
        context.log.refused("another order", subject, **figures)
        return
    context.log.did("another order", subject, **figures)
    for number in found.cuts:
        work[number].attributes[NEW_WAVE] = True
    for op in list(_with_others([work[number] for number in found.order], timeline.ops)):
        timeline.block.move(op, None)


def _is_work(op: Op) -> bool:
    return isinstance(op, kernel.Kernel | flow.Scan | flow.While | flow.If)


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


# The work as numbers.


def _chores(timeline: Timeline, work: Sequence[Op], updates: Mapping[Value, Value]) -> Chores:
    """What all of it reads, makes and waits for."""
    number = {op: index for index, op in enumerate(work)}
    values = {value: index for index, value in enumerate(timeline.held)}
    waits = _waits(number, updates)
    chores: list[Chore] = []
    for op in work:
        sources = [origin(value) for value in op.operands]
        makers = {number[source.op] for source in sources if source.op in number}
        chores.append(
            Chore(
                tuple(dict.fromkeys(values[source] for source in sources if source in values)),
                tuple(values[value] for value in op.results if value in values),
                tuple(sorted(makers | waits.get(number[op], set()))),
                tuple(values[source] for source in _overwritable(op) if source in values),
                alone=not isinstance(op, kernel.Kernel),
                inside=timeline.inside(op),
            )
        )
    return Chores(chores, [held.bytes for held in timeline.held.values()])


def _waits(number: Mapping[Op, int], updates: Mapping[Value, Value]) -> dict[int, set[int]]:
    """What waits for work whose results it does not read."""
    found: dict[int, set[int]] = {}
    seen = [index for op, index in number.items() if not op.pure]
    for one, other in pairwise(seen):
        found.setdefault(other, set()).add(one)
    for value, argument in updates.items():
        update = number.get(value.op) if value.op is not None else None
        if update is None:
            continue
        for reader in readers(argument):
            if number.get(reader, update) < update:
                found.setdefault(update, set()).add(number[reader])
    return found


def _overwritable(op: Op) -> Iterator[Value]:
    """The values over which the only result of a kernel may be written."""
    if not isinstance(op, kernel.Kernel) or len(op.results) != 1:
        return
    sources = [origin(value) for value in op.operands]
    for position in replaceable(op):
        type = kernel.array_type(op.operands[position])
        if type is kernel.array_type(op.results[0]) and sources.count(sources[position]) == 1:
            yield sources[position]


def _least(chores: Chores, alive: Sequence[int]) -> int:
    """Bytes that every order holds at some time."""
    tasks = [
        Task(frozenset(chore.reads), frozenset(chore.makes), frozenset(chore.over))
        for chore in chores.all
    ]
    wave = chores.waves(range(len(tasks)))
    found = witnesses(tasks, [chores.bytes], [[alive[now] for now in wave]])
    return max((sum(chores.bytes[v] for v in held) for held in found.values()), default=0)
