"""The order with the lowest memory peak: candidates by list scheduling, the best improved by local search.

The order is then cut into waves. Tasks share a wave as long as that keeps the peak that they have one
after the other; where this gives too many waves, the peak may rise a little.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

from dlc.ir.native import Compiler, interpreted
from dlc.planning.arena.buffers import LOCAL_SEARCH_BYTES
from dlc.planning.arena.exact import Ints
from dlc.planning.scheduling.candidates import candidates
from dlc.planning.scheduling.moves import SearchState, improve
from dlc.planning.scheduling.tasks import Order, TaskGraph

STEPS_FOR_EACH, MOST_STEPS = 5_000, 1_500_000
"""Steps of the local search, per task and at most: some hundredths of a second."""
SLACK_FRACTIONS = (0, 64, 32, 16, 8, 4)
"""By which fraction (1/n; 0: not at all) waves may exceed the peak, tried until there are few enough."""
NEAR_FRACTION, FAR_FRACTION = 256, 64
"""The peak must fall by more than this fraction (1/n): near program order, and far from it."""
SEED = 1


@dataclass(frozen=True, slots=True)
class Schedule:
    """An order, `how` it was found, the tasks that begin a new wave, and the bytes live in each wave."""

    how: str
    order: Order
    cuts: frozenset[int]
    held: Sequence[int]

    @property
    def peak(self) -> int:
        """The most bytes live in a wave."""
        return max(self.held, default=0)


@dataclass(frozen=True, slots=True)
class Effort:
    """A multiple of the usual search steps, and the compiler of the search."""

    times: int
    compiler: Compiler


def best_order(
    graph: TaskGraph,
    most_waves: int,
    least: int,
    effort: int = 1,
    compiler: Compiler = interpreted,
) -> Schedule:
    """The schedule of lowest peak that the search finds with at most `most_waves` waves.

    Orders near program order come first. `least` is a lower bound on the peak in bytes, at which the search
    stops; `effort` multiplies its steps. The `compiler` turns the local search into machine code.
    """
    best = as_written(graph)
    for how, order in _orders(graph, least, Effort(effort, compiler)):
        schedule = _within_waves(graph, how, order, most_waves)
        fraction = NEAR_FRACTION if "as written" in how else FAR_FRACTION
        if schedule is not None and (best.peak - schedule.peak) * fraction > best.peak:
            best = schedule
        if (best.peak - least) * FAR_FRACTION <= best.peak:
            break
    return best


def _orders(graph: TaskGraph, least: int, effort: Effort) -> Iterator[tuple[str, Order]]:
    """Program order, then that improved, then the best other candidate, and that improved."""
    written, *others = candidates(graph)
    yield written
    yield f"{written[0]}, improved", _improved(graph, written[1], least, effort)
    how, order = min(others, key=lambda each: max(graph.sequential(each[1])[0]))
    yield how, order
    yield f"{how}, improved", _improved(graph, order, least, effort)


def _within_waves(graph: TaskGraph, how: str, order: Order, most_waves: int) -> Schedule | None:
    """The schedule of an order in at most `most_waves` waves; None if that needs too much memory."""
    held, allocated = graph.sequential(order)
    for fraction in SLACK_FRACTIONS:
        peak = max(held, default=0)
        cuts = _cuts(graph, order, held, allocated, peak + (peak // fraction if fraction else 0))
        waves = graph.waves(order, cuts)
        if max(waves, default=-1) < most_waves:
            return Schedule(how, order, cuts, graph.held(order, waves))
    return None


def as_written(graph: TaskGraph) -> Schedule:
    """Program order, with the longest waves that dependences allow."""
    order = range(len(graph.tasks))
    return Schedule("as written", order, frozenset(), graph.held(order, graph.waves(order)))


def _cuts(
    graph: TaskGraph, order: Order, held: Sequence[int], allocated: Sequence[int], limit: int
) -> frozenset[int]:
    """The tasks at which to cut waves, besides those that dependences force, to stay within `limit` bytes.

    With one task to a wave, `held` is the bytes live while each runs, and `allocated` those that it
    allocates.
    """
    cuts: set[int] = set()
    wave: set[int] = set()
    wave_bytes = 0
    for index, live, allocated_bytes in zip(order, held, allocated, strict=True):
        task = graph.tasks[index]
        starts_wave = task.alone or not wave.isdisjoint(task.before)
        if not starts_wave and wave_bytes + allocated_bytes > limit:
            cuts.add(index)
            starts_wave = True
        if starts_wave:
            wave, wave_bytes = {index}, live
        else:
            wave.add(index)
            wave_bytes += allocated_bytes
    return frozenset(cuts)


# Local search.


def _improved(graph: TaskGraph, order: Order, least: int, effort: Effort) -> Order:
    """An order improved by local search, which moves segments of it."""
    if sum(graph.bytes) >= LOCAL_SEARCH_BYTES:
        return order
    state = search_state(graph, order, least)
    steps = min(MOST_STEPS, STEPS_FOR_EACH * len(graph.tasks))
    effort.compiler(improve, SearchState)(state, effort.times * steps, SEED)
    return list(state.order)


def search_state(graph: TaskGraph, order: Order, least: int) -> SearchState:
    """The state of the local search at an order; `least` is a lower bound on the peak in bytes."""
    count, values = len(graph.tasks), len(graph.bytes)
    return SearchState(
        size=_ints(graph.bytes),
        inside=_ints(task.inside for task in graph.tasks),
        **_flat("reads", [task.reads for task in graph.tasks]),
        **_flat("makes", [task.makes for task in graph.tasks]),
        **_flat("over", [task.over for task in graph.tasks]),
        **_flat("before", graph.before),
        **_flat("after", graph.after),
        order=_ints(order),
        words=_ints([least, *[0] * 7]),
        trial=_zeros(count),
        position=_zeros(count),
        last_read=_zeros(values),
        slot=_zeros(values),
        last_use=_zeros(values),
    )


def _flat(name: str, lists: Sequence[Sequence[int]]) -> dict[str, Ints]:
    """The lists concatenated, and the index at which each begins."""
    starts = accumulate(map(len, lists), initial=0)
    return {name: _ints(chain(*lists)), f"{name}_from": _ints(starts)}


def _ints(numbers: Iterable[int]) -> Ints:
    return array("q", numbers)


def _zeros(count: int) -> Ints:
    return array("q", bytes(8 * count))
