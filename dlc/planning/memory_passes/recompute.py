"""Rematerialization outside of loops: values that cost little are recomputed where the memory peak is.

The forward half of a training step keeps values for the backward half (gradient checkpointing, Chen et al.
2016). A value that is cheap to compute from others that are live anyway is freed after its last use before
the peak, and a copy of its kernel computes it before the next use, to the same bits. The search is greedy:
the gap over the peak that saves most bytes for its time is closed first, until nothing lowers the peak or
the time is spent. With much time, what loops keep for others is recomputed before (`recompute_in_loops`).
Sizes are the largest ones, in a step of training the batch that the text names. The pass comes after all
that merge equal values or fuse formulas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from dlc.dialects import array, func
from dlc.dialects.builtin import Module
from dlc.dialects.measured import measuring
from dlc.ir.clone import clone, clone_block
from dlc.ir.core import Op, Value
from dlc.ir.passes import Context, define_pass
from dlc.planning.liveness import Held, Timeline, updates_of
from dlc.planning.memory_passes.recompute_in_loops import recompute_in_loops
from dlc.planning.offset_assignment import cases_of
from dlc.target import cpu_of
from dlc.target.cpu_costs import CpuCosts
from dlc.target.estimates import is_cheap, is_product, picoseconds

MARK = "dlc.again"
"""The attribute of kernels that recompute a value: what that saves and costs, as text."""
MOST_STEPS = 5
"""The most kernels that recompute one value."""
IN_LOOPS = 0.1
"""The least budget for loops: a minimum cut has already chosen what their iterations keep."""
LEAST_PART = 256
"""Arrays below this fraction (1/n) of the peak are not worth a kernel."""
SMALL = 16
"""An operand that is smaller than the value by this factor is kept alive rather than recomputed."""
LEAST_GAIN = 32
"""The peak must fall by more than this fraction (1/n)."""
MOST_VALUES = 400
"""The most values that are recomputed in one function."""


@define_pass("recompute")
def recompute(module: Op, context: Context, *, budget: float | None = None) -> None:
    """Recompute values instead of keeping them, where that lowers the memory peak and costs little.

    `budget` is the time allowed, as a fraction of a call; the default is that of the compilation. From 1 on
    products are recomputed, too.
    """
    assert isinstance(module, Module)
    budget = context.options.recompute if budget is None else budget
    for function in list(module.body):
        if isinstance(function, func.Func) and not measuring(function):
            _recompute_in(function, context, budget)


def _recompute_in(function: func.Func, context: Context, budget: float) -> None:
    *_, sizes = cases_of(function, context.options.planned_batch)
    timeline = Timeline(function, sizes=sizes)
    if len(timeline.ops) < 2:
        return
    costs = cpu_of(context.options).costs
    left = budget * sum(picoseconds(op, sizes, costs) for op in timeline.ops)
    if budget >= IN_LOOPS:
        left -= _in_loops(timeline, int(left), context, products=budget >= 1)
        timeline = Timeline(function, sizes=sizes)
    peak_before = max(timeline.alive)
    search = _Search(timeline, left, costs, products=budget >= 1)
    choices = _up_to_lowest_peak(search.run())
    if not choices:
        return
    peak_after = choices[-1].peak
    if (peak_before - peak_after) * LEAST_GAIN <= peak_before:
        context.log.refused(
            "recomputation would lower the peak too little",
            function,
            peak_bytes_before=peak_before,
            peak_bytes_after=peak_after,
        )
        return
    clones = _Writer(timeline, choices).write()
    for choice in choices:
        kernel = clones[choice]
        microseconds = choice.picoseconds // 1_000_000
        kernel.attributes[MARK] = f"saves {choice.bytes:,} bytes, costs {microseconds:,} us"
        context.log.did(
            "recompute",
            kernel,
            bytes_saved=choice.bytes,
            peak_bytes_before=peak_before,
            peak_bytes_after=choice.peak,
            kernels=len(choice.steps),
            microseconds=microseconds,
            microseconds_of_all=search.all_picoseconds // 1_000_000,
        )


def _up_to_lowest_peak(choices: Sequence[_Choice]) -> Sequence[_Choice]:
    """The choices up to the first that reaches the lowest peak: later ones gain nothing."""
    lowest = min((choice.peak for choice in choices), default=0)
    for count, choice in enumerate(choices, 1):
        if choice.peak <= lowest:
            return choices[:count]
    return ()


def _in_loops(timeline: Timeline, most: int, context: Context, *, products: bool) -> int:
    """Recompute what loops keep for others, in at most `most` picoseconds; returns those that it takes."""
    costs = cpu_of(context.options).costs
    rebuilt_loops = recompute_in_loops(timeline, most, context.rewriter, costs, products=products)
    for rebuilt in rebuilt_loops:
        microseconds = rebuilt.picoseconds // 1_000_000
        saved = rebuilt.peak_before - rebuilt.peak_after
        for op in rebuilt.kernels:
            op.attributes[MARK] = f"with others: saves {saved:,} bytes, costs {microseconds:,} us"
        context.log.did(
            "recompute in a loop",
            rebuilt.loop,
            peak_bytes_before=rebuilt.peak_before,
            peak_bytes_after=rebuilt.peak_after,
            kernels=len(rebuilt.kernels),
            microseconds=microseconds,
        )
    return sum(rebuilt.picoseconds for rebuilt in rebuilt_loops)


@dataclass(frozen=True, slots=True, eq=False)
class _Choice:
    """A value to recompute before the operation `at`, for that operation and all later readers.

    `steps` are the operations that compute it, in order, `bytes` its size. They take `picoseconds`, and
    lower the peak to `peak` bytes.
    """

    value: Value
    at: int
    steps: Sequence[Op]
    bytes: int
    picoseconds: int
    peak: int


@dataclass(slots=True)
class _Recipe:
    """How to recompute a value: the operations, the lifetimes they read, and those that they extend."""

    steps: dict[Op, None] = field(default_factory=dict[Op, None])
    reads: dict[Held, None] = field(default_factory=dict[Held, None])
    extends: dict[Held, None] = field(default_factory=dict[Held, None])


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A gap over the peak: a value is freed after `last_use` and recomputed for `next_use`."""

    lifetime: Held
    last_use: int
    next_use: int
    recipe: _Recipe
    picoseconds: int

    @property
    def bytes_per_picosecond(self) -> float:
        """The bytes saved for the time that it takes."""
        return self.lifetime.bytes / max(1, self.picoseconds)


