"""The placement of every value of a block: the cheapest that a local search finds.

Each operation is computed in one of the ways that its sharding rule allows. Going forward, each takes the
way that is cheapest for the placements its operands have by then; then single operations are changed as
long as that makes the whole cheaper, so that a sum over ranks moves to where it is small or needed once.
A value that several operations want in another placement is converted once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from dlc.dialects import array, flow
from dlc.dialects.array.elementwise import is_number
from dlc.ir.core import Block, Op, Value
from dlc.ir.types import TensorType
from dlc.passes.sharding.costs import Costs
from dlc.passes.sharding.find_rule import rule_of
from dlc.passes.sharding.placement import PARTIAL, REPLICATED, Placement, Shard, allows
from dlc.passes.sharding.rule import Strategy, strategies

SWEEPS = 4
"""How often all operations of a block are looked at again."""
TRIALS = 4
"""How many placements of a loop's carried values are tried before all are replicated."""

Wanted = Sequence[Placement | None]
"""The placements that the end of a block wants; None where any will do."""


@dataclass(slots=True)
class Assignment:
    """The placements of a block: of its arguments, by operation, of its regions, and at its end."""

    arguments: tuple[Placement, ...]
    strategies: dict[Op, Strategy] = field(default_factory=dict[Op, Strategy])
    regions: dict[Op, tuple[Assignment, ...]] = field(
        default_factory=dict[Op, tuple["Assignment", ...]]
    )
    ends: tuple[Placement, ...] = ()


def assign(block: Block, arguments: Sequence[Placement], ends: Wanted, costs: Costs) -> Assignment:
    """The placements of a block whose arguments are placed so."""
    search = _Search(block, arguments, ends, costs)
    search.forward()
    search.improve()
    return search.finish()


