"""Rematerialization in loops: the derivative's loop recomputes what the forward loop would keep.

A value that each iteration keeps is stacked: it takes as much memory as there are iterations, from the
first loop to the second. Recomputed in the second loop it takes that of one: of a stack of transformer
blocks only the value between two blocks is kept. The same kernels compute it, to the same bits. A pair of
loops is rebuilt if that lowers the memory peak of the function, which is tried on a copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlc.dialects import array, flow, func, kernel
from dlc.dialects.flow.regions import yielded
from dlc.dialects.flow.scan import ScanInput
from dlc.ir.clone import clone, clone_block
from dlc.ir.core import Block, Op, Value
from dlc.ir.log import DecisionLog
from dlc.ir.rewrite import EQUAL, Gone, Rewriter
from dlc.ir.value_map import ValueMap
from dlc.planning.liveness import Timeline
from dlc.planning.memory_passes.loop_residuals import Choice, Pair, Prices, choose, pairs_in
from dlc.target.cpu_costs import CpuCosts

PRICES = (100_000, 10_000, 1_000)
"""Picoseconds that saving one byte may take, tried in this order."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The second loop of a rebuilt pair, its kernels that recompute, their time, and the peaks in bytes."""

    loop: flow.Scan
    kernels: Sequence[Op]
    picoseconds: int
    peak_before: int
    peak_after: int


def recompute_in_loops(
    timeline: Timeline, picoseconds: int, rewriter: Rewriter, costs: CpuCosts, *, products: bool
) -> list[Rebuilt]:
    """Rebuild pairs of loops, of which the second reads stacks of the first, while that lowers the peak.

    Recomputation takes at most `picoseconds` altogether; products are repeated only with `products`.
    """
    rebuilt_loops: list[Rebuilt] = []
    while True:
        left = picoseconds - sum(each.picoseconds for each in rebuilt_loops)
        best = _best(timeline, left, costs, products=products)
        if best is None:
            return rebuilt_loops
        pair, choice, peak = best
        rebuild = _Rebuild(pair, choice, rewriter)
        loop = rebuild.run()
        rebuilt_loops.append(
            Rebuilt(loop, rebuild.kernels, choice.picoseconds, max(timeline.alive), peak)
        )
        timeline = Timeline(timeline.function, sizes=timeline.sample)


def _best(
    timeline: Timeline, left: int, costs: CpuCosts, *, products: bool
) -> tuple[Pair, Choice, int] | None:
    """The pair to rebuild, how, and the peak in bytes after that; None if nothing lowers the peak.

    The first pair that helps is taken.
    """
    for index, pair in enumerate(pairs_in(timeline.ops)):
        if not _spans_peak(pair, timeline):
            continue
        for price in PRICES:
            prices = Prices(price, costs)
            choice = choose(pair, timeline, prices, products=products)
            if choice is not None and choice.picoseconds <= left:
                peak = _peak_with(timeline, index, prices, products=products)
                if peak < max(timeline.alive):
                    return pair, choice, peak
    return None


def _spans_peak(pair: Pair, timeline: Timeline) -> bool:
    """Whether the stacks of a pair are live at the peak of the function."""
    index = timeline.number
    return index[pair.forward] <= timeline.peak <= index[pair.backward]


def _peak_with(timeline: Timeline, index: int, prices: Prices, *, products: bool) -> int:
    """The peak in bytes after a pair is rebuilt, found on a copy of the function."""
    function = timeline.function
    copy = clone(function, (), [clone_block(function.body)])
    assert isinstance(copy, func.Func)
    timeline_of_copy = Timeline(copy, sizes=timeline.sample)
    pair = list(pairs_in(timeline_of_copy.ops))[index]
    choice = choose(pair, timeline_of_copy, prices, products=products)
    assert choice is not None
    _Rebuild(pair, choice, Rewriter(ValueMap(), DecisionLog())).run()
    return max(Timeline(copy, sizes=timeline.sample).alive)


