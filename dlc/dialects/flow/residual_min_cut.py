"""Rematerialization: which values of a forward half to keep, and which to recompute in the backward half.

A value that is cheap to compute is not worth memory for every step of a loop: of `0.5 * x * (1 + erf(x))` x
is kept and the rest is recomputed. The choice is a minimum cut between the forward half and the values that
the backward half uses: the fewest bytes from which cheap operations compute all the rest. Of several
minimum cuts it is the one that recomputes least.
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
    kept = _Network(needed, available, cheap).cut()
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


_Node = tuple[Value | None, bool]
"""The in-node (False) or out-node (True) of a value, or the source or target of the network."""

_SOURCE: _Node = (None, False)
_TARGET: _Node = (None, True)


@dataclass(slots=True)
class _Network:
    """A flow network in which the capacity of a value is what it costs to keep, in bytes."""

    needed: Collection[Value]
    available: frozenset[Value]
    values: Mapping[Value, None]
    capacity: dict[_Node, dict[_Node, int]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(int))
    )

    def cut(self) -> frozenset[Value]:
        """The values of a minimum cut, the one nearest to the needed values."""
        for value in self.values:
            self.capacity[value, False][value, True] += _bytes(value)
            if not _may_repeat(value, CHEAP):
                self.capacity[_SOURCE][value, False] = _INFINITE
                continue
            for operand in value.op.operands if value.op is not None else ():
                if operand in self.values:
                    self.capacity[operand, True][value, False] = _INFINITE
        for value in self.needed:
            if value in self.values:
                self.capacity[value, True][_TARGET] = _INFINITE
        while (path := self._path()) is not None:
            self._fill(path)
        behind = self._behind()
        return frozenset(
            value
            for value in self.values
            if (value, True) in behind and (value, False) not in behind
        )

    def _path(self) -> list[_Node] | None:
        """A shortest augmenting path from the source to the target (Edmonds & Karp 1972)."""
        before: dict[_Node, _Node] = {}
        pending = deque([_SOURCE])
        while pending:
            node = pending.popleft()
            for other, capacity in self.capacity[node].items():
                if capacity > 0 and other not in before and other != _SOURCE:
                    before[other] = node
                    if other == _TARGET:
                        return _traced(before)
                    pending.append(other)
        return None

    def _fill(self, path: list[_Node]) -> None:
        steps = list(pairwise(path))
        amount = min(self.capacity[one][other] for one, other in steps)
        for one, other in steps:
            self.capacity[one][other] -= amount
            self.capacity[other][one] += amount

    def _behind(self) -> set[_Node]:
        """The nodes from which the target can still be reached."""
        towards: dict[_Node, list[_Node]] = defaultdict(list)
        for one, others in self.capacity.items():
            for other, capacity in others.items():
                if capacity > 0:
                    towards[other].append(one)
        nodes = {_TARGET}
        pending = [_TARGET]
        while pending:
            for node in towards[pending.pop()]:
                if node not in nodes:
                    nodes.add(node)
                    pending.append(node)
        return nodes


def _traced(before: Mapping[_Node, _Node]) -> list[_Node]:
    path = [_TARGET]
    while path[-1] != _SOURCE:
        path.append(before[path[-1]])
    return path[::-1]


def _bytes(value: Value) -> int:
    """The bytes of a value, with an assumed value for symbolic sizes."""
    assert isinstance(value.type, TensorType)
    sizes: defaultdict[str, int] = defaultdict(lambda: TYPICAL)
    return max(evaluate(value.type.size, sizes), 1) * value.type.dtype.bytes