class _Search:
    """The search for one block."""

    def __init__(
        self, block: Block, arguments: Sequence[Placement], ends: Wanted, costs: Costs
    ) -> None:
        self.block, self.costs, self.ends = block, costs, ends
        self.found = Assignment(tuple(arguments))
        self.placed: dict[Value, Placement] = dict(zip(block.arguments, arguments, strict=True))
        self.wanted: dict[Value, Counter[Placement]] = {}
        self.choices: dict[Op, list[tuple[Strategy, float]]] = {}

    # Forward.

    def forward(self) -> None:
        """Choose for each operation in order."""
        for op in self.block:
            if op.terminator:
                continue
            if op.regions:
                self._take(op, self._through(op))
                continue
            choices = self._choices(op)
            best = min(choices, key=lambda choice: self._price_ahead(op, *choice))
            self._take(op, best[0])

    def _choices(self, op: Op) -> list[tuple[Strategy, float]]:
        """The strategies of an operation that its types allow, with the time of its work."""
        rule, ranks = rule_of(op), self.costs.ranks
        work = self.costs.work(op, rule)
        found: list[tuple[Strategy, float]] = []
        for strategy in strategies(op, rule):
            pairs = [
                *zip(op.operands, strategy.operands, strict=True),
                *zip(op.results, strategy.results, strict=True),
            ]
            if all(
                place is REPLICATED
                or (isinstance(value.type, TensorType) and allows(value.type, place, ranks))
                for value, place in pairs
            ):
                found.append((strategy, work / ranks if strategy.is_divided else work))
        self.choices[op] = found
        return found

    def _price_ahead(self, op: Op, strategy: Strategy, work: float) -> float:
        """The price of a strategy, with the sum of what it leaves partial, since most are needed whole."""
        price = work
        for value, place in set(zip(op.operands, strategy.operands, strict=True)):
            price += self.costs.conversion(value, self.placed[value], place)
        for value, place in zip(op.results, strategy.results, strict=True):
            if place is PARTIAL and PARTIAL not in strategy.operands:
                price += self.costs.conversion(value, PARTIAL, REPLICATED)
        return price

    def _take(self, op: Op, strategy: Strategy) -> None:
        self.found.strategies[op] = strategy
        self.placed.update(zip(op.results, strategy.results, strict=True))

    # Better.

    def improve(self) -> None:
        """Change single operations as long as the whole becomes cheaper."""
        for op, strategy in self.found.strategies.items():
            self._count(op.operands, strategy.operands, 1)
        terminator = self.block.terminator
        for value, place in zip(terminator.operands, self.ends, strict=True):
            if place is not None:
                self._count([value], [place], 1)
        for sweep in range(SWEEPS):
            ops = list(self.choices)
            changes = sum(self._change(op) for op in (reversed(ops) if sweep % 2 == 0 else ops))
            if not changes:
                return

    def _count(self, values: Sequence[Value], places: Sequence[Placement], by: int) -> None:
        for value, place in zip(values, places, strict=True):
            self.wanted.setdefault(value, Counter())[place] += by

    def _change(self, op: Op) -> bool:
        """Give an operation the strategy that makes the whole cheapest; whether it is another one."""
        now = self.found.strategies[op]
        best, price = now, inf
        for strategy, work in self.choices[op]:
            self._switch(op, strategy)
            values = dict.fromkeys((*op.operands, *op.results))
            total = work + sum(map(self._conversions, values))
            if total < price or (total == price and strategy == now):
                best, price = strategy, total
        self._switch(op, best)
        return best != now

    def _switch(self, op: Op, strategy: Strategy) -> None:
        self._count(op.operands, self.found.strategies[op].operands, -1)
        self._take(op, strategy)
        self._count(op.operands, strategy.operands, 1)

    def _conversions(self, value: Value) -> float:
        have = self.placed[value]
        wanted = self.wanted.get(value, Counter[Placement]())
        return sum(
            self.costs.conversion(value, have, place) for place, count in wanted.items() if count
        )

    def finish(self) -> Assignment:
        """The placements, with those at the end."""
        values = self.block.terminator.operands
        self.found.ends = tuple(
            [
                self.placed[value] if place is None else place
                for value, place in zip(values, self.ends, strict=True)
            ]
        )
        return self.found

    # Regions.

    def _through(self, op: Op) -> Strategy:
        """The placements of an operation with regions."""
        match op:
            case flow.Scan():
                return self._scan(op)
            case flow.While():
                return self._while(op)
            case flow.If():
                return self._if(op)
            case _:
                return self._alike(op)

    def _alike(self, op: Op) -> Strategy:
        """Every rank runs the regions alike."""
        self.found.regions[op] = tuple([self._replicated(block) for block in op.regions])
        return next(strategies(op, None))

    def _replicated(self, block: Block) -> Assignment:
        ends = [REPLICATED] * len(block.terminator.operands)
        return assign(block, [REPLICATED] * len(block.arguments), ends, self.costs)

    def _scan(self, op: flow.Scan) -> Strategy:
        carried = len(op.initial)
        outer = [self._start(value) for value in op.initial]
        xs: list[Placement] = []
        for value, axis in zip(op.xs, op.x_axes, strict=True):
            place = self.placed[value]
            xs.append(REPLICATED if place == Shard(axis) else place)
        constants = [self.placed[value] for value in op.constants]
        slices = [_without(place, axis) for place, axis in zip(xs, op.x_axes, strict=True)]
        stacks: list[None] = [None] * len(op.y_axes)
        for _ in range(TRIALS):
            arguments = [REPLICATED, *outer, *slices, *constants]
            body = assign(op.body, arguments, [None] * carried + stacks, self.costs)
            if list(body.ends[:carried]) == outer:
                break
            outer = self._following(op.initial, body.ends[:carried])
        else:
            outer = [REPLICATED] * carried
        arguments = [REPLICATED, *outer, *slices, *constants]
        body = assign(op.body, arguments, [*outer, *stacks], self.costs)
        self.found.regions[op] = (body,)
        ys = [_with(end, axis) for end, axis in zip(body.ends[carried:], op.y_axes, strict=True)]
        return Strategy((*outer, *xs, *constants), (*outer, *ys), True)

    def _while(self, op: flow.While) -> Strategy:
        carried = len(op.initial)
        outer = [self._start(value) for value in op.initial]
        constants = [self.placed[value] for value in op.constants]
        for _ in range(TRIALS):
            body = assign(op.body, [*outer, *constants], [None] * carried, self.costs)
            if list(body.ends) == outer:
                break
            outer = self._following(op.initial, body.ends)
        else:
            outer = [REPLICATED] * carried
        arguments = (*outer, *constants)
        self.found.regions[op] = (
            assign(op.condition, arguments, [REPLICATED], self.costs),
            assign(op.body, arguments, outer, self.costs),
        )
        return Strategy(arguments, tuple(outer), True)

    def _if(self, op: flow.If) -> Strategy:
        inputs = [self.placed[value] for value in op.inputs]
        free = [None] * len(op.results)
        branches = [assign(block, inputs, free, self.costs) for block in op.regions]
        ends = [
            one if one == other else REPLICATED
            for one, other in zip(branches[0].ends, branches[1].ends, strict=True)
        ]
        self.found.regions[op] = tuple(
            [assign(block, inputs, ends, self.costs) for block in op.regions]
        )
        return Strategy((REPLICATED, *inputs), tuple(ends), True)

    def _start(self, value: Value) -> Placement:
        """The first guess for a carried value: sums that begin with zeros may stay partial."""
        is_sum = is_number(value, 0) and array.tensor_type(value).dtype.is_float
        return PARTIAL if is_sum else self.placed[value]

    def _following(self, initial: Sequence[Value], ends: Sequence[Placement]) -> list[Placement]:
        """The next guess for carried values: as the body gives them, where they can begin so."""
        return [
            end if self.costs.conversion(value, self.placed[value], end) < inf else REPLICATED
            for value, end in zip(initial, ends, strict=True)
        ]


def _without(place: Placement, axis: int) -> Placement:
    """The placement of a slice along an axis that is whole."""
    return Shard(place.axis - (place.axis > axis)) if isinstance(place, Shard) else place


def _with(place: Placement, axis: int) -> Placement:
    """The placement of a stack along a new axis."""
    return Shard(place.axis + (place.axis >= axis)) if isinstance(place, Shard) else place
