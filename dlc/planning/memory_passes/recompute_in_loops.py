"""Compute what the steps of a loop keep for its derivative again, in the derivative's loop.

What each step keeps takes as many places as there are steps, from the first loop to the second. What the
second loop computes again takes one: of a stack of transformer blocks only what goes from one to the next
is kept then. The same kernels compute it, so the bits are the same. A pair of loops is rebuilt if that
lowers the most that the function holds, which is tried on a copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlc.dialects import array, flow, func, kernel
from dlc.dialects.flow.regions import yielded
from dlc.ir.clone import clone, clone_block
from dlc.ir.core import Block, Op, Value
from dlc.ir.log import DecisionLog
from dlc.ir.rewrite import EQUAL, Gone, Rewriter
from dlc.ir.value_map import ValueMap
from dlc.planning.liveness import Timeline
from dlc.planning.memory_passes.loop_residuals import Choice, Pair, Prices, choose, pairs_in
from dlc.target.cpu_costs import CpuCosts

PRICES = (100_000, 10_000, 1_000)
"""Picoseconds that sparing one byte may take, tried in this order."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The second loop of a pair, what of it computes values again, and what that changed."""

    loop: flow.Scan
    kernels: Sequence[Op]
    picoseconds: int
    peak_before: int
    peak_then: int


def recompute_in_loops(
    timeline: Timeline, picoseconds: int, rewriter: Rewriter, costs: CpuCosts, *, products: bool
) -> list[Rebuilt]:
    """Rebuild loops that walk what others stacked, as long as the most that is held falls.

    All that is computed again takes at most so many picoseconds; only with `products` are these repeated.
    """
    done: list[Rebuilt] = []
    while True:
        left = picoseconds - sum(each.picoseconds for each in done)
        found = _best(timeline, left, costs, products=products)
        if found is None:
            return done
        pair, choice, peak = found
        rebuild = _Rebuild(pair, choice, rewriter)
        loop = rebuild.run()
        done.append(Rebuilt(loop, rebuild.kernels, choice.picoseconds, max(timeline.alive), peak))
        timeline = Timeline(timeline.function, sizes=timeline.sample)


def _best(
    timeline: Timeline, left: int, costs: CpuCosts, *, products: bool
) -> tuple[Pair, Choice, int] | None:
    """The pair to rebuild, how, and the most that is held then; None if nothing helps.

    The first that helps at all is taken: the pair that stands furthest inside, which is at the peak.
    """
    for number, pair in enumerate(pairs_in(timeline.ops)):
        if not _is_over(pair, timeline):
            continue
        for price in PRICES:
            prices = Prices(price, costs)
            choice = choose(pair, timeline, prices, products=products)
            if choice is not None and choice.picoseconds <= left:
                peak = _peak_with(timeline, number, prices, products=products)
                if peak < max(timeline.alive):
                    return pair, choice, peak
    return None


def _is_over(pair: Pair, timeline: Timeline) -> bool:
    """Whether the function holds most while the stacks of a pair are held."""
    number = timeline.number
    return number[pair.forward] <= timeline.peak <= number[pair.backward]


def _peak_with(timeline: Timeline, number: int, prices: Prices, *, products: bool) -> int:
    """The most that the function would hold, found by doing it to a copy."""
    function = timeline.function
    copy = clone(function, (), [clone_block(function.body)])
    assert isinstance(copy, func.Func)
    tried = Timeline(copy, sizes=timeline.sample)
    pair = list(pairs_in(tried.ops))[number]
    choice = choose(pair, tried, prices, products=products)
    assert choice is not None
    _Rebuild(pair, choice, Rewriter(ValueMap(), DecisionLog())).run()
    return max(Timeline(copy, sizes=timeline.sample).alive)


