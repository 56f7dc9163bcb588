"""The certificate of a plan: where everything lies in the arena, and how good that is.

Two bounds go with it. No placement for this order of the work can do with less than what is in use at
once; and no order can do with less than what some kernel reads and writes, with what its predecessors have
made for its successors (`dlc.planning.scheduling.lower_bound`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dlc.codegen.program.memory_lower_bound import held_in_any_order, may_be_empty
from dlc.codegen.program.sizes import Entry, Sizes
from dlc.dialects import mem
from dlc.dialects.comm import HOST
from dlc.dialects.measured import upper_bound
from dlc.ir.dims import Size, interval, minimum, product
from dlc.ir.types import ViewType
from dlc.runtime.artifact.certificate import Certificate, RootRecord, ViewRecord


@dataclass(frozen=True, slots=True)
class Placed:
    """A root of the arena with its bytes and its offset."""

    root: mem.Root
    bytes: Entry
    offset: Entry


def certificate(
    program: mem.Program, placed: Sequence[Placed], arena: Entry, sizes: Sizes
) -> Certificate:
    """The certificate of a program whose roots lie where `placed` says. Adds to `sizes`."""
    bound, calls = _held_at_once(program, placed, sizes)
    return Certificate(
        str(arena),
        order_bound=str(_most_in_use(placed, sizes)),
        any_order_bound=str(bound),
        witnesses=tuple(sorted(calls)),
        roots=tuple(
            RootRecord(
                f"r{each.root.number}",
                str(each.bytes),
                each.root.first,
                each.root.last,
                str(each.offset),
                str(each.root.location.place or ""),
                each.root.device or HOST,
            )
            for each in placed
        ),
        views=tuple(_views(program, placed, sizes)),
    )


def _most_in_use(placed: Sequence[Placed], sizes: Sizes) -> Entry:
    """The largest sum of the roots that are in use in one wave.

    The sum goes up where a root begins and down after it ends, so it counts just before it goes down.
    What is a number is kept apart, so that few sums are left for the call to compute.
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
        known = sizes.known(entry)
        if known is not None:
            fixed += -known if ending else known
        else:
            moving = (sizes.difference if ending else sizes.sum)(moving, entry)
    return sizes.maximum([sizes.sum(e, sizes.number(most)) for e, most in peaks.items()])


def _held_at_once(
    program: mem.Program, placed: Sequence[Placed], sizes: Sizes
) -> tuple[Entry, set[int]]:
    """The most bytes that are held while some call runs, whatever the order, and the calls that show it.

    An empty value ties no call to another. So what may be empty counts where none of it is, and the bound
    without all of it holds in any case.
    """
    roots = [each.root for each in placed]
    held = held_in_any_order(program, roots)
    most = sizes.maximum([_sum(placed, each, sizes) for each in held.values()])
    empty = {root for root in roots if may_be_empty(root, program)}
    if not empty:
        return most, set(held)
    some = sizes.minimum([sizes.number(1), *[each.bytes for each in placed if each.root in empty]])
    rest = held_in_any_order(program, roots, empty)
    least = [_sum(placed, each, sizes) for each in rest.values()]
    return sizes.maximum([sizes.product(most, some), *least]), {*held, *rest}


def _sum(placed: Sequence[Placed], roots: Iterable[int], sizes: Sizes) -> Entry:
    """The bytes of roots together."""
    total = sizes.number(0)
    for root in sorted(roots):
        total = sizes.sum(total, placed[root].bytes)
    return total


# Views.


def _views(program: mem.Program, placed: Sequence[Placed], sizes: Sizes) -> Iterator[ViewRecord]:
    """What lies in each root; of what moves in loops, all of the way.

    The same stretch stands there once, with the name of a value that has one.
    """
    place = {each.root.result: index for index, each in enumerate(placed)}
    found: dict[tuple[int, Size, Size], mem.View] = {}
    for op in program.body:
        if isinstance(op, mem.View) and op.root in place and op.result.uses:
            stretch = _stretch(op, _rounds(op))
            offset, size = (upper_bound(part, program.limit_of) for part in stretch)
            key = (place[op.root], offset, size)
            if key not in found or (op.result.name and not found[key].result.name):
                found[key] = op
    for (root, offset, size), op in found.items():
        texts = sizes.text(offset), sizes.text(size)
        yield ViewRecord(op.result.name or "", root, *texts, str(op.location.place or ""))


def _rounds(view: mem.View) -> dict[int, Size]:
    """How many rounds each loop has that a view moves with: those around its users."""
    found: dict[int, Size] = {}
    outer = next(iter(view.result.uses), None) if view.counters else None
    while outer is not None:
        if isinstance(outer, mem.Loop) and outer.counter in view.counters:
            found[outer.counter] = outer.length
        outer = outer.parent.parent if outer.parent is not None else None
    return found


def _stretch(view: mem.View, rounds: dict[int, Size]) -> tuple[Size, Size]:
    """The first byte of a view in its root, over all rounds of its loops, and how many there are."""
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
    """Where a view begins in its root, before its loops move it; 0 where it may be and is empty.

    Elements that are not there may have a place outside of the root, such as the last row of none.
    """
    sizes = [upper_bound(n, program.limit_of) for n in (*view.type.shape, *_rounds(view).values())]
    bounds = program.bounds
    return view.offset * _exists([n for n in sizes if (interval(n, bounds)[0] or 0) <= 0])


def _exists(sizes: Iterable[Size]) -> Size:
    """1, or 0 where one of these is 0: where a loop has no rounds, or an axis no elements."""
    return product(dict.fromkeys(minimum(1, size) for size in sizes))


def _last_element(type: ViewType) -> Size:
    """How many bytes after the first element of a view its last one begins."""
    total: Size = 0
    for size, stride in zip(type.shape, type.strides, strict=True):
        total = total + (size - 1) * stride
    return total * type.dtype.bytes


def _goes_down(step: Size) -> bool:
    """Whether a loop walks backward: its steps are bytes of slices, or minus that."""
    return (step if isinstance(step, int) else step.terms[0][1]) < 0
