"""The pass `overlap`: all-reduces of large arrays are under way while other kernels run.

An all-reduce begins as soon as its array is there, and what needs the sum comes when as much other work as
the network takes has been done. Between the two the library of the network is called now and then, since it
may have no thread of its own. Where there is no other work in between, or the peak of memory would rise by
more than a tenth, collectives stay as they are.

Every rank runs the same program, and a wave has one collective at most. So all ranks begin their
collectives in the same order, which MPI asks for; the order in which they wait does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dlc.dialects import kernel
from dlc.dialects.builtin import Module
from dlc.dialects.comm import AllReduce, StartAllReduce, Test, Wait
from dlc.ir.core import Builder, Op, Value
from dlc.ir.dims import ceil_divide
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL
from dlc.planning.liveness import SAMPLE, Timeline
from dlc.planning.memory_passes.block_tasks import (
    PlannedBlock,
    in_order,
    peak_of,
    planned_blocks,
    task_graph,
    work_in,
)
from dlc.planning.scheduling import TaskGraph
from dlc.target import cpu_of
from dlc.target.cpu_costs import CpuCosts
from dlc.target.estimates import bytes_of, picoseconds
from dlc.target.network import USUAL_NETWORK

HIGHER = 10
"""The peak of memory may rise by this fraction (1/n)."""
MOST_TASKS = 4_000
"""Blocks of more tasks stay as they are."""


@define_pass("overlap")
def overlap(module: Op, context: Context) -> None:
    """Let other kernels run while all-reduces of large arrays are under way."""
    assert isinstance(module, Module)
    blocks = list(planned_blocks(module, context))
    for each in blocks:
        if any(_is_long(op) for op in each.block):
            _overlap_in(each, context)


def _is_long(op: Op) -> bool:
    """Whether a collective takes longer than beginning and waiting, and can be done in between."""
    if not isinstance(op, AllReduce):
        return False
    type = kernel.array_type(op.inputs[0])
    size = type.size
    bytes = size * type.dtype.bytes
    return isinstance(bytes, int) and bytes * USUAL_NETWORK.byte >= USUAL_NETWORK.latency


def _overlap_in(planned: PlannedBlock, context: Context) -> None:
    """Change the order of a block, and put a start and a wait in the place of its long all-reduces."""
    timeline = Timeline(planned.function, planned.block, planned.sizes)
    work = work_in(timeline)
    if len(work) > MOST_TASKS:
        return
    before = peak_of(timeline, planned.updates)
    graph = task_graph(timeline, work, planned.updates)
    sizes = {name: min(size, SAMPLE) for name, size in timeline.sample.items()}
    schedule = _Schedule(graph, work, sizes, cpu_of(context.options).costs)
    schedule.run()
    if not schedule.waits:
        return
    for op in in_order([work[number] for number in schedule.order], timeline.ops):
        planned.block.move(op, None)
    after = peak_of(Timeline(planned.function, planned.block, planned.sizes), planned.updates)
    if (after - before) * HIGHER > before:
        for op in timeline.ops:
            planned.block.move(op, None)
        context.log.refused(
            "other work during its collectives would raise the peak",
            planned.function,
            peak_bytes_before=before,
            peak_bytes_after=after,
        )
        return
    for number, until in schedule.waits.items():
        op, last = work[number], work[until]
        assert isinstance(op, AllReduce)
        polls = [work[at] for at in schedule.polls.get(number, ())]
        _begin(op, last, polls, context)


@dataclass(slots=True)
class _UnderWay:
    """An all-reduce that has begun, and the work that waits for it."""

    number: int
    end: int
    """When it is probably done, in picoseconds of the other work."""


@dataclass(slots=True)
class _Schedule:
    """The order of the tasks of a block in which work that waits for an all-reduce comes later."""

    graph: TaskGraph
    work: Sequence[Op]
    sizes: Mapping[str, int]
    costs: CpuCosts
    order: list[int] = field(default_factory=list[int])
    waits: dict[int, int] = field(default_factory=dict[int, int])
    """By the number of an all-reduce the last task during which it is under way."""
    polls: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """By the same, the tasks after which the library is called for it."""
    _now: int = 0
    _polled: int = 0
    _under_way: list[_UnderWay] = field(default_factory=list[_UnderWay])
    _later: list[int] = field(default_factory=list[int])
    """Tasks that wait, in program order."""

    def run(self) -> None:
        """Take one task after the other, and those that wait when they need not any longer."""
        for number in self._early():
            op = self.work[number]
            if op.pure and self._waits(number):
                self._later.append(number)
                continue
            if not op.pure:
                self._finish(len(self._under_way))
            self._take(number)
            done = 0
            while done < len(self._under_way) and self._under_way[done].end <= self._now:
                done += 1
            self._finish(done)
        self._finish(len(self._under_way))

    def _early(self) -> list[int]:
        """The tasks in program order, but long all-reduces as early as their arrays allow."""
        order: list[int] = []
        for number, op in enumerate(self.work):
            place = len(order)
            if _is_long(op):
                before = set(self.graph.tasks[number].before)
                while place and order[place - 1] not in before:
                    place -= 1
            order.insert(place, number)
        return order

    def _waits(self, number: int) -> bool:
        """Whether a task needs a sum that is under way, or a task that waits."""
        held = {each.number for each in self._under_way}.union(self._later)
        return not held.isdisjoint(self.graph.tasks[number].before)

    def _take(self, number: int) -> None:
        op = self.work[number]
        self.order.append(number)
        if _is_long(op):
            start = max([self._now, *[each.end for each in self._under_way]])
            assert isinstance(op, AllReduce)
            time = USUAL_NETWORK.latency + USUAL_NETWORK.byte * bytes_of(op, self.sizes)
            self._under_way.append(_UnderWay(number, start + time))
            return
        self._now += picoseconds(op, self.sizes, self.costs)
        for each in self._under_way:
            self.waits[each.number] = number
        if self._under_way and self._now - self._polled >= USUAL_NETWORK.poll:
            self._polled = self._now
            self.polls.setdefault(self._under_way[0].number, []).append(number)

    def _finish(self, count: int) -> None:
        """Wait for `count` of the all-reduces, then run what waits for no other one."""
        if not count:
            return
        del self._under_way[:count]
        waiting, self._later = self._later, []
        for number in waiting:
            if self._waits(number):
                self._later.append(number)
            else:
                self._take(number)


def _begin(op: AllReduce, last: Op, polls: Sequence[Op], context: Context) -> None:
    """Put a start, tests behind some operations, and a wait behind the last in place of a collective."""
    bytes = kernel.array_type(op.inputs[0]).size * kernel.array_type(op.inputs[0]).dtype.bytes
    pieces = ceil_divide(bytes, USUAL_NETWORK.piece)
    assert isinstance(pieces, int)
    start = StartAllReduce(op.inputs, [], op.mesh_axis, op.ranks, op.combine, pieces)
    Builder.before_op(op).place(start)
    array, requests = start.results
    for poll in polls:
        if poll is not last:
            requests = _behind(poll, op)(Test([requests], []))
    total: Value = _behind(last, op)(Wait([array, requests], []))
    context.log.did("let other work run meanwhile", start, pieces=pieces)
    context.rewriter.replace(op, total, relation=EQUAL)


def _behind(op: Op, like: Op) -> Builder:
    """A builder that inserts behind an operation, with the location of another one."""
    assert op.parent is not None
    return Builder(op.parent, like.location, op.next)


__all__ = ["overlap"]
