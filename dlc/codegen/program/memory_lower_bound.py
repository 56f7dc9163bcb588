"""The calls of a program beside which so much must be held that no order of the work does with less."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate

from dlc.dialects import mem
from dlc.ir.core import Op, Value
from dlc.ir.dims import evaluate, interval
from dlc.planning.arena import align
from dlc.planning.scheduling import Footprint, witnesses

LARGE = 4096
"""What a dim without an upper bound is taken to be where sizes are compared."""
POWERS = (1, 1 << 4, 1 << 8, 1 << 62)
"""What all dims are taken to be, as far as their bounds allow."""


def held_in_any_order(
    program: mem.Program, roots: Sequence[mem.Root], empty: Collection[mem.Root] = ()
) -> dict[int, frozenset[int]]:
    """Witnesses: calls, by number, with the roots that are held while they run, by their places in `roots`.

    There is one for each of some cases of sizes. What is `empty` is not held and ties no call to another.
    """
    waves = [op for op in program.walk() if isinstance(op, mem.Wave)]
    moments = [number for number, wave in enumerate(waves) for _ in _calls(wave)]
    sizes = [[align(evaluate(root.bytes, dims)) for root in roots] for dims in _cases(program)]
    alive = [_alive(roots, case, len(waves)) for case in sizes]
    in_use = [[each[moment] for moment in moments] for each in alive]
    return witnesses(_tasks(waves, roots, empty), sizes, in_use)


def _calls(wave: mem.Wave) -> list[mem.Call]:
    return [op for op in wave.body if isinstance(op, mem.Call)]


def may_be_empty(root: mem.Root, program: mem.Program) -> bool:
    """Whether a root has no bytes at some sizes, but not at all of them."""
    least, _ = interval(root.bytes, program.bounds)
    return root.bytes != 0 and (least is None or least <= 0)


def _tasks(
    waves: Sequence[mem.Wave], roots: Sequence[mem.Root], empty: Collection[mem.Root]
) -> list[Footprint]:
    """All calls, with what they read and write of the arena, but for what is empty."""
    number = {
        root.result: index
        for index, root in enumerate(roots)
        if root.bytes != 0 and root not in empty
    }
    calls = [(call, _loop_around(wave)) for wave in waves for call in _calls(wave)]
    extents: dict[Op, tuple[int, int]] = {}
    for index, (_, loop) in enumerate(calls):
        if loop is not None:
            extents[loop] = extents.get(loop, (index, index))[0], index
    return [_task(call, number, extents.get(loop) if loop else None) for call, loop in calls]


def _loop_around(wave: mem.Wave) -> Op | None:
    """The outermost loop that a wave is in."""
    found: Op | None = None
    block = wave.parent
    while block is not None and block.parent is not None:
        if isinstance(block.parent, mem.Loop | mem.While):
            found = block.parent
        block = block.parent.parent
    return found


def _task(call: mem.Call, number: Mapping[Value, int], loop: tuple[int, int] | None) -> Footprint:
    split = len(call.views) - call.writes
    return Footprint(
        _roots_of(call.views[:split], number),
        _roots_of(call.views[split:], number),
        _roots_of([call.views[k] for k in call.over], number),
        loop,
        # What is not written from its start on is surely written in part only.
        _roots_of([view for view in call.views[split:] if _begins_inside(view)], number),
    )


def _begins_inside(view: Value) -> bool:
    """Whether a view begins behind the start of its root, at all sizes."""
    return isinstance(view.op, mem.View) and isinstance(view.op.offset, int) and view.op.offset > 0


def _roots_of(views: Sequence[Value], number: Mapping[Value, int]) -> frozenset[int]:
    found = [view.op for view in views if isinstance(view.op, mem.View)]
    return frozenset(number[view.root] for view in found if view.root in number)


def _cases(program: mem.Program) -> list[dict[str, int]]:
    """The smallest sizes, the largest, and such in between."""
    ends = {
        name: (low, LARGE if high is None else high) for name, (low, high) in program.bounds.items()
    }
    powers = POWERS if ends else POWERS[:1]
    return [
        {name: max(low, min(high, power)) for name, (low, high) in ends.items()} for power in powers
    ]


def _alive(roots: Sequence[mem.Root], sizes: Sequence[int], waves: int) -> list[int]:
    """What this order holds in each wave."""
    changes = [0] * (waves + 1)
    for root, size in zip(roots, sizes, strict=True):
        changes[root.first] += size
        changes[root.last + 1] -= size
    return list(accumulate(changes))
