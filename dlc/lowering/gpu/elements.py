"""Element-wise `kernel.generic` on a GPU: coalesced vector accesses to neighbouring elements.

Contiguous elements are loaded and stored 16 bytes at a time, counted in elements of the widest array. Of a
narrower one a thread has fewer bytes, so that a warp still accesses one contiguous range of each array
(coalescing). With 16 bytes of the narrowest array, each access to the others would use half of every
sector of 32 bytes, and twice as many sectors would be moved.

A thread whose formula is short has several such groups and loads all of them before it stores any, so that
more loads are in flight. The remainder of the domain is computed element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, minimum
from dlc.ir.core import Value
from dlc.ir.dims import Shape, Size, ceil_divide, floor_divide, known_multiple, product
from dlc.lowering.gpu.writer import GridWriter
from dlc.lowering.kernel_code.alignment import unit_of
from dlc.lowering.kernel_code.body import Body, Point
from dlc.lowering.kernel_code.lanes import Lane, Linear, Uniform
from dlc.lowering.kernel_code.row_access import checks_depend_on, turned_arrays
from dlc.lowering.kernel_code.words import either, for_each
from dlc.lowering.kernel_code.writer import Lowered
from dlc.target.gpu import ACCESS, SECTOR, GpuTarget
from dlc.target.gpu_costs import GpuCosts
from dlc.target.work import element_work, nanoseconds

THREADS = 256
SHORT = 24
"""Operations of a formula of which a thread does several groups."""
TOGETHER = 2
"""Groups of a thread, where they are whole registers; of single elements there are twice as many."""


def lower_elements(op: kernel.Generic, gpu: GpuTarget) -> Lowered:
    """The function for a kernel whose elements are a thread's work each."""
    turned = turned_arrays(op)
    rows = in_groups(op.domain[-2], SECTOR // _widest(turned)) if turned else 1
    if rows > 1:
        return _turned(op, rows, gpu.costs)
    writer, group = GridWriter(op, THREADS), group_of(op, gpu.occupancy.fold_threads)
    body = Body(writer, {argument: view for view, argument in enumerate(op.arrays)}, group)
    short = op.is_map and sum(1 for _ in op.body) <= SHORT
    groups = groups_of(group) if short else 1

    def write(starts: list[ElementIndex], lanes: int) -> None:
        places = [lanes_at(start, lanes) for start in starts]
        points = [_computed(op, body, lanes, place) for place in places]
        for place, point in zip(places, points, strict=True):
            store_elements(op, body, point, place)

    tiles = over_groups(writer, op.domain, group, groups, write)
    return writer.finish(
        tiles, nanoseconds(THREADS * group * groups * element_work(op.body, group, gpu.costs))
    )


def _turned(op: kernel.Generic, group: int, costs: GpuCosts) -> Lowered:
    """A kernel that reads along rows what it writes along columns, and the other way round.

    Each thread has `group` neighbours along the axis that is read; neighbouring threads have neighbours
    along the one that is written. So what a thread reads and what a warp writes are whole sectors.
    """
    *outer, rows, columns = op.domain
    writer = GridWriter(op, THREADS)
    body = Body(writer, {argument: view for view, argument in enumerate(op.arrays)}, group)

    def write(places: list[ElementIndex], lanes: int) -> None:
        for *where, part, column in places:
            place: list[Lane] = [*map(Uniform, where), Linear(part * group), Uniform(column)]
            store_elements(op, body, _computed(op, body, group, place), place)

    tiles = over_groups(writer, (*outer, floor_divide(rows, group), columns), 1, 1, write)
    work = THREADS * group * element_work(op.body, group, costs)
    return writer.finish(tiles, nanoseconds(work))


def groups_of(group: int) -> int:
    """The groups of neighbouring elements of a thread with a short formula."""
    return TOGETHER if group > 1 else 2 * TOGETHER


def _computed(op: kernel.Generic, body: Body, lanes: int, place: Sequence[Lane]) -> Point:
    """The point with the elements at an index."""
    return body.run(op.body, Point(lanes, dict(zip(op.indices, place, strict=True))))


def group_of(op: kernel.Generic, busy: int) -> int:
    """How many neighbours along the last axis a thread computes side by side: 1, 2, 4, 8 or 16.

    Groups do not reach beyond a row, so that all of one have the same other indices. Fewer folds than
    `busy` threads are not done side by side in one thread.
    """
    if not op.domain or checks_depend_on(op, op.indices[-1:]):
        return 1
    group = min(ACCESS // _widest(_side_by_side(op)), *[whole_stores(out) for out in op.outs])
    if len(op.domain) > 1:
        group = in_groups(op.domain[-1], group)
    count = product(op.domain)
    if not op.is_map and isinstance(count, int):
        group = max(1, min(group, 1 << (max(1, count // busy).bit_length() - 1)))
    return group


def _side_by_side(op: kernel.Generic) -> list[Value]:
    """The arrays of which neighbouring elements are neighbours in memory: results, and most inputs."""
    last = op.indices[-1]
    loads = (load for load in op.walk() if isinstance(load, kernel.Load) and load.indices)
    read = {load.array for load in loads if kernel.counts_up(load.indices[-1], last)}
    return [*op.outs, *[argument for argument in op.arrays if argument in read]]


def _widest(arrays: Sequence[Value]) -> int:
    """The bytes of an element of the array whose elements have most."""
    return max(kernel.array_type(array).dtype.bytes for array in arrays)


def whole_stores(out: Value) -> int:
    """The most neighbouring elements of a result that one aligned store surely writes.

    More of them would take several stores, each with gaps between the threads of a warp, uncoalesced; loads
    may, because the cache has the gaps for the next one.
    """
    return max(1, unit_of(out) // kernel.array_type(out).dtype.bytes)


def in_groups(length: Size, most: int) -> int:
    """The largest power of two up to `most` that a length is known to be a multiple of."""
    multiple = known_multiple(length)
    return most if multiple == 0 else min(most, multiple & -multiple)


ElementIndex = list[Expr]
"""The index along each axis."""
WriteGroups = Callable[[list[ElementIndex], int], None]
"""Writes groups of neighbouring elements, from the first index of each and the elements of a group."""


def over_groups(
    writer: GridWriter, domain: Shape, group: int, groups: int, write: WriteGroups
) -> Size:
    """Have each thread compute `groups` groups of neighbouring elements; returns the number of tiles.

    The remainder of a domain of one axis is written element by element. With several axes the last is
    a multiple of `group`, and no group reaches beyond a row.
    """
    emit, count, step = writer.emit, product(domain), THREADS * group
    span = step * groups
    even = in_groups(count, group) == group
    extents = [writer.size(size, "extent", axis) for axis, size in enumerate(domain)]
    end = writer.size(count, "count")
    begin = writer.tile * span
    first = begin + writer.thread * group
    beyond = first + (span - step + group)

    def write_at(starts: Sequence[Expr], lanes: int) -> None:
        write([writer.unravel(start, extents, count) for start in starts], lanes)

    def all_groups() -> None:
        write_at([first + k for k in range(0, span, step)], group)

    def remainder() -> None:
        with for_each(emit, first, minimum(begin + span, end), step) as start:
            if even:
                write_at([start], group)
            else:
                with for_each(emit, start, minimum(start + group, end)) as place:
                    write_at([place], 1)

    one_whole_group = groups == 1 and even
    either(beyond <= end, all_groups, (lambda: None) if one_whole_group else remainder)
    return ceil_divide(count, span)


def lanes_at(place: ElementIndex, lanes: int) -> list[Lane]:
    """The indices of a group of neighbours along the last axis."""
    lanes_of: list[Lane] = [Uniform(index) for index in place]
    if lanes > 1:
        lanes_of[-1] = Linear(place[-1])
    return lanes_of


def copy_elements(
    body: Body, lanes: int, view: int, source: ElementIndex, out: int, target: ElementIndex
) -> None:
    """Copy a group of neighbours from a place in one view to a place in another."""
    point = Point(lanes, {})
    elements = body.load(point, view, lanes_at(source, lanes))
    body.store_in(point, elements, out, lanes_at(target, lanes))


def store_elements(op: kernel.Generic, body: Body, point: Point, places: Sequence[Lane]) -> None:
    """Write the results that are elements, not rows, at these indices."""
    for view, value in enumerate(op.body.terminator.operands, len(op.inputs)):
        if not isinstance(value.op, kernel.Stage):
            body.store_in(point, point.lane(value), view, places)
