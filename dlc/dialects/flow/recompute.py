"""Which values of a forward half to keep, and which to compute again in the backward half.

What costs little to compute is not worth a place in memory for every step of a loop: of `0.5 * x * (1 + e)`
with `e` the error function of x, x is kept, and all else is made again. The choice is a minimum
cut: between what only the forward half has and what the backward half uses, the fewest bytes that all the
rest follows from by cheap operations. Of equal cuts it is the one that leaves least to be done again.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from dlc.dialects import array
from dlc.ir.core import Op, Value
from dlc.ir.dims import evaluate
from dlc.ir.types import TensorType

REARRANGING = (array.Broadcast, array.Reshape, array.Transpose)
"""Operations that only move elements."""
CHEAP: Final = (
    *REARRANGING,
    *(array.Add, array.Subtract, array.Multiply, array.Divide, array.Negate, array.Abs),
    *(array.Maximum, array.Minimum, array.Compare, array.Select, array.Cast, array.Not),
    *(array.Exp, array.Tanh, array.Erf),
)
"""Operations of a few instructions for each element: no more than it takes to keep the result, which goes
to memory and back."""

TYPICAL = 64
"""What a size that is not known yet is taken to be where bytes are compared."""
MOST_VALUES = 800
"""Beyond so many values nothing is computed again but what costs nothing: the search takes too long."""

_ENDLESS = 1 << 62


def repeated_ops(needed: Collection[Value], at_hand: Collection[Value]) -> set[Op]:
    """The operations to repeat so that the backward half has the values it needs.

    Values `at_hand` are there without keeping them, as arguments that are passed again.
    """
    known = frozenset(at_hand)
    cheap = _reached(needed, known, CHEAP)
    if len(cheap) > MOST_VALUES:
        return _behind(needed, known, frozenset(), REARRANGING)
    kept = _Network(needed, known, cheap).cut()
    return _behind(needed, known, kept, CHEAP)


def _may_repeat(value: Value, kinds: tuple[type[Op], ...]) -> bool:
    op = value.op
    return (
        op is not None and op.pure and not op.regions and (not op.operands or isinstance(op, kinds))
    )


def _reached(
    needed: Iterable[Value], known: frozenset[Value], kinds: tuple[type[Op], ...]
) -> dict[Value, None]:
    """The values that the needed ones can be computed from, and those, as far as operations are cheap."""
    found: dict[Value, None] = {}
    pending = [value for value in needed if value not in known]
    while pending:
        value = pending.pop()
        if value in found:
            continue
        found[value] = None
        if value.op is not None and _may_repeat(value, kinds):
            pending += [operand for operand in value.op.operands if operand not in known]
    return found


def _behind(
    needed: Iterable[Value],
    known: frozenset[Value],
    kept: frozenset[Value],
    kinds: tuple[type[Op], ...],
) -> set[Op]:
    """The operations between what is kept and what is needed."""
    values = _reached(needed, known | kept, kinds)
    return {value.op for value in values if value.op is not None and _may_repeat(value, kinds)}


_Node = tuple[Value | None, bool]
"""A value before (False) or after (True) it is decided whether it is kept; or an end of the network."""

_SOURCE: _Node = (None, False)
_TARGET: _Node = (None, True)


@dataclass(slots=True)
class _Network:
    """A flow network: through each value passes what it costs to keep it."""

    needed: Collection[Value]
    known: frozenset[Value]
    values: Mapping[Value, None]
    room: dict[_Node, dict[_Node, int]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(int))
    )

    def cut(self) -> frozenset[Value]:
        """The values of a minimum cut, the one nearest to what is needed."""
        for value in self.values:
            self.room[value, False][value, True] += _bytes(value)
            if not _may_repeat(value, CHEAP):
                self.room[_SOURCE][value, False] = _ENDLESS
                continue
            for operand in value.op.operands if value.op is not None else ():
                if operand in self.values:
                    self.room[operand, True][value, False] = _ENDLESS
        for value in self.needed:
            if value in self.values:
                self.room[value, True][_TARGET] = _ENDLESS
        while (path := self._path()) is not None:
            self._fill(path)
        behind = self._behind()
        return frozenset(
            value
            for value in self.values
            if (value, True) in behind and (value, False) not in behind
        )

    def _path(self) -> list[_Node] | None:
        """A shortest way from the source to the target that has room left."""
        before: dict[_Node, _Node] = {}
        pending = deque([_SOURCE])
        while pending:
            node = pending.popleft()
            for other, room in self.room[node].items():
                if room > 0 and other not in before and other != _SOURCE:
                    before[other] = node
                    if other == _TARGET:
                        return _traced(before)
                    pending.append(other)
        return None

    def _fill(self, path: list[_Node]) -> None:
        steps = list(pairwise(path))
        amount = min(self.room[one][other] for one, other in steps)
        for one, other in steps:
            self.room[one][other] -= amount
            self.room[other][one] += amount

    def _behind(self) -> set[_Node]:
        """The nodes from which the target can still be reached."""
        towards: dict[_Node, list[_Node]] = defaultdict(list)
        for one, others in self.room.items():
            for other, room in others.items():
                if room > 0:
                    towards[other].append(one)
        found = {_TARGET}
        pending = [_TARGET]
        while pending:
            for node in towards[pending.pop()]:
                if node not in found:
                    found.add(node)
                    pending.append(node)
        return found


def _traced(before: Mapping[_Node, _Node]) -> list[_Node]:
    path = [_TARGET]
    while path[-1] != _SOURCE:
        path.append(before[path[-1]])
    return path[::-1]


def _bytes(value: Value) -> int:
    """What a value takes in memory, with typical sizes for those that are not known yet."""
    assert isinstance(value.type, TensorType)
    sizes: defaultdict[str, int] = defaultdict(lambda: TYPICAL)
    return max(evaluate(value.type.size, sizes), 1) * value.type.dtype.bytes
