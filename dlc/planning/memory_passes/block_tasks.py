"""The work of a block as numbers: what each operation reads, makes and waits for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from dlc.dialects import flow, func, kernel
from dlc.dialects.builtin import Module
from dlc.dialects.measured import measuring
from dlc.ir.core import Block, Op, Value
from dlc.ir.dims import interval
from dlc.ir.passes import Context
from dlc.planning.aliases import computed, origin, readers
from dlc.planning.layout import cases_of
from dlc.planning.liveness import Timeline, updates_of
from dlc.planning.schedule import NEW_WAVE
from dlc.planning.scheduling import Chore, Chores
from dlc.planning.storage import replaceable


class PlannedBlock(NamedTuple):
    """A block of a function, what is written over which arguments in it, and the sizes to plan for."""

    function: func.Func
    block: Block
    updates: Mapping[Value, Value]
    sizes: Mapping[str, int]


def planned_blocks(module: Module, context: Context) -> Iterator[PlannedBlock]:
    """The bodies of loops, inner ones first, and of functions, where memory is planned."""
    for function in list(module.body):
        if not isinstance(function, func.Func) or measuring(function):
            continue
        *_, sizes = cases_of(function, context.options.batch)
        for op in reversed(list(function.walk(formulas=False))):
            if isinstance(op, flow.Scan | flow.While):
                yield PlannedBlock(function, op.body, carried(op), sizes)
        yield PlannedBlock(function, function.body, updates_of(function), sizes)


def work_in(timeline: Timeline) -> list[Op]:
    """The operations of a block that take time."""
    work = kernel.Kernel | flow.Scan | flow.While | flow.If
    return [op for op in timeline.ops if isinstance(op, work)]


def carried(op: flow.Scan | flow.While) -> dict[Value, Value]:
    """The arguments of a loop's body that have other values in the next round, by those values."""
    lead = 1 if isinstance(op, flow.Scan) else 0
    arguments = op.body.arguments[lead : lead + len(op.initial)]
    following = op.body.terminator.operands
    return {origin(value): argument for value, argument in zip(following, arguments, strict=False)}


def chores_of(timeline: Timeline, work: Sequence[Op], updates: Mapping[Value, Value]) -> Chores:
    """What all of it reads, makes and waits for."""
    number = {op: index for index, op in enumerate(work)}
    values = {value: index for index, value in enumerate(timeline.held)}
    waits = _waits(number, updates)
    before = _before(timeline.ops, number)

    def numbers(arrays: Iterable[Value]) -> tuple[int, ...]:
        """The arrays among these that the block computes for itself, each once."""
        found = dict.fromkeys(map(timeline.origin, arrays))
        return tuple([values[array] for array in found if array in values])

    chores: list[Chore] = []
    for op in work:
        chores.append(
            Chore(
                numbers(op.operands),
                numbers(op.results),
                tuple(sorted(before[op] | waits.get(number[op], set()))),
                numbers(_overwritable(op, timeline)),
                alone=not isinstance(op, kernel.Kernel),
                inside=timeline.inside(op),
            )
        )
    return Chores(chores, [held.bytes for held in timeline.held.values()])


def _before(ops: Iterable[Op], number: Mapping[Op, int]) -> dict[Op, set[int]]:
    """For each operation the work whose results it reads, itself or through views."""
    found: dict[Op, set[int]] = {}
    for op in ops:
        makers = {value.op for value in op.operands if value.op is not None}
        found[op] = set()
        for maker in makers:
            found[op] |= {number[maker]} if maker in number else found.get(maker, set())
    return found


def may_be_empty(value: Value, function: func.Func) -> bool:
    """Whether an array may have no element: then it has no place inside another one."""
    low, _ = interval(kernel.array_type(value).size, function.bounds)
    return low is None or low < 1


def peak_of(timeline: Timeline, updates: Mapping[Value, Value]) -> int:
    """The most bytes that a block holds in a wave, in the order in which it is."""
    work = work_in(timeline)
    chores = chores_of(timeline, work, updates)
    cuts = {number for number, op in enumerate(work) if op.attributes.get(NEW_WAVE)}
    order = range(len(work))
    return max(chores.held(order, chores.waves(order, cuts)), default=0)


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


def _overwritable(op: Op, timeline: Timeline) -> Iterator[Value]:
    """The values over which the only result of a kernel may be written."""
    if not isinstance(op, kernel.Kernel) or len(op.results) != 1:
        return
    (result,) = op.results
    if timeline.origin(result) is not result:
        return
    if all(operand.type is not result.type for operand in op.operands):
        return
    sources = [timeline.origin(value) for value in op.operands]
    for position in replaceable(op):
        operand, source = op.operands[position], sources[position]
        same = operand.type is result.type
        if same and computed(operand) is source and sources.count(source) == 1:
            yield source
