"""Residuals of loops: the values stacked for the backward loop, and those that it recomputes.

A loop that is differentiated stacks, iteration by iteration, the values that the loop of its derivative
needs. The backward loop may read fewer stacks and recompute the other values from them. A minimum cut finds
the best choice: it weighs the bytes that a value takes in all iterations against the time of its kernel in
all of them, at a price in picoseconds for each byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dlc.dialects import array, flow, kernel
from dlc.dialects.flow.regions import yielded
from dlc.dialects.kernel.attention import Attention
from dlc.ir.core import Op, Value
from dlc.ir.dims import evaluate
from dlc.ir.min_cut import Cut, smallest_cut
from dlc.planning.aliases import origin, readers
from dlc.planning.liveness import Timeline, updates_of
from dlc.target.cpu_costs import CpuCosts
from dlc.target.estimates import is_cheap, is_product, picoseconds

MOST_VALUES = 1000
"""The most values in a cut: with more the search would take too long."""

_ENDLESS = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """A forward loop, and the backward loop that reads stacks of it."""

    forward: flow.Scan
    backward: flow.Scan

    @property
    def walked(self) -> dict[Value, Value]:
        """For each argument of the backward body that is a slice of such a stack, the stacked value."""
        forward, backward = self.forward, self.backward
        count = len(forward.initial)
        slices = zip(backward.slices, backward.xs, backward.x_axes, strict=True)
        values_of: dict[Value, Value] = {}
        for argument, stack, axis in slices:
            # The final value of a carried one may be sliced as well, but is not a stack.
            is_stack = stack.op is forward and stack.index >= count
            if is_stack and forward.y_axes[stack.index - count] == axis:
                values_of[argument] = yielded(forward.body)[stack.index]
        return values_of

    @property
    def outside_of(self) -> dict[Value, Value]:
        """For each argument of the forward body the value passed from outside, whole or slice by slice."""
        return {each.argument: each.outside for each in self.forward.inputs}


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The operations of the forward body that the backward loop recomputes, in order.

    They start from values that are `stacked`, and from arguments that are `passed` to the backward loop as
    well. Of the values passed, `sources` are freed and recomputed before that loop. All of it takes
    `picoseconds`.
    """

    operations: Sequence[Op]
    stacked: Sequence[Value]
    passed: Sequence[Value]
    sources: Sequence[Value]
    picoseconds: int


def pairs_in(ops: Sequence[Op]) -> Iterator[Pair]:
    """The pairs of loops of which the second reads stacks of the first."""
    for op in ops:
        if isinstance(op, flow.Scan):
            makers = dict.fromkeys(stack.op for stack in op.xs)
            for maker in makers:
                if isinstance(maker, flow.Scan) and (pair := Pair(maker, op)).walked:
                    yield pair


class Prices(NamedTuple):
    """The picoseconds that saving a byte may take, and the costs of computing."""

    byte: int
    costs: CpuCosts


def choose(pair: Pair, timeline: Timeline, prices: Prices, *, products: bool) -> Choice | None:
    """The best choice at these prices; None if that is to recompute nothing."""
    return _Search(pair, timeline, prices, products=products).choose()


