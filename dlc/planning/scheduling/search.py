"""The order with the lowest peak: candidates, the best of them improved, and then put into waves.

Which chores share a wave comes last. They are put together as far as that does not hold more than the peak
that they have one after the other; where this makes too many waves, as far as it holds little more.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

from dlc.ir.native import Compiler, interpreted
from dlc.planning.arena.exact import Ints
from dlc.planning.scheduling.candidates import candidates
from dlc.planning.scheduling.moves import Line, improve
from dlc.planning.scheduling.tasks import Chores, Order

STEPS_FOR_EACH, MOST_STEPS = 5_000, 1_500_000
"""Steps of the local search, for each chore and altogether at most: some hundredths of a second."""
ALLOWANCES = (0, 64, 32, 16, 8, 4)
"""By which part waves may hold more than the peak, as far as there are too many otherwise."""
NEARBY, FAR = 256, 64
"""By which part an order must hold less, near what is written and further away."""
MAX_TOTAL = 1 << 43
"""The values sum up to less."""
SEED = 1


@dataclass(frozen=True, slots=True)
class Found:
    """An order, how it was found, the chores that begin a wave in any case, and what each wave holds."""

    how: str
    order: Order
    cuts: frozenset[int]
    held: Sequence[int]

    @property
    def peak(self) -> int:
        """The most that a wave holds."""
        return max(self.held, default=0)


@dataclass(frozen=True, slots=True)
class Effort:
    """How many times as long as usual to search, and what makes that quick."""

    times: int
    compiler: Compiler


def best_order(
    chores: Chores,
    most_waves: int,
    least: int,
    effort: int = 1,
    compiler: Compiler = interpreted,
) -> Found:
    """The order with the lowest peak that was found, in at most so many waves.

    What is near the written order is tried first. No order holds less than `least`; more `effort` lets it
    search longer. The `compiler` makes the search quick.
    """
    best = as_written(chores)
    for how, order in _orders(chores, least, Effort(effort, compiler)):
        tried = _quick_enough(chores, how, order, most_waves)
        worthwhile = NEARBY if "as written" in how else FAR
        if tried is not None and (best.peak - tried.peak) * worthwhile > best.peak:
            best = tried
        if (best.peak - least) * FAR <= best.peak:
            break
    return best


def _orders(chores: Chores, least: int, effort: Effort) -> Iterator[tuple[str, Order]]:
    """What is written, then that improved, then the best of what else there is, and that improved."""
    written, *others = candidates(chores)
    yield written
    yield f"{written[0]}, improved", _improved(chores, written[1], least, effort)
    how, order = min(others, key=lambda each: max(chores.one_by_one(each[1])[0]))
    yield how, order
    yield f"{how}, improved", _improved(chores, order, least, effort)


def _quick_enough(chores: Chores, how: str, order: Order, most_waves: int) -> Found | None:
    """An order in so few waves, if there is a way."""
    held, taken = chores.one_by_one(order)
    for part in ALLOWANCES:
        most = max(held, default=0)
        cuts = _cuts(chores, order, held, taken, most + (most // part if part else 0))
        waves = chores.waves(order, cuts)
        if max(waves, default=-1) < most_waves:
            return Found(how, order, cuts, chores.held(order, waves))
    return None


def as_written(chores: Chores) -> Found:
    """The order in which the work is written, with waves as long as they can be."""
    order = range(len(chores.all))
    return Found("as written", order, frozenset(), chores.held(order, chores.waves(order)))


def _cuts(
    chores: Chores, order: Order, held: Sequence[int], taken: Sequence[int], most: int
) -> frozenset[int]:
    """The chores that begin a wave of an order, beside those that must, so that waves hold at most `most`.

    `held` is what each chore finds if all run one after the other, `taken` what it takes anew.
    """
    cuts: set[int] = set()
    wave: set[int] = set()
    here = 0
    for number, alone, more in zip(order, held, taken, strict=True):
        chore = chores.all[number]
        follows = chore.alone or not wave.isdisjoint(chore.before)
        if not follows and here + more > most:
            cuts.add(number)
            follows = True
        if follows:
            wave, here = {number}, alone
        else:
            wave.add(number)
            here += more
    return frozenset(cuts)


# Local search.


def _improved(chores: Chores, order: Order, least: int, effort: Effort) -> Order:
    """An order with stretches of it moved."""
    if sum(chores.bytes) >= MAX_TOTAL:
        return order
    line = line_of(chores, order, least)
    steps = min(MOST_STEPS, STEPS_FOR_EACH * len(chores.all))
    effort.compiler(improve, Line)(line, effort.times * steps, SEED)
    return list(line.order)


def line_of(chores: Chores, order: Order, least: int) -> Line:
    """The tables of the local search for an order; no order holds less than `least`."""
    count, values = len(chores.all), len(chores.bytes)
    return Line(
        size=_ints(chores.bytes),
        inside=_ints(chore.inside for chore in chores.all),
        **_flat("reads", [chore.reads for chore in chores.all]),
        **_flat("makes", [chore.makes for chore in chores.all]),
        **_flat("over", [chore.over for chore in chores.all]),
        **_flat("before", chores.before),
        **_flat("after", chores.after),
        order=_ints(order),
        words=_ints([least, *[0] * 7]),
        trial=_zeros(count),
        place=_zeros(count),
        last=_zeros(values),
        home=_zeros(values),
        until=_zeros(values),
    )


def _flat(name: str, lists: Sequence[Sequence[int]]) -> dict[str, Ints]:
    """Lists one after the other, and where each begins."""
    starts = accumulate(map(len, lists), initial=0)
    return {name: _ints(chain(*lists)), f"{name}_from": _ints(starts)}


def _ints(numbers: Iterable[int]) -> Ints:
    return array("q", numbers)


def _zeros(count: int) -> Ints:
    return array("q", bytes(8 * count))
