"""The task graph of a block: what each of its operations reads, writes and waits for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from dlc.dialects import flow, func, kernel
from dlc.dialects.array.shape import without_reshapes
from dlc.dialects.builtin import Module
from dlc.dialects.measured import measuring
from dlc.ir.core import Block, Op, Value
from dlc.ir.intervals import interval
from dlc.ir.passes import Context
from dlc.planning.aliases import origin, readers
from dlc.planning.liveness import Timeline, updates_of
from dlc.planning.offset_assignment import cases_of
from dlc.planning.overwriting import overwritable_operands
from dlc.planning.scheduling import Task, TaskGraph
from dlc.planning.waves import NEW_WAVE


class PlannedBlock(NamedTuple):
    """A block of a function, the arguments that its values update in place, and the sizes to plan for."""

    function: func.Func
    block: Block
    updates: Mapping[Value, Value]
    sizes: Mapping[str, int]


def planned_blocks(module: Module, context: Context) -> Iterator[PlannedBlock]:
    """The blocks whose memory is planned: bodies of loops, inner ones first, and of functions."""
    for function in list(module.body):
        if not isinstance(function, func.Func) or measuring(function):
            continue
        *_, sizes = cases_of(function, context.options.planned_batch)
        for op in reversed(list(function.walk(formulas=False))):
            if isinstance(op, flow.Scan | flow.While):
                yield PlannedBlock(function, op.body, carried(op), sizes)
        yield PlannedBlock(function, function.body, updates_of(function), sizes)


def work_in(timeline: Timeline) -> list[Op]:
    """The operations of a block that compute something: kernels, loops and branches."""
    work = kernel.Kernel | flow.Scan | flow.While | flow.If
    return [op for op in timeline.ops if isinstance(op, work)]


def carried(op: flow.Scan | flow.While) -> dict[Value, Value]:
    """The carried arguments of a loop's body, by the values that they have in the next iteration."""
    following = zip(op.body.terminator.operands, op.carried, strict=False)
    return {origin(value): argument for value, argument in following}


def task_graph(timeline: Timeline, work: Sequence[Op], updates: Mapping[Value, Value]) -> TaskGraph:
    """The tasks of a block with their reads, writes and predecessors; `work` are its operations."""
    task_of = {op: index for index, op in enumerate(work)}
    index_of = {value: index for index, value in enumerate(timeline.held)}
    waits_of = _anti_dependences(task_of, updates)
    predecessors = _dependences(timeline.ops, task_of)

    def value_indices(arrays: Iterable[Value]) -> tuple[int, ...]:
        """The indices of those arrays that the block computes and holds itself, each once."""
        distinct = dict.fromkeys(map(timeline.origin, arrays))
        return tuple([index_of[array] for array in distinct if array in index_of])

    tasks: list[Task] = []
    for op in work:
        tasks.append(
            Task(
                value_indices(op.operands),
                value_indices(op.results),
                tuple(sorted(predecessors[op] | waits_of.get(task_of[op], set()))),
                value_indices(_overwritable(op, timeline)),
                alone=not isinstance(op, kernel.Kernel),
                inside=timeline.inside(op),
            )
        )
    return TaskGraph(tasks, [held.bytes for held in timeline.held.values()])


def in_order(order: Sequence[Op], ops: Sequence[Op]) -> Iterator[Op]:
    """`order` with views and constants just before their first reader, then the remaining `ops`."""
    emitted = set[Op]()
    for requested in (*order, *ops):
        pending = [requested]
        while pending:
            op = pending[-1]
            producers = [value.op for value in op.operands if value.op is not None]
            missing = [
                producer
                for producer in producers
                if producer not in emitted and producer.parent is op.parent
            ]
            if missing and op not in emitted:
                pending += missing
                continue
            pending.pop()
            if op not in emitted:
                emitted.add(op)
                yield op


def _dependences(ops: Iterable[Op], task_of: Mapping[Op, int]) -> dict[Op, set[int]]:
    """For each operation the tasks whose results it reads, itself or through views."""
    predecessors: dict[Op, set[int]] = {}
    for op in ops:
        producers = {value.op for value in op.operands if value.op is not None}
        predecessors[op] = set()
        for producer in producers:
            predecessors[op] |= (
                {task_of[producer]} if producer in task_of else predecessors.get(producer, set())
            )
    return predecessors


def may_be_empty(value: Value, function: func.Func) -> bool:
    """Whether an array may have no elements: then it cannot lie inside another one."""
    low, _ = interval(kernel.array_type(value).size, function.bounds)
    return low is None or low < 1


def peak_of(timeline: Timeline, updates: Mapping[Value, Value]) -> int:
    """The most bytes live in a wave of a block, in its current order."""
    work = work_in(timeline)
    graph = task_graph(timeline, work, updates)
    cuts = {index for index, op in enumerate(work) if op.attributes.get(NEW_WAVE)}
    order = range(len(work))
    return max(graph.held(order, graph.waves(order, cuts)), default=0)


def _anti_dependences(
    task_of: Mapping[Op, int], updates: Mapping[Value, Value]
) -> dict[int, set[int]]:
    """For each task those before it whose results it does not read: effects, readers of what it updates."""
    waits: dict[int, set[int]] = {}
    ordered = [index for op, index in task_of.items() if not op.pure]
    for earlier, later in pairwise(ordered):
        waits.setdefault(later, set()).add(earlier)
    for value, argument in updates.items():
        update = task_of.get(value.op) if value.op is not None else None
        if update is None:
            continue
        for reader in readers(argument):
            if task_of.get(reader, update) < update:
                waits.setdefault(update, set()).add(task_of[reader])
    return waits


def _overwritable(op: Op, timeline: Timeline) -> Iterator[Value]:
    """The operands that the only result of a kernel may overwrite."""
    if not isinstance(op, kernel.Kernel) or len(op.results) != 1:
        return
    (result,) = op.results
    if timeline.origin(result) is not result:
        return
    if all(operand.type is not result.type for operand in op.operands):
        return
    sources = [timeline.origin(value) for value in op.operands]
    for position in overwritable_operands(op):
        operand, source = op.operands[position], sources[position]
        same_type = operand.type is result.type
        if same_type and without_reshapes(operand) is source and sources.count(source) == 1:
            yield source
