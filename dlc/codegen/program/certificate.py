"""The certificate of a plan: the offset of every value in the arena, and two lower bounds on its size.

The peak of the schedule, the most bytes in use in one wave, bounds every assignment of offsets for this
order of the work. The schedule-independent bound holds for every order: while some kernel runs, what it
reads and writes is held, and what its predecessors have computed for its successors
(`dlc.planning.scheduling.lower_bound`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dlc.codegen.program.memory_lower_bound import (
    begins_inside,
    largest_calls,
    schedule_independent_witnesses,
)
from dlc.codegen.program.sizes import Entry, Sizes
from dlc.dialects import mem
from dlc.dialects.comm import HOST
from dlc.dialects.measured import upper_bound
from dlc.errors import ArtifactError
from dlc.ir.core import Block, Op, Value
from dlc.ir.dims import Size, minimum, product
from dlc.ir.intervals import interval
from dlc.ir.types import ViewType
from dlc.runtime.artifact.certificate import Certificate, RootRecord, UpdateRecord, ViewRecord


@dataclass(frozen=True, slots=True)
class Placed:
    """A root of the arena with its bytes and its offset."""

    root: mem.Root
    bytes: Entry
    offset: Entry


def certificate(
    program: mem.Program, placed: Sequence[Placed], arena: Entry, sizes: Sizes
) -> Certificate:
    """The certificate of a program whose roots have the offsets in `placed`. Adds entries to `sizes`.

    Raises ArtifactError (D0610) for a call that uses a root which is not live then.
    """
    _Lives({each.root.result for each in placed}, program).check(program.body)
    bound, calls = _schedule_independent_bound(program, placed, sizes)
    return Certificate(
        str(arena),
        order_bound=str(_peak_of_schedule(placed, sizes)),
        any_order_bound=str(bound),
        witnesses=tuple(sorted(calls)),
        roots=tuple(
            RootRecord(
                f"r{each.root.number}",
                str(each.bytes),
                each.root.first,
                each.root.last,
                str(each.offset),
                str(each.root.location.own.place or ""),
                each.root.device or HOST,
            )
            for each in placed
        ),
        views=tuple(_views(program, placed, sizes)),
        updates=tuple(_updates(program, sizes)),
    )


def _updates(program: mem.Program, sizes: Sizes) -> Iterator[UpdateRecord]:
    """The inputs that the program updates, with the calls that read what they were and that write them."""
    updated = set(program.updates.values())
    roots = [op for op in program.body if isinstance(op, mem.Root) and op.kind == "input"]
    reads: dict[Value, list[int]] = {root.result: [] for root in roots if root.number in updated}
    writes: dict[Value, list[int]] = {value: [] for value in reads}
    calls = [op for op in program.walk() if isinstance(op, mem.Call)] if reads else []
    for number, call in enumerate(calls):
        first_write = len(call.views) - call.writes
        before = {view.root for view in _views_of(call.views[:first_write]) if view.before}
        after = {view.root for view in _views_of(call.views[first_write:])}
        for places, found in ((reads, before), (writes, after)):
            for root in found & places.keys():
                places[root].append(number)
    for root in roots:
        if root.result in reads:
            bytes = sizes.number(root.bytes)
            yield UpdateRecord(
                root.number, str(bytes), tuple(reads[root.result]), tuple(writes[root.result])
            )


def _views_of(values: Sequence[Value]) -> list[mem.View]:
    return [value.op for value in values if isinstance(value.op, mem.View)]


def _peak_of_schedule(placed: Sequence[Placed], sizes: Sizes) -> Entry:
    """The most bytes of roots that are in use in one wave.

    The sum grows where a root begins and shrinks after it ends, so it is a peak just before it shrinks.
    Constants are summed apart, so that a call has few sums to compute.
    """
    begins = [(each.root.first, 0, index) for index, each in enumerate(placed)]
    ends = [(each.root.last, 1, index) for index, each in enumerate(placed)]
    zero = sizes.number(0)
    fixed, moving, grown = 0, zero, False
    peaks: dict[Entry, int] = {}
    for _, ending, index in sorted([*begins, *ends]):
        if ending and grown:
            peaks[moving] = max(fixed, peaks.get(moving, 0))
        grown = not ending
        entry = placed[index].bytes
        constant = sizes.constant(entry)
        if constant is not None:
            fixed += -constant if ending else constant
        else:
            moving = (sizes.difference if ending else sizes.sum)(moving, entry)
    return sizes.maximum([sizes.sum(e, sizes.number(most)) for e, most in peaks.items()])


def _schedule_independent_bound(
    program: mem.Program, placed: Sequence[Placed], sizes: Sizes
) -> tuple[Entry, set[int]]:
    """The schedule-independent bound on peak memory, and the calls that witness it.

    An address says which value it belongs to only where no value is empty: an empty root may lie where
    another begins, and an empty part begins where its root does, so that the checker takes a write of it
    for one of all the root. So the bound holds where nothing is empty. In every case a call's own roots,
    which may include empty ones, are live while it runs.
    """
    roots = [each.root for each in placed]
    held = schedule_independent_witnesses(program, roots)
    most = sizes.maximum([_sum(placed, each, sizes) for each in held.values()])
    may_vanish = [*_possibly_empty(placed, program), *_possibly_empty_parts(placed, program, sizes)]
    if not may_vanish:
        return most, set(held)
    exists = sizes.minimum([sizes.number(1), *may_vanish])
    own = largest_calls(program, roots)
    least = [_sum(placed, each, sizes) for each in own.values()]
    return sizes.maximum([sizes.product(most, exists), *least]), {*held, *own}


def _possibly_empty(placed: Sequence[Placed], program: mem.Program) -> Iterator[Entry]:
    """The bytes of roots that have none at some sizes, but not at all of them."""
    for each in placed:
        least, _ = interval(each.root.bytes, program.bounds)
        if each.root.bytes != 0 and (least is None or least <= 0):
            yield each.bytes


def _possibly_empty_parts(
    placed: Sequence[Placed], program: mem.Program, sizes: Sizes
) -> Iterator[Entry]:
    """The first bytes of parts that may be empty: 0 where they are, otherwise inside their roots."""
    roots = {each.root.result for each in placed}
    for view in program.body:
        if isinstance(view, mem.View) and view.root in roots and begins_inside(view):
            first = first_byte(view, program)
            if not isinstance(first, int):
                yield sizes.number(first)


def _sum(placed: Sequence[Placed], roots: Iterable[int], sizes: Sizes) -> Entry:
    """The sum of the bytes of roots."""
    total = sizes.number(0)
    for root in sorted(roots):
        total = sizes.sum(total, placed[root].bytes)
    return total


# Lives.


class _Lives:
    """Checks that the roots of the arena live as long as calls use them.

    The checker of a loader cannot see this: an address of a root that is over may be one of another root.
    """

    def __init__(self, roots: set[Value], program: mem.Program) -> None:
        self._roots = roots
        self._counts = {op.dim: op.view for op in program.body if isinstance(op, mem.MeasuredSize)}
        self._waves = 0

    def check(self, block: Block) -> set[mem.Root]:
        """The roots that the calls in a block use, each in its life. Raises ArtifactError (D0610)."""
        used = set[mem.Root]()
        for op in block:
            match op:
                case mem.Wave():
                    used |= self._check_wave(op)
                case mem.Loop() | mem.While() | mem.Choose():
                    first = self._waves
                    inner = [self.check(region) for region in op.regions]
                    used |= set[mem.Root]().union(*inner)
                    if not isinstance(op, mem.Choose):
                        self._check_loop(op, set[mem.Root]().union(*inner), first)
                case _:
                    pass
        return used

    def _check_wave(self, wave: mem.Wave) -> set[mem.Root]:
        used = set[mem.Root]()
        for call in [op for op in wave.body if isinstance(op, mem.Call)]:
            roots = self._roots_of(call)
            for root in roots:
                if not root.first <= self._waves <= root.last:
                    raise _not_live(call, root, self._waves)
            used |= roots
        self._waves += 1
        return used

    def _check_loop(self, loop: mem.Loop | mem.While, used: set[mem.Root], first: int) -> None:
        """What was written before a loop is read again in each of its iterations."""
        last = self._waves - 1
        for root in used:
            if root.first < first and root.last < last:
                raise _not_live(loop, root, last)

    def _roots_of(self, call: mem.Call) -> set[mem.Root]:
        counts = [self._counts[str(size)] for size in call.sizes if str(size) in self._counts]
        found = [view.root for view in _views_of([*call.views, *counts])]
        return {root.op for root in found if root in self._roots and isinstance(root.op, mem.Root)}


def _not_live(op: Op, root: mem.Root, wave: int) -> ArtifactError:
    return ArtifactError(
        f"root r{root.number} is used in wave {wave}, and is live from {root.first} to {root.last}",
        code="D0610",
        place=op.location.place,
    )


# Views.


def _views(program: mem.Program, placed: Sequence[Placed], sizes: Sizes) -> Iterator[ViewRecord]:
    """The bytes that each view takes in its root; for one that moves in loops, over all iterations.

    Equal ranges of bytes are listed once, with the name of a value that has one.
    """
    root_numbers = {each.root.result: index for index, each in enumerate(placed)}
    views: dict[tuple[int, Size, Size], mem.View] = {}
    for op in program.body:
        if isinstance(op, mem.View) and op.root in root_numbers and op.result.uses:
            byte_range = _byte_range(op, _rounds(op))
            offset, size = (upper_bound(part, program.limit_of) for part in byte_range)
            key = (root_numbers[op.root], offset, size)
            if key not in views or (op.result.name and not views[key].result.name):
                views[key] = op
    for (root, offset, size), op in views.items():
        texts = sizes.text(offset), sizes.text(size)
        yield ViewRecord(op.result.name or "", root, *texts, str(op.location.own.place or ""))


def _rounds(view: mem.View) -> dict[int, Size]:
    """The iterations of each loop that a view moves with: those around its users."""
    rounds: dict[int, Size] = {}
    outer = next(iter(view.result.uses), None) if view.counters else None
    while outer is not None:
        if isinstance(outer, mem.Loop) and outer.counter in view.counters:
            rounds[outer.counter] = outer.length
        outer = outer.parent.parent if outer.parent is not None else None
    return rounds


def _byte_range(view: mem.View, rounds: dict[int, Size]) -> tuple[Size, Size]:
    """The range of bytes of a view in its root, over all iterations of its loops: first and count."""
    type = view.type
    assert isinstance(type, ViewType)
    if type.is_contiguous and not rounds:
        return view.offset, type.tensor.size * type.dtype.bytes
    first, last = view.offset, _last_element(type)
    for counter, step in zip(view.counters, view.steps, strict=True):
        way = (rounds[counter] - 1) * step
        if _goes_down(step):
            first, last = first + way, last - way
        else:
            last = last + way
    exists = _exists((*type.shape, *rounds.values()))
    return first * exists, (last + type.dtype.bytes) * exists


def first_byte(view: mem.View, program: mem.Program) -> Size:
    """The offset of a view in its root, before its loops move it; 0 where it may be and is empty.

    The offset of an empty view may be outside of the root, such as that of the last row of none.
    """
    sizes = [upper_bound(n, program.limit_of) for n in (*view.type.shape, *_rounds(view).values())]
    bounds = program.bounds
    return view.offset * _exists([n for n in sizes if (interval(n, bounds)[0] or 0) <= 0])


def _exists(sizes: Iterable[Size]) -> Size:
    """1, or 0 where one of these sizes is 0: a loop without iterations, or an axis without elements."""
    return product(dict.fromkeys(minimum(1, size) for size in sizes))


def _last_element(type: ViewType) -> Size:
    """The bytes from the first element of a view to its last one."""
    total: Size = 0
    for size, stride in zip(type.shape, type.strides, strict=True):
        total = total + (size - 1) * stride
    return total * type.dtype.bytes


def _goes_down(step: Size) -> bool:
    """Whether a loop walks backward: its steps are bytes of slices, or minus that."""
    return (step if isinstance(step, int) else step.terms[0][1]) < 0
