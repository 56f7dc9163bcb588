"""Compute values again instead of keeping them, where the most is held and it costs little.

What the forward half computes for the backward half is held in between. An array that follows cheaply
from others that are there anyway gives its memory back after its last use before the peak, and a second
kernel, the same as the first, computes it before the next use: the same bits. Gaps over the peak are
closed one after the other, the one first that saves most bytes for its time, until nothing lowers the
peak any more or the time is spent. What loops keep for others is looked at before, where there is much
time (`recompute_in_loops`). Sizes are the largest ones, or, of a step of training, the batch that the text
names. It comes after everything that merges equal values or moves formulas into others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dlc.dialects import array, func
from dlc.dialects.builtin import Module
from dlc.dialects.measured import measuring
from dlc.ir.clone import clone, clone_block
from dlc.ir.core import Op, Value
from dlc.ir.passes import Context, define_pass
from dlc.planning.aliases import origin
from dlc.planning.layout import cases_of
from dlc.planning.liveness import Held, Timeline, updates_of
from dlc.planning.memory_passes.recompute_in_loops import recompute_in_loops
from dlc.target import cpu_of
from dlc.target.cpu_costs import CpuCosts
from dlc.target.estimates import is_cheap, is_product, picoseconds

MARK = "dlc.again"
"""The attribute of kernels that compute a value again: what that saves and costs, for readers."""
MOST_STEPS = 5
"""How many kernels may be needed for one value."""
IN_LOOPS = 0.1
"""From how much more time on loops are looked at: a cut has already chosen what their steps keep."""
LEAST_PART = 256
"""Arrays below this part of the peak are not worth a kernel."""
SMALL = 16
"""An array that is so many times smaller than another is rather held for longer than computed again."""
LEAST_GAIN = 32
"""All of it is done only if the peak falls by more than this part."""
MOST_VALUES = 400
"""Values that are computed again in one function."""


@define_pass("recompute")
def recompute(module: Op, context: Context, *, budget: float | None = None) -> None:
    """Compute values again instead of keeping them, where that lowers the peak and costs little.

    That may take `budget` times as long as a call, or what the compilation says; from 1 on also products
    are computed again.
    """
    assert isinstance(module, Module)
    budget = context.options.recompute if budget is None else budget
    for function in list(module.body):
        if isinstance(function, func.Func) and not measuring(function):
            _recompute_in(function, context, budget)


def _recompute_in(function: func.Func, context: Context, budget: float) -> None:
    *_, sizes = cases_of(function, context.options.batch)
    timeline = Timeline(function, sizes=sizes)
    if len(timeline.ops) < 2:
        return
    costs = cpu_of(context.options).costs
    left = budget * sum(picoseconds(op, sizes, costs) for op in timeline.ops)
    if budget >= IN_LOOPS:
        left -= _in_loops(timeline, int(left), context, products=budget >= 1)
        timeline = Timeline(function, sizes=sizes)
    before = max(timeline.alive)
    search = _Search(timeline, left, costs, products=budget >= 1)
    chosen = search.run()
    lowest = min((choice.peak for choice in chosen), default=before)
    if (before - lowest) * LEAST_GAIN <= before:
        if chosen:
            context.log.refused(
                "computing again saves too little", function, peak_before=before, peak_then=lowest
            )
        return
    enough = next(k for k, choice in enumerate(chosen) if choice.peak <= lowest)
    chosen = chosen[: enough + 1]
    clones = _Writer(timeline, chosen).write()
    for choice in chosen:
        again = clones[choice]
        microseconds = choice.picoseconds // 1_000_000
        again.attributes[MARK] = f"{choice.bytes:,} bytes less are held, for {microseconds:,} us"
        context.log.did(
            "compute again",
            again,
            bytes=choice.bytes,
            peak_before=before,
            peak_then=choice.peak,
            kernels=len(choice.steps),
            microseconds=microseconds,
            of_all=search.all_picoseconds // 1_000_000,
        )


def _in_loops(timeline: Timeline, most: int, context: Context, *, products: bool) -> int:
    """The same for what loops keep for others; gives the picoseconds that it takes, at most `most`."""
    costs = cpu_of(context.options).costs
    done = recompute_in_loops(timeline, most, context.rewriter, costs, products=products)
    for each in done:
        microseconds = each.picoseconds // 1_000_000
        saved = each.peak_before - each.peak_then
        for op in each.kernels:
            op.attributes[MARK] = (
                f"with others: {saved:,} bytes less are held, for {microseconds:,} us"
            )
        context.log.did(
            "compute again in a loop",
            each.loop,
            peak_before=each.peak_before,
            peak_then=each.peak_then,
            kernels=len(each.kernels),
            microseconds=microseconds,
        )
    return sum(each.picoseconds for each in done)


@dataclass(frozen=True, slots=True, eq=False)
class _Choice:
    """A value that the operation `at` and those behind it use as it is computed again before `at`.

    `steps` are the operations that compute it, in order. `peak` is the most that is held then.
    """

    value: Value
    at: int
    steps: Sequence[Op]
    bytes: int
    picoseconds: int
    peak: int


@dataclass(slots=True)
class _Recipe:
    """What computes a value again: the operations, and the arrays that must be held for longer."""

    steps: dict[Op, None] = field(default_factory=dict[Op, None])
    reads: dict[Held, None] = field(default_factory=dict[Held, None])
    longer: dict[Held, None] = field(default_factory=dict[Held, None])


class _Search:
    """Chooses what to compute again, on the timeline alone. With `products` these may be repeated, too."""

    def __init__(self, timeline: Timeline, left: float, costs: CpuCosts, *, products: bool) -> None:
        self.timeline = timeline
        self.products = products
        self.times = [picoseconds(op, timeline.sample, costs) for op in timeline.ops]
        self.all_picoseconds = sum(self.times)
        self.left = left
        """Picoseconds that may be spent."""
        self.updated = {
            argument: timeline.number[value.op]
            for value, argument in updates_of(timeline.function).items()
            if value.op is not None
        }
        """The operations from which on arguments are no longer as they were given."""
        self.parts = {value: [held] for value, held in timeline.held.items()}
        """By value, each stretch of time in which it is held."""

    def run(self) -> list[_Choice]:
        """What is best to compute again, one after the other, until nothing helps."""
        chosen: list[_Choice] = []
        while len(chosen) < MOST_VALUES:
            choice = self._step()
            if choice is None:
                break
            chosen.append(choice)
        return chosen

    def _step(self) -> _Choice | None:
        """Close the gap that is best at the peak."""
        timeline = self.timeline
        peak = timeline.peak
        held_there = timeline.alive[peak]
        best: tuple[float, Held, _Recipe, int] | None = None
        for held, gap in self._gaps(peak, held_there // LEAST_PART):
            recipe = self._recipe(held, peak, gap[1])
            if recipe is None:
                continue
            cost = sum(self.times[timeline.number[op]] for op in recipe.steps)
            worth = held.bytes / max(1, cost)
            if cost > self.left or (best is not None and worth <= best[0]):
                continue
            if self._fits(held, recipe, gap[1], held_there):
                best = worth, held, recipe, cost
        if best is None:
            return None
        _, held, recipe, cost = best
        self.left -= cost
        gap = held.gap(peak)
        assert gap is not None
        steps = sorted(recipe.steps, key=timeline.number.__getitem__)
        self._close(held, recipe, *gap)
        return _Choice(held.value, gap[1], steps, held.bytes, cost, max(timeline.alive))

    def _gaps(self, peak: int, least: int) -> Iterator[tuple[Held, tuple[int, int]]]:
        """What could be computed again behind the peak, with its gap."""
        for parts in self.parts.values():
            for held in parts:
                if held.bytes > least and self._may_repeat(held.value.op):
                    gap = held.gap(peak)
                    if gap is not None:
                        yield held, gap

    def _may_repeat(self, op: Op | None) -> bool:
        if op is None or len(op.results) != 1:
            return False
        return is_cheap(op) or (self.products and is_product(op))

    def _recipe(self, held: Held, peak: int, at: int) -> _Recipe | None:
        """How to compute an array before the operation `at`; None if it takes too much."""
        recipe = _Recipe()
        assert held.value.op is not None
        pending = [held.value.op]
        while pending:
            op = pending.pop()
            if op in recipe.steps:
                continue
            recipe.steps[op] = None
            if len(recipe.steps) > MOST_STEPS:
                return None
            for operand in op.operands:
                value = origin(operand)
                if self.updated.get(value, at) < at:
                    return None
                found = self._part(value, at)
                if found is None:
                    continue
                if found.last >= at:
                    recipe.reads[found] = None
                elif found.last >= peak or found.bytes * SMALL <= held.bytes:
                    recipe.longer[found] = None
                elif value.op is not None and self._may_repeat(value.op):
                    pending.append(value.op)
                else:
                    return None
        large = [other.bytes for other in recipe.longer if other.bytes * SMALL > held.bytes]
        return None if sum(large) > held.bytes else recipe

    def _part(self, value: Value, at: int) -> Held | None:
        """The stretch in which an array was held last before `at`; None if it always is."""
        parts = self.parts.get(value)
        if parts is None:
            return None
        return max((part for part in parts if part.first <= at), key=lambda part: part.first)

    def _fits(self, held: Held, recipe: _Recipe, at: int, limit: int) -> bool:
        """Whether computing it again holds less than `limit` at any time."""
        on_the_way = sum(self._result_bytes(op) for op in recipe.steps) - held.bytes
        longer = sum(other.bytes for other in recipe.longer)
        return self.timeline.alive[at] + on_the_way + longer < limit

    def _result_bytes(self, op: Op) -> int:
        return sum(self.timeline.bytes(value) for value in op.results)

    def _close(self, held: Held, recipe: _Recipe, before: int, at: int) -> None:
        """Let go of an array after `before`, and hold it again from `at`."""
        timeline = self.timeline
        timeline.add(-held.bytes, before + 1, at)
        timeline.add(sum(self._result_bytes(op) for op in recipe.steps) - held.bytes, at, at + 1)
        for other in recipe.longer:
            timeline.add(other.bytes, other.last + 1, at + 1)
        for other in (*recipe.longer, *recipe.reads):
            if at not in other.uses:
                other.use(at)
        later = [use for use in held.uses if use >= at]
        held.uses = [use for use in held.uses if use < at]
        self.parts[held.value].append(Held(held.value, held.bytes, at, later))


class _Writer:
    """Puts the kernels that compute again into the function."""

    def __init__(self, timeline: Timeline, chosen: Sequence[_Choice]) -> None:
        self.timeline = timeline
        self.chosen = chosen
        self.now: dict[Value, list[tuple[int, Value]]] = {}
        """For each array the operations from which on it is another one, in order."""

    def write(self) -> dict[_Choice, Op]:
        """The kernels that compute the chosen values."""
        made: dict[_Choice, Op] = {}
        for at in sorted({choice.at for choice in self.chosen}):
            here = [choice for choice in self.chosen if choice.at == at]
            clones = self._repeat(at, {op for choice in here for op in choice.steps})
            for choice in here:
                assert choice.value.op is not None
                found = made[choice] = clones[choice.value.op]
                self.now.setdefault(choice.value, []).append((at, found.results[0]))
        for number, op in enumerate(self.timeline.ops):
            if not isinstance(op, array.Reshape):
                self._redirect(op, number)
        return made

    def _repeat(self, at: int, ops: set[Op]) -> dict[Op, Op]:
        """Copies of operations before the operation `at`."""
        before, made = self.timeline.ops[at], dict[Op, Op]()
        for op in sorted(ops, key=self.timeline.number.__getitem__):
            again = {old.results[0]: new.results[0] for old, new in made.items()}
            operands = [
                self._seen(
                    value, again.get(origin(value), self._current(origin(value), at)), before
                )
                for value in op.operands
            ]
            made[op] = clone(op, operands, [clone_block(region) for region in op.regions])
            made[op].attributes[MARK] = "for another value"
            assert before.parent is not None
            before.parent.insert(made[op], before)
        return made

    def _current(self, value: Value, at: int) -> Value:
        """The array that stands for `value` at an operation."""
        found = [new for since, new in self.now.get(value, ()) if since <= at]
        return found[-1] if found else value

    def _redirect(self, op: Op, number: int) -> None:
        current = [self._current(origin(value), number) for value in op.operands]
        if any(new is not origin(old) for old, new in zip(op.operands, current, strict=True)):
            pairs = zip(op.operands, current, strict=True)
            op.set_operands([self._seen(old, new, op) for old, new in pairs])

    def _seen(self, value: Value, base: Value, before: Op) -> Value:
        """`base` through the views through which `value` sees its array."""
        views: list[array.Reshape] = []
        seen = value
        while isinstance(seen.op, array.Reshape):
            views.append(seen.op)
            seen = seen.op.source
        if seen is base:
            return value
        for view in reversed(views):
            made = clone(view, [base])
            assert before.parent is not None
            before.parent.insert(made, before)
            base = made.results[0]
        return base
