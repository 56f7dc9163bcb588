"""Rematerialization while differentiating: what of a loop or branch to keep, and what to recompute.

A value that is cheap to compute is not worth memory for every step of a loop: of `0.5 * x * (1 + erf(x))` x
is kept and the rest is recomputed. The choice is a minimum cut between the forward half and the values that
the backward half uses: the fewest bytes from which cheap operations compute all the rest. Of several
minimum cuts it is the one that recomputes least.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from dlc.dialects import array
from dlc.ir.core import Op, Value
from dlc.ir.dims import evaluate
from dlc.ir.min_cut import Cut, smallest_cut
from dlc.ir.types import TensorType

REARRANGING = (array.Broadcast, array.Reshape, array.Transpose)
"""Operations that only move elements."""
CHEAP: Final = (
    *REARRANGING,
    *(array.Add, array.Subtract, array.Multiply, array.Divide, array.Negate, array.Abs),
    *(array.Maximum, array.Minimum, array.Compare, array.Select, array.Cast, array.Not),
    *(array.Exp, array.Tanh, array.Erf),
)
"""Operations of a few instructions for each element, no more than storing and loading the result takes."""

TYPICAL = 64
"""The value assumed for a symbolic size where bytes are compared."""
MOST_VALUES = 800
"""With more values than this only rearrangements are recomputed: the cut would take too long."""

_INFINITE = 1 << 62


def repeated_ops(needed: Collection[Value], at_hand: Collection[Value]) -> set[Op]:
    """The operations to repeat in the backward half, so that it has the values that it needs.

    Values `at_hand` are available without being kept, such as arguments that are passed again.
    """
    available = frozenset(at_hand)
    cheap = _reached(needed, available, CHEAP)
    if len(cheap) > MOST_VALUES:
        return _behind(needed, available, frozenset(), REARRANGING)
    kept = _kept(needed, cheap)
    return _behind(needed, available, kept, CHEAP)


def _may_repeat(value: Value, kinds: tuple[type[Op], ...]) -> bool:
    op = value.op
    return (
        op is not None and op.pure and not op.regions and (not op.operands or isinstance(op, kinds))
    )


def _reached(
    needed: Iterable[Value], available: frozenset[Value], kinds: tuple[type[Op], ...]
) -> dict[Value, None]:
    """The needed values and those that they are computed from, up to operations that are not cheap."""
    values: dict[Value, None] = {}
    pending = [value for value in needed if value not in available]
    while pending:
        value = pending.pop()
        if value in values:
            continue
        values[value] = None
        if value.op is not None and _may_repeat(value, kinds):
            pending += [operand for operand in value.op.operands if operand not in available]
    return values


def _behind(
    needed: Iterable[Value],
    available: frozenset[Value],
    kept: frozenset[Value],
    kinds: tuple[type[Op], ...],
) -> set[Op]:
    """The operations that compute the needed values from the kept ones."""
    values = _reached(needed, available | kept, kinds)
    return {value.op for value in values if value.op is not None and _may_repeat(value, kinds)}


def _kept(needed: Collection[Value], values: Mapping[Value, None]) -> frozenset[Value]:
    """The values of a minimum cut, the one nearest to the needed values.

    Each value is two nodes, computed and kept, and what it costs to keep is its size in bytes.
    """
    cut: Cut[tuple[Value, bool]] = Cut()
    for value in values:
        cut.follows((value, False), (value, True), _bytes(value))
        if not _may_repeat(value, CHEAP):
            cut.apart((value, False), first=0, second=_INFINITE)
            continue
        for operand in value.op.operands if value.op is not None else ():
            if operand in values:
                cut.follows((operand, True), (value, False), _INFINITE)
    for value in needed:
        if value in values:
            cut.apart((value, True), first=_INFINITE, second=0)
    behind, _ = smallest_cut(cut)
    return frozenset(
        value for value in values if (value, True) in behind and (value, False) not in behind
    )


def _bytes(value: Value) -> int:
    """The bytes of a value, with an assumed value for symbolic sizes."""
    assert isinstance(value.type, TensorType)
    sizes: defaultdict[str, int] = defaultdict(lambda: TYPICAL)
    return max(evaluate(value.type.size, sizes), 1) * value.type.dtype.bytes
