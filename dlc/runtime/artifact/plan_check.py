"""The memory plan checker: accepts or refuses a plan, independently of the planner that made it.

A plan places *roots*, blocks of the arena that are live for an interval of waves, and *views* inside them.
The checker verifies that

- roots that are live in the same wave do not overlap, and the arena ends where the last root ends;
- every view lies inside its root;
- every address that a call reads or writes lies in a root that is live at that time;
- the two bounds on peak memory hold: `order_bound` for this order of the calls, `any_order_bound` for every
  order, which a witness call proves.

It shares no code with the planner, so that a bug there cannot hide itself (a certifying algorithm,
McConnell et al. 2011).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dlc.runtime.artifact.plan import Plan, Span, Use

MAX_WITNESSES = 16
"""A compiler writes one for each case of sizes; checking one takes time linear in the program."""


class BadPlan(ValueError):
    """The plan would let one value overwrite another, or claims a wrong bound; the message says where."""


class Call(NamedTuple):
    """The roots that a call reads and writes, by index."""

    reads: set[int]
    writes: set[int]
    redefines: set[int]
    """The roots that it overwrites from their start without reading them: their old contents are dead."""


def check(plan: Plan, uses: Sequence[Use]) -> None:
    """Check a plan against the calls of a program, in order of waves. Raises BadPlan."""
    _check_blocks(plan)
    witnesses = {index for index in plan.witnesses if 0 <= index < len(uses)}
    if len(witnesses) > MAX_WITNESSES:
        raise BadPlan(f"it has {len(witnesses)} witnesses; at most {MAX_WITNESSES} are checked")
    peak, calls = _check_waves(plan.roots, uses)
    if plan.order_bound != peak:
        raise BadPlan(f"{peak} bytes are in use at once, the plan says {plan.order_bound}")
    proven = 0
    for index in witnesses:
        loop = uses[index].loop or (index, index)
        proven = max(proven, _bytes_at_witness(plan, calls, index, loop))
    if plan.any_order_bound > proven:
        raise BadPlan(
            f"no witness proves more than {proven} bytes, the plan says {plan.any_order_bound}"
        )


def _check_blocks(plan: Plan) -> None:
    """Every root lies in the arena, which ends with the last root, and every view in its root."""
    end = max([root.end for root in plan.roots], default=0)
    if plan.arena != end:
        raise BadPlan(f"the arena has {plan.arena} bytes, but its last root ends at {end}")
    for root in plan.roots:
        if root.bytes < 0 or root.offset < 0 or root.offset % 64 or root.first > root.last:
            raise BadPlan(f"{root} is negative, not at a multiple of 64, or ends before it begins")
    for view in plan.views:
        if not 0 <= view.root < len(plan.roots):
            raise BadPlan(f"the view {view.name} is of a root that does not exist")
        if not 0 <= view.offset <= view.offset + view.bytes <= plan.roots[view.root].bytes:
            raise BadPlan(f"the view {view.name} leaves its root {plan.roots[view.root]}")


# Waves --------------------------------------------------------------------------------------------


def _check_waves(roots: Sequence[Span], uses: Sequence[Use]) -> tuple[int, list[Call]]:
    """Replay the program wave by wave: the peak of live bytes, and the roots of each call.

    A root is live from before the first call of its first wave to after the last call of its last one.
    """
    starting: dict[int, list[int]] = defaultdict(list)
    ending: dict[int, list[int]] = defaultdict(list)
    calls_of: dict[int, list[int]] = defaultdict(list)
    for index, root in enumerate(roots):
        if root.bytes:
            starting[root.first].append(index)
            ending[root.last].append(index)
    for index, use in enumerate(uses):
        calls_of[use.wave].append(index)
    live = _LiveRoots(roots)
    calls = [Call(set(), set(), set())] * len(uses)
    peak = 0
    for wave in sorted({*starting, *calls_of, *ending}):
        for root_index in starting[wave]:
            live.add(root_index, wave)
        peak = max(peak, live.bytes)
        for call_index in calls_of[wave]:
            calls[call_index] = live.resolve(uses[call_index], wave)
        for root_index in ending[wave]:
            live.remove(root_index)
    return peak, calls


class _LiveRoots:
    """The roots that are live at one moment of the replay; no two of them overlap."""

    def __init__(self, roots: Sequence[Span]) -> None:
        self._roots = roots
        self._empty_offsets = {root.offset for root in roots if not root.bytes}
        """Addresses of roots without bytes: a call may name them, and touches nothing there."""
        self._by_offset: list[tuple[int, int]] = []
        """Offset and index of each live root, sorted by offset."""
        self.bytes = 0
        """The sum of their sizes."""

    def add(self, index: int, wave: int) -> None:
        """Make a root live; raises BadPlan if it overlaps a live one."""
        root = self._roots[index]
        position = bisect_right(self._by_offset, (root.offset, index))
        # Live roots are disjoint and sorted, so only the two neighbours can overlap the new one.
        for _, neighbour in self._by_offset[max(0, position - 1) : position + 1]:
            other = self._roots[neighbour]
            if other.offset < root.end and root.offset < other.end:
                raise BadPlan(f"{other} and {root} overlap in wave {wave}")
        self._by_offset.insert(position, (root.offset, index))
        self.bytes += root.bytes

    def remove(self, index: int) -> None:
        """End the life of a root."""
        root = self._roots[index]
        del self._by_offset[bisect_right(self._by_offset, (root.offset, index)) - 1]
        self.bytes -= root.bytes

    def resolve(self, use: Use, wave: int) -> Call:
        """The roots of a call's addresses; raises BadPlan for an address outside all live roots."""
        reads, writes = self._owners(use.reads, wave), self._owners(use.writes, wave)
        redefines = {root for root in writes - reads if self._roots[root].offset in use.writes}
        return Call(reads, writes, redefines)

    def _owners(self, addresses: Iterable[int], wave: int) -> set[int]:
        """The live roots that contain these addresses."""
        owners: set[int] = set()
        for address in addresses:
            below = bisect_right(self._by_offset, (address, len(self._roots))) - 1
            owner = self._by_offset[below][1] if below >= 0 else None
            if owner is not None and address < self._roots[owner].end:
                owners.add(owner)
            elif address not in self._empty_offsets:
                raise BadPlan(
                    f"byte {address} of the arena is used in wave {wave}, where no root is live"
                )
        return owners