class _Rebuild:
    """Rebuilds a pair of loops: the first stacks the chosen values, the second recomputes the others."""

    def __init__(self, pair: Pair, choice: Choice, rewriter: Rewriter) -> None:
        self.forward, self.backward = pair.forward, pair.backward
        self.walked, self.outside_of = pair.walked, pair.outside_of
        self.counter = pair.forward.body.arguments[0]
        self.axes = dict(zip(self.outside_of, pair.forward.x_axes, strict=False))
        self.choice = choice
        self.rewriter = rewriter
        self.kernels: list[Op] = []

    def run(self) -> flow.Scan:
        """Replace both loops; returns the second."""
        sources = {source: self._recompute_outside(source) for source in self.choice.sources}
        stacks = self._first_loop()
        loop = self._second_loop(stacks, sources)
        self.rewriter.erase(self.forward, Gone("recomputed in another loop"))
        return loop

    def _recompute_outside(self, source: Value) -> Value:
        """A value outside of the loops, recomputed before the second one."""
        if isinstance(source.op, array.Reshape):
            source_copy = self._recompute_outside(source.op.source)
            return self._copy(source.op, [source_copy], self.backward).result
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
        """The new first loop: each stacked value of the body with its stack and the axis of iterations."""
        scan, body, yields = self.forward, self.forward.body, yielded(self.forward.body)
        count = len(scan.initial)
        kept_stacks = [
            k for k in range(count, len(yields)) if self._is_still_read(scan.results[k], yields[k])
        ]
        already_stacked = {yields[k] for k in kept_stacks}
        new_values = [value for value in self.choice.stacked if value not in already_stacked]
        y_axes = (*[scan.y_axes[k - count] for k in kept_stacks], *[0] * len(new_values))
        body.terminator.set_operands(
            (*yields[:count], *[yields[k] for k in kept_stacks], *new_values)
        )
        (body,) = scan.take_regions()
        layout = (scan.length, scan.x_axes, y_axes, scan.reverse)
        loop = flow.Scan(scan.initial, scan.xs, scan.constants, body, *layout)
        self.rewriter.before(scan).place(loop)
        old = (*scan.results[:count], *[scan.results[k] for k in kept_stacks])
        for before, after in zip(old, loop.results, strict=False):
            after.name = before.name
            self.rewriter.values.replaced(before, after, EQUAL)
            before.replace_by(after)
        stacks = zip(loop.results[count:], y_axes, strict=True)
        return dict(zip(yielded(body)[count:], stacks, strict=True))

    def _is_still_read(self, stack: Value, value: Value) -> bool:
        """Whether the second loop, or anything else, still reads a stack."""
        walks = sum(stack is walked for walked in self.backward.xs)
        return value in self.choice.stacked or sum(stack.uses.values()) > walks

    # The second loop.

    def _second_loop(
        self, stacks: Mapping[Value, tuple[Value, int]], sources: Mapping[Value, Value]
    ) -> flow.Scan:
        """The second loop, whose body recomputes values that it used to read from stacks."""
        scan, body = self.backward, self.backward.body
        recomputed = {a: v for a, v in self.walked.items() if v not in self.choice.stacked}
        inputs = [each for each in scan.inputs if each.argument not in recomputed]
        copies = self._starting_points(inputs, stacks, sources)
        self._recompute_arguments(body, recomputed, copies)
        loop = scan.with_inputs(inputs)
        self.rewriter.replace(scan, self.rewriter.before(scan).all(loop), relation=EQUAL)
        return loop

    def _starting_points(
        self,
        inputs: list[ScanInput],
        stacks: Mapping[Value, tuple[Value, int]],
        sources: Mapping[Value, Value],
    ) -> dict[Value, Value]:
        """The values of the first body from which to recompute, as arguments of the second one.

        Adds to `inputs` those that the second loop does not have yet.
        """
        body = self.backward.body
        copies = {self.counter: body.arguments[0]}
        for value in self.choice.stacked:
            copies[value] = _argument(body, inputs, *stacks[value], value)
        for value in self.choice.passed:
            if value in self.outside_of:
                outside = self.outside_of[value]
                outside = sources.get(outside, outside)
                copies[value] = _argument(body, inputs, outside, self.axes.get(value), value)
        return copies

    def _recompute_arguments(
        self, body: Block, recomputed: Mapping[Value, Value], copies: dict[Value, Value]
    ) -> None:
        """Recompute the values that arguments stood for, each just before its first use."""
        for op in body:
            for argument in dict.fromkeys(op.operands):
                if argument in recomputed:
                    value = recomputed[argument]
                    self._recompute_value(value, copies, op)
                    op.replace_operand(argument, copies[value])

    def _recompute_value(self, value: Value, copies: dict[Value, Value], before: Op) -> None:
        """Recompute a value of the first body before an operation of the second one."""
        needed: set[Op] = set()
        pending = [value]
        while pending:
            value = pending.pop()
            if value not in copies and value.op is not None and value.op not in needed:
                needed.add(value.op)
                pending += value.op.operands
        for op in self.choice.operations:
            if op in needed:
                copy = self._copy(op, [copies[o] for o in op.operands], before)
                copies.update(zip(op.results, copy.results, strict=True))


def _argument(
    body: Block, inputs: list[ScanInput], outside: Value, axis: int | None, like: Value
) -> Value:
    """The argument of the body for a value outside; a new one of the type of `like` if there is none."""
    for each in inputs:
        if each.outside is outside and each.axis == axis:
            return each.argument
    inputs.append(ScanInput(body.add_argument(like.type, like.name), outside, axis))
    return inputs[-1].argument
