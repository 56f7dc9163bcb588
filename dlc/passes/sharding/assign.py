"""The placement of every value of a block: the cheapest that a local search finds.

Each operation is computed in one of the ways that its sharding rule allows. Going forward, each takes the
way that is cheapest for the placements its operands have by then; then single operations are changed as
long as that makes the whole cheaper, so that a sum over ranks moves to where it is small or needed once.
A value that several operations want in another placement is converted once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from dlc.dialects import array, flow, weight
from dlc.dialects.array.elementwise import is_number
from dlc.ir.core import Block, Op, Value
from dlc.ir.types import TensorType
from dlc.passes.sharding.by_rows import row_strategies
from dlc.passes.sharding.costs import Costs
from dlc.passes.sharding.find_rule import rule_of
from dlc.passes.sharding.placement import PARTIAL, REPLICATED, Placement, Shard, allows
from dlc.passes.sharding.rule import Strategy, strategies

SWEEPS = 4
"""How often all operations of a block are looked at again."""
STARTS = 16
"""How many operations of a group that hands on partial sums are tried as the first that has the sum."""
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
    price: float = 0
    """The time of all work and all conversions, in picoseconds."""


def assign(block: Block, arguments: Sequence[Placement], ends: Wanted, costs: Costs) -> Assignment:
    """The placements of a block whose arguments are placed so."""
    return _Known(costs).assign(block, arguments, ends)


class _Known:
    """What the searches of a block and of those within it have found out.

    The body of a loop is searched several times, often with the same placements around it, and asks for
    each price thousands of times.
    """

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self._assignments: dict[object, Assignment] = {}
        self._strategies: dict[Op, Mapping[Strategy, float]] = {}
        self._conversions: dict[tuple[Value, Placement, Placement], float] = {}

    def assign(self, block: Block, arguments: Sequence[Placement], ends: Wanted) -> Assignment:
        """The cheaper of what is found from the two beginnings."""
        key = block, tuple(arguments), tuple(ends)
        if key not in self._assignments:
            both = [_Search(block, arguments, ends, self).run(keeps) for keeps in (False, True)]
            self._assignments[key] = min(both, key=lambda found: found.price)
        return self._assignments[key]

    def strategies(self, op: Op) -> Mapping[Strategy, float]:
        """The strategies of an operation that its types allow, with the time of its work."""
        if op not in self._strategies:
            self._strategies[op] = dict(_strategies(op, self.costs))
        return self._strategies[op]

    def conversion(self, value: Value, have: Placement, want: Placement) -> float:
        """The price of a conversion."""
        key = value, have, want
        found = self._conversions.get(key)
        if found is None:
            found = self._conversions[key] = self.costs.conversion(*key)
        return found


def _strategies(op: Op, costs: Costs) -> Iterator[tuple[Strategy, float]]:
    if isinstance(op, weight.Get) and op.symbol.name in costs.splits:
        yield Strategy((), (Shard(costs.splits[op.symbol.name]),), True), 0
        return
    rule, ranks = rule_of(op), costs.ranks
    work = costs.work(op, rule)
    for strategy in (*strategies(op, rule), *row_strategies(op)):
        pairs = [
            *zip(op.operands, strategy.operands, strict=True),
            *zip(op.results, strategy.results, strict=True),
        ]
        if all(
            place is REPLICATED
            or (isinstance(value.type, TensorType) and allows(value.type, place, ranks))
            for value, place in pairs
        ):
            yield strategy, work / ranks if strategy.is_divided else work


class _Search:
    """The search for one block."""

    def __init__(
        self, block: Block, arguments: Sequence[Placement], ends: Wanted, known: _Known
    ) -> None:
        self.block, self.known, self.ends = block, known, ends
        self.found = Assignment(tuple(arguments))
        self.placed: dict[Value, Placement] = dict(zip(block.arguments, arguments, strict=True))
        self.wanted: dict[Value, Counter[Placement]] = defaultdict(Counter)
        self.choices: dict[Op, Mapping[Strategy, float]] = {}

    def run(self, keeps: bool) -> Assignment:
        """The placements found from one beginning: with `keeps`, from that which converts least."""
        self.forward(keeps)
        self.improve()
        return self.finish()

    # Forward.

    def forward(self, keeps: bool) -> None:
        """Choose for each operation in order; with `keeps` one that takes what there is, or its sum."""
        for op in self.block:
            if op.terminator:
                continue
            if op.regions:
                self._take(op, self._through(op))
                continue
            self.choices[op] = self.known.strategies(op)
            choices = self.choices[op].items()
            if keeps:
                choices = [each for each in choices if self._keeps(op, each[0])] or choices
            best = min(choices, key=lambda choice: self._price_ahead(op, *choice))
            self._take(op, best[0])

    def _keeps(self, op: Op, strategy: Strategy) -> bool:
        """Whether a strategy takes operands as they are placed, or where they are partial their sums."""
        return all(
            place in (self.placed[value], REPLICATED if self.placed[value] is PARTIAL else None)
            for value, place in zip(op.operands, strategy.operands, strict=True)
            if not isinstance(value.op, array.Fill)
        )

    def _price_ahead(self, op: Op, strategy: Strategy, work: float) -> float:
        """The price of a strategy, with making its results whole again, since most are needed whole.

        That counts where the strategy begins to divide or to leave partial what its operands are not.
        """
        price = work
        for value, place in set(zip(op.operands, strategy.operands, strict=True)):
            price += self.known.conversion(value, self.placed[value], place)
        for value, place in zip(op.results, strategy.results, strict=True):
            begins_partial = place is PARTIAL and PARTIAL not in strategy.operands
            is_divided = any(isinstance(self.placed[operand], Shard) for operand in op.operands)
            if begins_partial or (isinstance(place, Shard) and not is_divided):
                price += self.known.conversion(value, place, REPLICATED)
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
            partial = [value for value, place in self.placed.items() if place is PARTIAL]
            changes = sum(map(self._change_readers, partial))
            ops = list(self.choices)
            changes += sum(self._change(op) for op in (reversed(ops) if sweep % 2 == 0 else ops))
            changes += sum(self._change_group(group) for group in self._groups())
            if not changes:
                break
        for op in [op for op in self.found.regions if isinstance(op, flow.Scan)]:
            self._sum_in_body(op)

    def _count(self, values: Sequence[Value], places: Sequence[Placement], by: int) -> None:
        for value, place in zip(values, places, strict=True):
            self.wanted[value][place] += by

    def _change(self, op: Op) -> bool:
        """Give an operation the strategy that makes the whole cheapest; whether it is another one."""
        now = self.found.strategies[op]
        best, price = now, inf
        for strategy, work in self.choices[op].items():
            self._switch(op, strategy)
            values = dict.fromkeys((*op.operands, *op.results))
            total = work + sum(map(self._conversions, values))
            if total < price or (total == price and strategy == now):
                best, price = strategy, total
        self._switch(op, best)
        return best != now

    def _groups(self) -> list[list[Op]]:
        """Operations that are split along the same axis, and hand on or read the same values split so.

        Those that hand on partial sums are groups, too.
        """
        group_of: dict[Op, list[Op]] = {}
        first: dict[tuple[Value, Placement], Op] = {}
        for op in self.choices:
            strategy = self.found.strategies[op]
            way = _way(strategy)
            if way is None:
                continue
            own = group_of[op] = [op]
            for value, place in zip(
                (*op.operands, *op.results), (*strategy.operands, *strategy.results), strict=True
            ):
                if place != way:
                    continue
                other = group_of[first.setdefault((value, way), op)]
                if other is not own:
                    own, less = (own, other) if len(own) > len(other) else (other, own)
                    own += less
                    group_of.update(dict.fromkeys(less, own))
        order = {op: number for number, op in enumerate(self.choices)}
        groups = {id(group): group for group in group_of.values()}
        return [sorted(group, key=lambda op: order[op]) for group in groups.values()]

    def _change_group(self, group: list[Op]) -> bool:
        """Let all operations of a group take another way, if the whole becomes cheaper."""
        now = {op: self.found.strategies[op] for op in group}
        best, price = now, self._price_around(group)
        for moved in self._other_ways(group):
            found = {op: strategy for op, strategy in moved.items() if strategy is not None}
            if len(found) == len(moved):
                self._switch_all(found)
                if (total := self._price_around(group)) < price:
                    best, price = found, total
                self._switch_all(now)
        self._switch_all(best)
        return best is not now

    def _other_ways(self, group: list[Op]) -> Iterator[dict[Op, Strategy | None]]:
        """The strategies of a group split along another axis, or not at all; None where there is none."""
        if _way(self.found.strategies[group[0]]) is PARTIAL:
            # The sum may be needed behind any of them.
            for begin in range(min(len(group), STARTS)):
                yield {op: self._alone(op) for op in group[begin:]}
            return
        shapes = [array.tensor_type(value).shape for op in group for value in op.operands]
        axes = range(max(map(len, shapes), default=0))
        for to in (REPLICATED, *map(Shard, axes)):
            yield {op: self._moved(op, to) for op in group}

    def _moved(self, op: Op, to: Placement) -> Strategy | None:
        """The strategy of an operation that differs from its own by the axis; None if there is none."""
        now = self.found.strategies[op]
        if to is REPLICATED:
            # Sums over ranks are added to others that are still partial.
            return now if PARTIAL in now.results else self._alone(op)
        operands, results = (
            tuple([to if isinstance(place, Shard) else place for place in places])
            for places in (now.operands, now.results)
        )
        wanted = Strategy(operands, results, now.is_divided)
        return wanted if wanted in self.choices[op] else None

    def _alone(self, op: Op) -> Strategy:
        """The first strategy of an operation: every rank does all of it."""
        return next(iter(self.choices[op]))

    def _switch_all(self, strategies: Mapping[Op, Strategy]) -> None:
        for op, strategy in strategies.items():
            self._switch(op, strategy)

    def _change_readers(self, value: Value) -> bool:
        """Let all operations that read a partial value take its sum, whole or split along the same axis.

        One alone would need the sum beside the part that the others take.
        """
        readers = [op for op in dict.fromkeys(value.uses) if op in self.choices]
        if len(readers) < 2:
            return False
        now = {op: self.found.strategies[op] for op in readers}
        best, price = now, self._price_around(readers)
        for place in (REPLICATED, *map(Shard, range(array.tensor_type(value).rank))):
            if self._all_take(readers, value, place):
                total = self._price_around(readers)
                if total < price:
                    best, price = {op: self.found.strategies[op] for op in readers}, total
            self._switch_all(now)
        self._switch_all(best)
        return best is not now

    def _all_take(self, readers: Sequence[Op], value: Value, place: Placement) -> bool:
        """Give each reader of a value the best strategy that takes it so; False where one has none."""
        for op in readers:
            fitting = [choice for choice in self.choices[op] if _takes(op, choice, value, place)]
            if not fitting:
                return False
            self._switch(op, min(fitting, key=lambda choice: self._price_of(op, choice)))
        return True

    def _price_of(self, op: Op, strategy: Strategy) -> float:
        """The price around an operation with another strategy."""
        self._switch(op, strategy)
        return self._price_around([op])

    def _price_around(self, ops: Sequence[Op]) -> float:
        """The price of operations as they are now, with the conversions of what they read and give."""
        values = dict.fromkeys(value for op in ops for value in (*op.operands, *op.results))
        work = sum(self.choices[op][self.found.strategies[op]] for op in ops)
        return work + sum(map(self._conversions, values))

    def _switch(self, op: Op, strategy: Strategy) -> None:
        self._count(op.operands, self.found.strategies[op].operands, -1)
        self._take(op, strategy)
        self._count(op.operands, strategy.operands, 1)

    def _conversions(self, value: Value) -> float:
        have = self.placed[value]
        return sum(
            self.known.conversion(value, have, place)
            for place, count in self.wanted[value].items()
            if count
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
        for op, regions in self.found.regions.items():
            rounds = self.known.costs.size(op.length) if isinstance(op, flow.Scan) else 1
            self.found.price += rounds * sum(region.price for region in regions)
        for op, choices in self.choices.items():
            self.found.price += choices[self.found.strategies[op]]
        self.found.price += sum(map(self._conversions, self.placed))
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
        return self.known.assign(block, [REPLICATED] * len(block.arguments), ends)

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
            body = self.known.assign(op.body, arguments, [None] * carried + stacks)
            if list(body.ends[:carried]) == outer:
                break
            outer = self._following(op.initial, body.ends[:carried])
        else:
            outer = [REPLICATED] * carried
        arguments = [REPLICATED, *outer, *slices, *constants]
        body = self.known.assign(op.body, arguments, [*outer, *stacks])
        self.found.regions[op] = (body,)
        ys = [_with(end, axis) for end, axis in zip(body.ends[carried:], op.y_axes, strict=True)]
        return Strategy((*outer, *xs, *constants), (*outer, *ys), True)

    def _sum_in_body(self, op: flow.Scan) -> None:
        """Let the body sum what it stacks where the stack is wanted split.

        As many bytes are sent, and no rank has a stack of whole arrays.
        """
        strategy, carried = self.found.strategies[op], len(op.initial)
        ends: list[Placement] = list(self.found.regions[op][0].ends)
        for k, (value, axis) in enumerate(zip(op.results[carried:], op.y_axes, strict=True)):
            places = {
                place
                for place, count in self.wanted.get(value, Counter[Placement]()).items()
                if count
            }
            if self.placed[value] is PARTIAL and len(places) == 1:
                (place,) = places
                if isinstance(place, Shard) and place.axis != axis:
                    ends[carried + k] = _without(place, axis)
        (body,) = self.found.regions[op]
        if tuple(ends) != body.ends:
            body = self.known.assign(op.body, body.arguments, ends)
            self.found.regions[op] = (body,)
            ys = [_with(end, axis) for end, axis in zip(ends[carried:], op.y_axes, strict=True)]
            self._switch(op, Strategy(strategy.operands, (*strategy.results[:carried], *ys), True))

    def _while(self, op: flow.While) -> Strategy:
        carried = len(op.initial)
        outer = [self._start(value) for value in op.initial]
        constants = [self.placed[value] for value in op.constants]
        for _ in range(TRIALS):
            body = self.known.assign(op.body, [*outer, *constants], [None] * carried)
            if list(body.ends) == outer:
                break
            outer = self._following(op.initial, body.ends)
        else:
            outer = [REPLICATED] * carried
        arguments = (*outer, *constants)
        self.found.regions[op] = (
            self.known.assign(op.condition, arguments, [REPLICATED]),
            self.known.assign(op.body, arguments, outer),
        )
        return Strategy(arguments, tuple(outer), True)

    def _if(self, op: flow.If) -> Strategy:
        inputs = [self.placed[value] for value in op.inputs]
        free = [None] * len(op.results)
        branches = [self.known.assign(block, inputs, free) for block in op.regions]
        ends = [
            one if one == other else REPLICATED
            for one, other in zip(branches[0].ends, branches[1].ends, strict=True)
        ]
        self.found.regions[op] = tuple(
            [self.known.assign(block, inputs, ends) for block in op.regions]
        )
        return Strategy((REPLICATED, *inputs), tuple(ends), True)

    def _start(self, value: Value) -> Placement:
        """The first guess for a carried value: sums that begin with zeros may stay partial."""
        is_sum = is_number(value, 0) and array.tensor_type(value).dtype.is_float
        return PARTIAL if is_sum else self.placed[value]

    def _following(self, initial: Sequence[Value], ends: Sequence[Placement]) -> list[Placement]:
        """The next guess for carried values: as the body gives them, where they can begin so."""
        return [
            end if self.known.conversion(value, self.placed[value], end) < inf else REPLICATED
            for value, end in zip(initial, ends, strict=True)
        ]


def _way(strategy: Strategy) -> Placement | None:
    """The one axis that a strategy splits, or partial sums that it hands on; None for other strategies."""
    places = {*strategy.operands, *strategy.results}
    shards = [place for place in places if isinstance(place, Shard)]
    if not shards:
        return PARTIAL if PARTIAL in strategy.operands else None
    return shards[0] if len(shards) == 1 else None


def _takes(op: Op, strategy: Strategy, value: Value, place: Placement) -> bool:
    """Whether an operation with this strategy reads a value that is placed so."""
    pairs = zip(op.operands, strategy.operands, strict=True)
    return all(taken == place for operand, taken in pairs if operand is value)


def _without(place: Placement, axis: int) -> Placement:
    """The placement of a slice along an axis that is whole."""
    return Shard(place.axis - (place.axis > axis)) if isinstance(place, Shard) else place


def _with(place: Placement, axis: int) -> Placement:
    """The placement of a stack along a new axis."""
    return Shard(place.axis + (place.axis >= axis)) if isinstance(place, Shard) else place