class _Search:
    def __init__(self, pair: Pair, timeline: Timeline, prices: Prices, *, products: bool) -> None:
        self.pair, self.timeline, self.products = pair, timeline, products
        self.price, self.costs = prices
        self.outside_of = pair.outside_of
        self.iterations = evaluate(pair.forward.length, timeline.sample)
        self.backward_index = timeline.number[pair.backward]
        self.updated = {
            argument: timeline.number[value.op]
            for value, argument in updates_of(timeline.function).items()
            if value.op is not None
        }

    def choose(self) -> Choice | None:
        needed = list(dict.fromkeys(self.pair.walked.values()))
        values = self._ancestors(needed)
        if len(values) > MOST_VALUES:
            return None
        backward_side, _ = smallest_cut(self._cut(needed, values))
        body = list(self.pair.forward.body)
        recomputed = {op for index, op in enumerate(body) if f"make {index}" in backward_side}
        ops = [op for op in body if op in recomputed]
        if not any(isinstance(op, kernel.Kernel) for op in ops):
            return None
        handed_over = [
            v for v in values if _node_of(values, v) in backward_side and v.op not in recomputed
        ]
        passed = [
            value
            for value in handed_over
            if self._passing_price(value) <= self._stacking_price(value)
        ]
        stacked = [value for value in handed_over if value not in passed]
        sources = dict.fromkeys(
            self.outside_of[value] for value in passed if value in self.outside_of
        )
        recomputed_sources = [
            value
            for value in sources
            if self._recomputation_time(value) < self._holding_price(value)
        ]
        time = sum(map(self._time_of, ops)) + sum(map(self._recomputation_time, recomputed_sources))
        return Choice(ops, stacked, passed, recomputed_sources, time)

    def _ancestors(self, needed: Sequence[Value]) -> dict[Value, int]:
        """The needed values and those they may be recomputed from, each with an index."""
        indices: dict[Value, int] = {}
        pending = list(needed)
        while pending:
            value = pending.pop()
            if value not in indices:
                indices[value] = len(indices)
                if value.op is not None and self._may_repeat(value.op):
                    pending += value.op.operands
        return indices

    def _cut(self, needed: Sequence[Value], values: dict[Value, int]) -> Cut[str]:
        """The cut whose second side has the values and the repeated kernels of the backward loop."""
        cut = Cut[str]()
        for value in needed:
            cut.apart(_node_of(values, value), first=_ENDLESS, second=0)
        producer_nodes: dict[Op | None, str | None] = {value.op: None for value in values}
        for index, op in enumerate(self.pair.forward.body):
            if op in producer_nodes and self._may_repeat(op):
                cut.apart(f"make {index}", first=0, second=self._time_of(op))
                for operand in op.operands:
                    cut.follows(_node_of(values, operand), f"make {index}", _ENDLESS)
                producer_nodes[op] = f"make {index}"
        for value in values:
            value_node, producer_node = _node_of(values, value), producer_nodes[value.op]
            keeping_price = min(self._stacking_price(value), self._passing_price(value))
            if producer_node is None:
                cut.apart(value_node, first=0, second=keeping_price)
            else:
                cut.follows(producer_node, value_node, keeping_price)
        return cut

    def _may_repeat(self, op: Op) -> bool:
        if isinstance(op, array.Reshape | array.Constant):
            return True
        return is_cheap(op) or (self.products and (is_product(op) or isinstance(op, Attention)))

    def _time_of(self, op: Op) -> int:
        return self.iterations * picoseconds(op, self.timeline.sample, self.costs)

    # All prices are in picoseconds.

    def _stacking_price(self, value: Value) -> int:
        """The price of stacking a value in the forward loop."""
        if any(self._is_live_anyway(stack) for stack in stacks_of(self.pair.forward, value)):
            return 0
        return self.price * self.iterations * self.timeline.bytes(value)

    def _passing_price(self, value: Value) -> int:
        """The price of passing an argument to the backward loop as well."""
        if value is self.pair.forward.body.arguments[0]:
            return 0
        source = self.outside_of.get(value)
        if source is None:
            return _ENDLESS
        return min(self._holding_price(source), self._recomputation_time(source))

    def _is_live_anyway(self, stack: Value) -> bool:
        """Whether a stack is live until the backward loop runs, even if that does not read it."""
        index_of, backward = self.timeline.number, self.pair.backward
        if stack.uses.get(backward, 0) > sum(stack is walked for walked in backward.xs):
            return True
        return any(
            index_of[user] >= self.backward_index for user in readers(stack) if user is not backward
        )

    # Values from outside of the loops.

    def _holding_price(self, source: Value) -> int:
        """The price of keeping a value outside live until the backward loop runs."""
        value = origin(source)
        if self._is_overwritten(value):
            return _ENDLESS
        lifetime = self.timeline.held.get(value)
        return (
            0
            if lifetime is None or lifetime.last >= self.backward_index
            else self.price * lifetime.bytes
        )

    def _recomputation_time(self, source: Value) -> int:
        """The time to recompute a value outside from values that are live anyway."""
        op = origin(source).op
        if op is None or not self._may_repeat(op):
            return _ENDLESS
        if any(self._holding_price(operand) for operand in op.operands):
            return _ENDLESS
        return picoseconds(op, self.timeline.sample, self.costs)

    def _is_overwritten(self, value: Value) -> bool:
        """Whether an argument has been updated by then."""
        return self.updated.get(value, self.backward_index) < self.backward_index


def stacks_of(scan: flow.Scan, value: Value) -> Iterator[Value]:
    """The results of a loop that stack a value of its body."""
    count = len(scan.initial)
    for k, end in enumerate(yielded(scan.body)[count:], count):
        if end is value:
            yield scan.results[k]


def _node_of(values: dict[Value, int], value: Value) -> str:
    return f"have {values[value]}"