class _Search:
    """Greedy choice of the values to recompute, on the timeline alone.

    Operation k has two moments: 2 k, in which values are recomputed for it and what only they read is live,
    and 2 k + 1, in which it runs, and its results are live. With `products` products may be repeated, too.
    """

    def __init__(self, timeline: Timeline, left: float, costs: CpuCosts, *, products: bool) -> None:
        self.timeline = timeline
        self.products = products
        self.times = [picoseconds(op, timeline.sample, costs) for op in timeline.ops]
        self.all_picoseconds = sum(self.times)
        self.left = left
        """Picoseconds that may still be spent."""
        self.updated = {
            argument: timeline.number[value.op]
            for value, argument in updates_of(timeline.function).items()
            if value.op is not None
        }
        """The operation that overwrites each updated argument."""
        self.lifetimes = {
            value: [Held(value, held.bytes, 2 * held.first + 1, [2 * use + 1 for use in held.uses])]
            for value, held in timeline.held.items()
        }
        """The intervals in which each value is live, in moments, in order."""
        self.alive = self._alive()
        """The bytes live at each moment."""

    def _alive(self) -> list[int]:
        alive = [0] * (2 * len(self.timeline.ops))
        for k, op in enumerate(self.timeline.ops):
            alive[2 * k + 1] = self.timeline.inside(op)
        for lifetime in chain.from_iterable(self.lifetimes.values()):
            for moment in range(lifetime.first, lifetime.last + 1):
                alive[moment] += lifetime.bytes
        return alive

    def run(self) -> list[_Choice]:
        """The values to recompute, the best one first, until none lowers the memory at the peak."""
        choices: list[_Choice] = []
        while len(choices) < MOST_VALUES:
            # Of equal moments an operation's: at the one before it nothing may be recomputed yet.
            peak = max(range(len(self.alive)), key=lambda k: (self.alive[k], k % 2))
            candidates = self._candidates(peak)
            # The first of equals, as `max` takes it.
            best = max(candidates, key=lambda each: each.bytes_per_picosecond, default=None)
            if best is None:
                break
            choices.append(self._take(best))
        return choices

    def _take(self, candidate: _Candidate) -> _Choice:
        """Enter a candidate into the timeline."""
        self.left -= candidate.picoseconds
        self._close_gap(candidate)
        lifetime = candidate.lifetime
        return _Choice(
            lifetime.value,
            candidate.next_use // 2,
            sorted(candidate.recipe.steps, key=self.timeline.number.__getitem__),
            lifetime.bytes,
            candidate.picoseconds,
            max(self.alive),
        )

    def _candidates(self, peak: int) -> Iterator[_Candidate]:
        """The values not in use at the peak that can be recomputed after it, in the time that is left."""
        peak_bytes = self.alive[peak]
        for lifetime in chain.from_iterable(self.lifetimes.values()):
            if lifetime.bytes <= peak_bytes // LEAST_PART or not self._may_repeat(
                lifetime.value.op
            ):
                continue
            gap = lifetime.gap(peak)
            recipe = self._recipe(lifetime, peak, _before(gap[1])) if gap is not None else None
            if gap is None or recipe is None:
                continue
            time = sum(self.times[self.timeline.number[op]] for op in recipe.steps)
            if time <= self.left and self._fits(lifetime, recipe, _before(gap[1]), peak_bytes):
                yield _Candidate(lifetime, *gap, recipe, time)

    def _may_repeat(self, op: Op | None) -> bool:
        if op is None or len(op.results) != 1:
            return False
        return is_cheap(op) or (self.products and is_product(op))

    def _recipe(self, lifetime: Held, peak: int, at: int) -> _Recipe | None:
        """How to recompute a value at the moment `at`; None if that takes too much.

        An operand that is live then is read, one that was live at the peak or is small lives longer, and
        any other is recomputed in its turn.
        """
        recipe = _Recipe()
        assert lifetime.value.op is not None
        pending = [lifetime.value.op]
        while pending:
            op = pending.pop()
            if op in recipe.steps:
                continue
            recipe.steps[op] = None
            if len(recipe.steps) > MOST_STEPS:
                return None
            for operand in op.operands:
                source = self.timeline.origin(operand)
                if self.updated.get(source, at // 2) < at // 2:
                    return None
                live = self._lifetime_before(source, at)
                if live is None:
                    continue
                if live.last >= at:
                    recipe.reads[live] = None
                elif live.last >= peak or live.bytes * SMALL <= lifetime.bytes:
                    recipe.extends[live] = None
                elif source.op is not None and self._may_repeat(source.op):
                    pending.append(source.op)
                else:
                    return None
        large = [live.bytes for live in recipe.extends if live.bytes * SMALL > lifetime.bytes]
        return None if sum(large) > lifetime.bytes else recipe

    def _lifetime_before(self, value: Value, at: int) -> Held | None:
        """The last lifetime of a value that begins by `at`; None if it is always live."""
        lifetimes = self.lifetimes.get(value)
        if lifetimes is None:
            return None
        return max((each for each in lifetimes if each.first <= at), key=lambda each: each.first)

    def _fits(self, lifetime: Held, recipe: _Recipe, at: int, limit: int) -> bool:
        """Whether fewer than `limit` bytes are live while a value is recomputed."""
        intermediate = self._intermediate_bytes(lifetime, recipe)
        extended = sum(live.bytes for live in recipe.extends)
        return self.alive[at] + intermediate + extended < limit

    def _intermediate_bytes(self, lifetime: Held, recipe: _Recipe) -> int:
        """The bytes of all results on the way to a value, without its own."""
        results = [value for op in recipe.steps for value in op.results]
        return sum(map(self.timeline.bytes, results)) - lifetime.bytes

    def _close_gap(self, candidate: _Candidate) -> None:
        """End a lifetime at its last use before the gap, and begin another one behind it."""
        lifetime, recipe = candidate.lifetime, candidate.recipe
        at = _before(candidate.next_use)
        self._add(-lifetime.bytes, candidate.last_use + 1, at)
        self._add(self._intermediate_bytes(lifetime, recipe), at, at + 1)
        for live in recipe.extends:
            self._add(live.bytes, live.last + 1, at + 1)
        for live in (*recipe.extends, *recipe.reads):
            if at not in live.uses:
                live.use(at)
        later = [use for use in lifetime.uses if use >= at]
        lifetime.uses = [use for use in lifetime.uses if use < at]
        self.lifetimes[lifetime.value].append(Held(lifetime.value, lifetime.bytes, at, later))

    def _add(self, amount: int, first: int, end: int) -> None:
        """Add to the live bytes of the moments [`first`, `end`)."""
        for moment in range(first, end):
            self.alive[moment] += amount


def _before(moment: int) -> int:
    """The moment in which values are recomputed for the operation of a moment."""
    return moment - moment % 2


class _Writer:
    """Writes the kernels that recompute values into the function."""

    def __init__(self, timeline: Timeline, choices: Sequence[_Choice]) -> None:
        self.timeline = timeline
        self._origin = timeline.origin
        self.choices = choices
        self.replacements: dict[Value, list[tuple[int, Value]]] = {}
        """For each value its recomputed copies in order, with the operation from which each is read."""

    def write(self) -> dict[_Choice, Op]:
        """Write the kernels; returns the last one of each choice."""
        results: dict[_Choice, Op] = {}
        for at in sorted({choice.at for choice in self.choices}):
            due = [choice for choice in self.choices if choice.at == at]
            clones = self._repeat(at, {op for choice in due for op in choice.steps})
            for choice in due:
                assert choice.value.op is not None
                copy = results[choice] = clones[choice.value.op]
                self.replacements.setdefault(choice.value, []).append((at, copy.results[0]))
        for index, op in enumerate(self.timeline.ops):
            if not isinstance(op, array.Reshape):
                self._redirect(op, index)
        return results

    def _repeat(self, at: int, ops: set[Op]) -> dict[Op, Op]:
        """Copy operations to before the operation `at`."""
        user, copies = self.timeline.ops[at], dict[Op, Op]()
        for op in sorted(ops, key=self.timeline.number.__getitem__):
            copied = {old.results[0]: new.results[0] for old, new in copies.items()}
            operands = [
                self._through_views(
                    value,
                    copied.get(self._origin(value), self._current(self._origin(value), at)),
                    user,
                )
                for value in op.operands
            ]
            copies[op] = clone(op, operands, [clone_block(region) for region in op.regions])
            copies[op].attributes[MARK] = "an operand of another one"
            assert user.parent is not None
            user.parent.insert(copies[op], user)
        return copies

    def _current(self, value: Value, at: int) -> Value:
        """The copy of a value that the operation `at` reads; the value itself if there is none."""
        replacements = [new for since, new in self.replacements.get(value, ()) if since <= at]
        return replacements[-1] if replacements else value

    def _redirect(self, op: Op, index: int) -> None:
        current = [self._current(self._origin(value), index) for value in op.operands]
        if any(new is not self._origin(old) for old, new in zip(op.operands, current, strict=True)):
            pairs = zip(op.operands, current, strict=True)
            op.set_operands([self._through_views(old, new, op) for old, new in pairs])

    def _through_views(self, value: Value, base: Value, before: Op) -> Value:
        """`base` under the reshapes through which `value` views its array."""
        views: list[array.Reshape] = []
        source = value
        while isinstance(source.op, array.Reshape):
            views.append(source.op)
            source = source.op.source
        if source is base:
            return value
        for view in reversed(views):
            copy = clone(view, [base])
            assert before.parent is not None
            before.parent.insert(copy, before)
            base = copy.results[0]
        return base
