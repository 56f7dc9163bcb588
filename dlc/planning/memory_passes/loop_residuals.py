"""Which values the steps of a loop hand over to another loop, and which that one computes again.

A loop that is differentiated stacks, step by step, what the loop of its derivative needs. That one may
have less handed over and compute the rest again from it. What is best a smallest cut finds: it weighs the
bytes of all steps that a value takes against the time of all steps that its kernel takes.
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
from dlc.passes.graph.min_cut import Cut, smallest_cut
from dlc.planning.aliases import origin, readers
from dlc.planning.liveness import Timeline, updates_of
from dlc.target.cpu_costs import CpuCosts
from dlc.target.estimates import is_cheap, is_product, picoseconds

MOST_VALUES = 1000
"""Values behind what is needed, beyond which the search would take too long."""

_ENDLESS = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """A loop, and another one that walks stacks of the first."""

    forward: flow.Scan
    backward: flow.Scan

    @property
    def walked(self) -> dict[Value, Value]:
        """For each argument of the second body that walks such a stack, the value that is stacked."""
        first, second = self.forward, self.backward
        count = len(first.initial)
        arguments = second.body.arguments[1 + len(second.initial) :]
        found: dict[Value, Value] = {}
        for argument, stack, axis in zip(arguments, second.xs, second.x_axes, strict=False):
            # What was carried last may be walked as well, but is no stack.
            is_stack = stack.op is first and stack.index >= count
            if is_stack and first.y_axes[stack.index - count] == axis:
                found[argument] = yielded(first.body)[stack.index]
        return found

    @property
    def given(self) -> dict[Value, Value]:
        """What is passed to the first body from outside, whole or slice by slice, by its argument."""
        scan = self.forward
        first = 1 + len(scan.initial)
        outside = (*scan.xs, *scan.constants)
        return dict(zip(scan.body.arguments[first:], outside, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """What to compute again: these operations of the first body, in order.

    They follow from values that are `stacked` and from arguments that are `passed` to the second loop,
    too. Of what is passed, `sources` are not held for so long, but computed again before that loop.
    `picoseconds` is what all of it takes.
    """

    made: Sequence[Op]
    stacked: Sequence[Value]
    passed: Sequence[Value]
    sources: Sequence[Value]
    picoseconds: int


def pairs_in(ops: Sequence[Op]) -> Iterator[Pair]:
    """Each two loops of which the second walks stacks of the first."""
    for op in ops:
        if isinstance(op, flow.Scan):
            makers = dict.fromkeys(stack.op for stack in op.xs)
            for maker in makers:
                if isinstance(maker, flow.Scan) and (pair := Pair(maker, op)).walked:
                    yield pair


class Prices(NamedTuple):
    """Picoseconds that sparing a byte may take, and what computing takes."""

    byte: int
    costs: CpuCosts


def choose(pair: Pair, timeline: Timeline, prices: Prices, *, products: bool) -> Choice | None:
    """The best choice at these prices; None if it is to keep all."""
    return _Residuals(pair, timeline, prices, products=products).choose()


class _Residuals:
    def __init__(self, pair: Pair, timeline: Timeline, prices: Prices, *, products: bool) -> None:
        self.pair, self.timeline, self.products = pair, timeline, products
        self.price, self.costs = prices
        self.given = pair.given
        self.steps = evaluate(pair.forward.length, timeline.sample)
        self.at = timeline.number[pair.backward]
        self.updated = {
            argument: timeline.number[value.op]
            for value, argument in updates_of(timeline.function).items()
            if value.op is not None
        }

    def choose(self) -> Choice | None:
        needed = list(dict.fromkeys(self.pair.walked.values()))
        values = self._behind(needed)
        if len(values) > MOST_VALUES:
            return None
        second, _ = smallest_cut(self._cut(needed, values))
        body = list(self.pair.forward.body)
        made = {op for k, op in enumerate(body) if f"make {k}" in second}
        ops = [op for op in body if op in made]
        if not any(isinstance(op, kernel.Kernel) for op in ops):
            return None
        kept = [v for v in values if _have(values, v) in second and v.op not in made]
        passed = [
            value for value in kept if self._price_of_passing(value) <= self._price_of_stack(value)
        ]
        stacked = [value for value in kept if value not in passed]
        outside = dict.fromkeys(self.given[value] for value in passed if value in self.given)
        again = [
            value for value in outside if self._time_again(value) < self._price_of_holding(value)
        ]
        time = sum(map(self._time, ops)) + sum(map(self._time_again, again))
        return Choice(ops, stacked, passed, again, time)

    def _behind(self, needed: Sequence[Value]) -> dict[Value, int]:
        """The needed values and what they may be computed from, numbered."""
        found: dict[Value, int] = {}
        pending = list(needed)
        while pending:
            value = pending.pop()
            if value not in found:
                found[value] = len(found)
                if value.op is not None and self._may_repeat(value.op):
                    pending += value.op.operands
        return found

    def _cut(self, needed: Sequence[Value], values: dict[Value, int]) -> Cut:
        """On the second side is what the second loop has, and what it computes for that."""
        cut = Cut()
        for value in needed:
            cut.apart(_have(values, value), first=_ENDLESS, second=0)
        made: dict[Op | None, str | None] = {value.op: None for value in values}
        for k, op in enumerate(self.pair.forward.body):
            if op in made and self._may_repeat(op):
                cut.apart(f"make {k}", first=0, second=self._time(op))
                for operand in op.operands:
                    cut.follows(_have(values, operand), f"make {k}", _ENDLESS)
                made[op] = f"make {k}"
        for value in values:
            have, make = _have(values, value), made[value.op]
            keeping = min(self._price_of_stack(value), self._price_of_passing(value))
            if make is None:
                cut.apart(have, first=0, second=keeping)
            else:
                cut.follows(make, have, keeping)
        return cut

    def _may_repeat(self, op: Op) -> bool:
        if isinstance(op, array.Reshape | array.Constant):
            return True
        return is_cheap(op) or (self.products and (is_product(op) or isinstance(op, Attention)))

    def _time(self, op: Op) -> int:
        return self.steps * picoseconds(op, self.timeline.sample, self.costs)

    # All prices are in picoseconds.

    def _price_of_stack(self, value: Value) -> int:
        """What it costs that the first loop stacks a value."""
        if any(self._is_there_anyway(stack) for stack in stacks_of(self.pair.forward, value)):
            return 0
        return self.price * self.steps * self.timeline.bytes(value)

    def _price_of_passing(self, value: Value) -> int:
        """What it costs to pass an argument to the second loop, too."""
        if value is self.pair.forward.body.arguments[0]:
            return 0
        source = self.given.get(value)
        if source is None:
            return _ENDLESS
        return min(self._price_of_holding(source), self._time_again(source))

    def _is_there_anyway(self, stack: Value) -> bool:
        """Whether a stack is held until the second loop runs, even if that does not walk it."""
        number, second = self.timeline.number, self.pair.backward
        if stack.uses.get(second, 0) > sum(stack is walked for walked in second.xs):
            return True
        return any(number[user] >= self.at for user in readers(stack) if user is not second)

    # What comes from outside.

    def _price_of_holding(self, source: Value) -> int:
        """What it costs that an array outside is still there when the second loop runs."""
        value = origin(source)
        if self._is_gone(value):
            return _ENDLESS
        held = self.timeline.held.get(value)
        return 0 if held is None or held.last >= self.at else self.price * held.bytes

    def _time_again(self, source: Value) -> int:
        """How long it takes to compute an array outside again, from what is there anyway."""
        op = origin(source).op
        if op is None or not self._may_repeat(op):
            return _ENDLESS
        if any(self._price_of_holding(operand) for operand in op.operands):
            return _ENDLESS
        return picoseconds(op, self.timeline.sample, self.costs)

    def _is_gone(self, value: Value) -> bool:
        """Whether an argument is no longer as it was given."""
        return self.updated.get(value, self.at) < self.at


def stacks_of(scan: flow.Scan, value: Value) -> Iterator[Value]:
    """The stacks that a loop makes of a value of its body."""
    count = len(scan.initial)
    for k, end in enumerate(yielded(scan.body)[count:], count):
        if end is value:
            yield scan.results[k]


def _have(values: dict[Value, int], value: Value) -> str:
    return f"have {values[value]}"