# The bound for every order --------------------------------------------------------------------------


def _bytes_at_witness(
    plan: Plan, calls: Sequence[Call], witness: int, loop: tuple[int, int]
) -> int:
    """Bytes of the roots that are live while a call runs, or the loop around it, in every order."""
    live = _live_in_any_order(calls, witness, witness) | _live_in_any_order(calls, *loop)
    return sum(plan.roots[root].bytes for root in live)


def _live_in_any_order(calls: Sequence[Call], first: int, last: int) -> set[int]:
    """The roots that are live while the calls `first` to `last` run, in every order of the program.

    These are what the calls read and write, and what their predecessors wrote for their successors. One
    call is a predecessor of another if that reads, directly or through others, a root that it wrote.
    `first` and `last` are one call, or the ends of a loop.
    """
    before, inside, after = calls[:first], calls[first : last + 1], calls[last + 1 :]
    reads = _union([call.reads for call in inside])
    writes = _union([call.writes for call in inside])
    redefines = _union([call.redefines for call in inside])
    written_before = _written_by_predecessors(before, reads, redefines - reads)
    kept = _read_by_successors(after, writes, written_before)
    own = reads | writes
    if first < last:  # of a loop, only the roots that other calls use too
        own &= _union([call.reads | call.writes for call in [*before, *after]])
    return kept | own


def _written_by_predecessors(
    before: Sequence[Call], reads: set[int], redefined: set[int]
) -> set[int]:
    """The roots that predecessors of a reader of `reads` wrote, and that hold this when it runs.

    `redefined` are roots that get new contents at the reader itself.
    """
    needed, written, redefined = set(reads), set[int](), set(redefined)
    for call in reversed(before):
        if needed & call.writes:  # it is a predecessor
            written |= call.writes - redefined
            needed = (needed - call.redefines) | call.reads
        redefined |= call.redefines
    return written


def _read_by_successors(after: Sequence[Call], writes: set[int], written: set[int]) -> set[int]:
    """The roots among `written` that successors of a writer of `writes` read before they are redefined."""
    reached, written, kept = set(writes), set(written), set[int]()
    for call in after:
        if reached & call.reads:  # it is a successor
            kept |= written & call.reads
            reached |= call.writes
        else:
            reached -= call.redefines
        written -= call.redefines
    return kept


def _union(sets: Iterable[set[int]]) -> set[int]:
    return set[int]().union(*sets)
