"""Calls that witness the schedule-independent lower bound on peak memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from dlc.dialects import mem
from dlc.ir.core import Op, Value
from dlc.ir.dims import evaluate
from dlc.planning.arena import align
from dlc.planning.scheduling import Footprint, witnesses

UNBOUNDED_SIZE = 4096
"""The value assumed for a dim without an upper bound where sizes are compared."""
SAMPLE_SIZES = (1, 1 << 4, 1 << 8, 1 << 62)
"""Values assumed for all dims, as far as their bounds allow."""


def schedule_independent_witnesses(
    program: mem.Program, roots: Sequence[mem.Root]
) -> dict[int, frozenset[int]]:
    """Witnesses: numbers of calls, with the indices in `roots` of what is held while they run in any order.

    There is one for each of some samples of the dims.
    """
    waves = _waves(program)
    moments = [wave_number for wave_number, wave in enumerate(waves) for _ in _calls(wave)]
    sizes = _samples(program, roots)
    alive = [_alive(roots, case, len(waves)) for case in sizes]
    in_use = [[each[moment] for moment in moments] for each in alive]
    return witnesses(_tasks(waves, roots), sizes, in_use)


def largest_calls(program: mem.Program, roots: Sequence[mem.Root]) -> dict[int, frozenset[int]]:
    """The calls that read and write the most bytes, with the indices in `roots` of what these are.

    There is one for each of some samples of the dims.
    """
    touched = [task.touched for task in _tasks(_waves(program), roots)]
    largest: dict[int, frozenset[int]] = {}
    for sizes in _samples(program, roots) if touched else ():
        call = max(range(len(touched)), key=lambda k: sum(sizes[root] for root in touched[k]))
        largest[call] = touched[call]
    return largest


def _waves(program: mem.Program) -> list[mem.Wave]:
    return [op for op in program.walk() if isinstance(op, mem.Wave)]


def _samples(program: mem.Program, roots: Sequence[mem.Root]) -> list[list[int]]:
    """The bytes of each root at samples of the dims."""
    return [[align(evaluate(root.bytes, dims)) for root in roots] for dims in _cases(program)]


def _calls(wave: mem.Wave) -> list[mem.Call]:
    return [op for op in wave.body if isinstance(op, mem.Call)]


def _tasks(waves: Sequence[mem.Wave], roots: Sequence[mem.Root]) -> list[Footprint]:
    """All calls, with the roots that they read and write."""
    root_numbers = {root.result: index for index, root in enumerate(roots) if root.bytes != 0}
    calls = [(call, _loop_around(wave)) for wave in waves for call in _calls(wave)]
    extents: dict[Op, tuple[int, int]] = {}
    for index, (_, loop) in enumerate(calls):
        if loop is not None:
            extents[loop] = extents.get(loop, (index, index))[0], index
    return [_task(call, root_numbers, extents.get(loop) if loop else None) for call, loop in calls]


def _loop_around(wave: mem.Wave) -> Op | None:
    """The outermost loop around a wave."""
    outermost: Op | None = None
    block = wave.parent
    while block is not None and block.parent is not None:
        if isinstance(block.parent, mem.Loop | mem.While):
            outermost = block.parent
        block = block.parent.parent
    return outermost


def _task(
    call: mem.Call, root_numbers: Mapping[Value, int], loop: tuple[int, int] | None
) -> Footprint:
    split = len(call.views) - call.writes
    return Footprint(
        _roots_of(call.views[:split], root_numbers),
        _roots_of(call.views[split:], root_numbers),
        _roots_of([call.views[k] for k in call.over], root_numbers),
        loop,
        # A root that is not written from its start on is surely written in part only.
        _roots_of([view for view in call.views[split:] if begins_inside(view.op)], root_numbers),
    )


def begins_inside(view: Op | None) -> bool:
    """Whether a view begins after the start of its root, at all sizes at which it is not empty."""
    return isinstance(view, mem.View) and isinstance(view.offset, int) and view.offset > 0


def _roots_of(views: Sequence[Value], root_numbers: Mapping[Value, int]) -> frozenset[int]:
    ops = [view.op for view in views if isinstance(view.op, mem.View)]
    return frozenset(root_numbers[view.root] for view in ops if view.root in root_numbers)


def _cases(program: mem.Program) -> list[dict[str, int]]:
    """Samples of the dims: the smallest values, the largest, and some in between."""
    ends = {
        name: (low, UNBOUNDED_SIZE if high is None else high)
        for name, (low, high) in program.bounds.items()
    }
    powers = SAMPLE_SIZES if ends else SAMPLE_SIZES[:1]
    return [
        {name: max(low, min(high, power)) for name, (low, high) in ends.items()} for power in powers
    ]


def _alive(roots: Sequence[mem.Root], sizes: Sequence[int], waves: int) -> list[int]:
    """The bytes in use in each wave of this schedule."""
    changes = [0] * (waves + 1)
    for root, size in zip(roots, sizes, strict=True):
        changes[root.first] += size
        changes[root.last + 1] -= size
    return list(accumulate(changes))