class _Rebuild:
    """Builds both loops of a pair anew: the first stacks what was chosen, the second computes the rest."""

    def __init__(self, pair: Pair, choice: Choice, rewriter: Rewriter) -> None:
        self.forward, self.backward = pair.forward, pair.backward
        self.walked, self.given = pair.walked, pair.given
        self.index = pair.forward.body.arguments[0]
        self.axes = dict(zip(self.given, pair.forward.x_axes, strict=False))
        self.choice = choice
        self.rewriter = rewriter
        self.kernels: list[Op] = []

    def run(self) -> flow.Scan:
        """Put the new loops in the place of the old ones; gives the second one."""
        sources = {source: self._source_again(source) for source in self.choice.sources}
        stacks = self._first_loop()
        loop = self._second_loop(stacks, sources)
        self.rewriter.erase(self.forward, Gone("computed again in another loop"))
        return loop

    def _source_again(self, source: Value) -> Value:
        """An array outside, computed again before the second loop."""
        if isinstance(source.op, array.Reshape):
            seen = self._source_again(source.op.source)
            return self._copy(source.op, [seen], self.backward).result
        assert source.op is not None
        copy = self._copy(source.op, source.op.operands, self.backward)
        return copy.results[source.index]

    def _copy(self, op: Op, operands: Sequence[Value], before: Op) -> Op:
        copy = clone(op, operands, [clone_block(region) for region in op.regions])
        assert before.parent is not None
        before.parent.insert(copy, before)
        if isinstance(copy, kernel.Kernel):
            self.kernels.append(copy)
        return copy

    # The first loop.

    def _first_loop(self) -> dict[Value, tuple[Value, int]]:
        """By value of the body its stack, and the axis of the steps; the old loop loses its body."""
        scan, body, ends = self.forward, self.forward.body, yielded(self.forward.body)
        count = len(scan.initial)
        stay = [k for k in range(count, len(ends)) if self._stays(scan.results[k], ends[k])]
        known = {ends[k] for k in stay}
        fresh = [value for value in self.choice.stacked if value not in known]
        y_axes = (*[scan.y_axes[k - count] for k in stay], *[0] * len(fresh))
        body.terminator.set_operands((*ends[:count], *[ends[k] for k in stay], *fresh))
        scan.regions = ()
        facts = (scan.length, scan.x_axes, y_axes, scan.reverse)
        made = flow.Scan(scan.initial, scan.xs, scan.constants, body, *facts)
        self.rewriter.before(scan).place(made)
        old = (*scan.results[:count], *[scan.results[k] for k in stay])
        for before, after in zip(old, made.results, strict=False):
            after.name = before.name
            self.rewriter.values.replaced(before, after, EQUAL)
            before.replace_by(after)
        stacks = zip(made.results[count:], y_axes, strict=True)
        return dict(zip(yielded(body)[count:], stacks, strict=True))

    def _stays(self, stack: Value, value: Value) -> bool:
        """Whether the second loop still walks a stack, or anything else uses it."""
        walks = sum(stack is walked for walked in self.backward.xs)
        return value in self.choice.stacked or sum(stack.uses.values()) > walks

    # The second loop.

    def _second_loop(
        self, stacks: Mapping[Value, tuple[Value, int]], sources: Mapping[Value, Value]
    ) -> flow.Scan:
        """The second loop, whose body computes what it was handed before."""
        scan, body = self.backward, self.backward.body
        recomputed = {a: v for a, v in self.walked.items() if v not in self.choice.stacked}
        inputs = [each for each in _inputs(scan) if each.argument not in recomputed]
        copies = self._starting_points(inputs, stacks, sources)
        self._compute(body, recomputed, copies)
        loop = _with_inputs(scan, inputs)
        self.rewriter.replace(scan, self.rewriter.before(scan).all(loop), relation=EQUAL)
        return loop

    def _starting_points(
        self,
        inputs: list[_Input],
        stacks: Mapping[Value, tuple[Value, int]],
        sources: Mapping[Value, Value],
    ) -> dict[Value, Value]:
        """What is computed from: values of the first body, as the second one has them.

        Adds to `inputs` what the second loop is not handed yet.
        """
        body = self.backward.body
        copies = {self.index: body.arguments[0]}
        for value in self.choice.stacked:
            copies[value] = _argument(body, inputs, *stacks[value], value)
        for value in self.choice.passed:
            if value in self.given:
                outside = self.given[value]
                outside = sources.get(outside, outside)
                copies[value] = _argument(body, inputs, outside, self.axes.get(value), value)
        return copies

    def _compute(
        self, body: Block, recomputed: Mapping[Value, Value], copies: dict[Value, Value]
    ) -> None:
        """Compute what arguments stood for, each just before it is used first."""
        for op in body:
            for argument in dict.fromkeys(op.operands):
                if argument in recomputed:
                    value = recomputed[argument]
                    self._make(value, copies, op)
                    op.replace_operand(argument, copies[value])

    def _make(self, value: Value, copies: dict[Value, Value], before: Op) -> None:
        """Compute a value of the first body before an operation of the second one."""
        needed: set[Op] = set()
        pending = [value]
        while pending:
            value = pending.pop()
            if value not in copies and value.op is not None and value.op not in needed:
                needed.add(value.op)
                pending += value.op.operands
        for op in self.choice.made:
            if op in needed:
                copy = self._copy(op, [copies[o] for o in op.operands], before)
                copies.update(zip(op.results, copy.results, strict=True))


@dataclass(frozen=True, slots=True)
class _Input:
    """An argument of a loop's body, what is passed for it, and the axis that is walked, if one is."""

    argument: Value
    outside: Value
    axis: int | None


def _inputs(scan: flow.Scan) -> list[_Input]:
    arguments = scan.body.arguments[1 + len(scan.initial) :]
    outside = (*scan.xs, *scan.constants)
    axes = (*scan.x_axes, *[None] * len(scan.constants))
    return [_Input(*each) for each in zip(arguments, outside, axes, strict=True)]


def _with_inputs(scan: flow.Scan, inputs: Sequence[_Input]) -> flow.Scan:
    """A loop with the body of another one, which it takes, and other inputs."""
    body = scan.body
    slices = [(each.argument, each.outside, each.axis) for each in inputs if each.axis is not None]
    constants = [each for each in inputs if each.axis is None]
    carried = body.arguments[: 1 + len(scan.initial)]
    walked = [argument for argument, _, _ in slices]
    body.set_arguments([*carried, *walked, *[each.argument for each in constants]])
    scan.regions = ()
    return flow.Scan(
        scan.initial,
        [outside for _, outside, _ in slices],
        [each.outside for each in constants],
        body,
        scan.length,
        tuple([axis for _, _, axis in slices]),
        scan.y_axes,
        scan.reverse,
    )


def _argument(
    body: Block, inputs: list[_Input], outside: Value, axis: int | None, like: Value
) -> Value:
    """The argument of the body for something outside; a new one of the type of `like` if it has none."""
    for each in inputs:
        if each.outside is outside and each.axis == axis:
            return each.argument
    inputs.append(_Input(body.add_argument(like.type, like.name), outside, axis))
    return inputs[-1].argument
