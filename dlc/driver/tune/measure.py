"""The rows of the table of costs, measured on one thread of this machine.

Each row is a small model of one kernel, in caches unless it is about memory; the best of some turns counts,
without the time of an empty call. Rows that are chosen, and not measured, are left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from dlc.driver.compile.cost_table import BUILT_IN, MOST_TIMES, USUAL
from dlc.driver.compile.settings import Settings
from dlc.driver.run.request import CompileRequest, make_model
from dlc.driver.tune.engine_calls import DEAR, LOOPS, MANY, EngineCalls, looped
from dlc.driver.tune.probes import CHAIN, EMPTY, NARROW, PROBES, SHORT, Probe
from dlc.ir.types import F32
from dlc.runtime.calling.results import Out
from dlc.runtime.cpu.threads import default_threads
from dlc.target.cpu import HOST, CpuTarget
from dlc.target.table import Row, rows

BARRIER_FACTOR = 2
"""The table has twice what a barrier takes where threads wait for each other."""
_BARRIER_TIMES = 10
_SHORT, _NARROW = "short", "narrow"
_ALL = {**PROBES, _SHORT: SHORT, _NARROW: NARROW}


class Effort(NamedTuple):
    """How often a probe is timed, and how many seconds each time, at least."""

    turns: int
    seconds: float


FULL, QUICK = Effort(7, 0.02), Effort(2, 0.004)


class MeasuredRow(NamedTuple):
    """A row of the built-in table of this machine, and what it costs; None where it is chosen.

    A cost that comes out of a difference may be nothing, as that of a time that other work has disturbed:
    such a row, or one beyond what a table may have, is not `usable` and stays as it is.
    """

    row: Row
    now: float | None

    @property
    def value(self) -> int:
        """What the table of this machine has."""
        return round(self.now) if self.now is not None and self.usable else round(self.row.value)

    @property
    def usable(self) -> bool:
        """Whether it was measured, and may be a row of a table."""
        most = MOST_TIMES * USUAL.get(self.row.name, 0)
        return self.now is not None and 0.5 < self.now <= most

    def __str__(self) -> str:
        name, stored, unit, meaning = self.row
        if self.now is None:
            return f"{name:18} {stored:9,} {'-':>11} {'':6} {unit:11} {meaning}"
        ratio = self.now / stored
        return f"{name:18} {stored:9,} {self.now:11,.1f} {ratio:6.2f} {unit:11} {meaning}"


HEADER = f"{'cost':18} {'stored':>9} {'measured':>11} {'ratio':>6} unit"


def host_rows() -> dict[str, Row]:
    """The rows of the built-in table of this machine, by name."""
    return {row.name: row for row in rows(CpuTarget.named(HOST).costs)}


def measure_rows(names: Iterable[str], effort: Effort) -> Iterator[MeasuredRow]:
    """The named rows of this machine, each as soon as it is measured."""
    table, measurement = host_rows(), Measurement(effort)
    for name in names:
        yield MeasuredRow(table[name], measurement.row(name))


def measured(names: Iterable[str], effort: Effort = FULL) -> dict[str, float]:
    """What the named rows cost here, in their units; those that are chosen are left out."""
    found = {each.row.name: each.now for each in measure_rows(names, effort)}
    return {name: now for name, now in found.items() if now is not None}


@dataclass(slots=True)
class Measurement:
    """Probes timed on one thread; each is timed once, though several rows may ask for it."""

    effort: Effort
    lanes: int = field(default_factory=lambda: CpuTarget.named(HOST).lanes(F32))
    _spent: dict[str, float] = field(default_factory=dict[str, float])
    _empty: float | None = None

    def row(self, name: str) -> float | None:
        """What a row costs, in its unit; None for one that is chosen."""
        match name:
            case "operation":
                return self._operation()
            case "division":
                divisions = self._per_unit(name) - self._per_unit(_SHORT)
                return self.lanes * divisions / 4 / self._operation()
            case "function":
                function = self._per_unit(name) - self._per_unit(_SHORT)
                return self.lanes * function / self._operation()
            case "blas_element":
                return self._per_unit(name) - 2 * self._per_unit("blas_product")
            case "attention_product":
                return self._attention_product()
            case "attention_exp":
                return (self._per_unit(name) - 128 * self._attention_product()) * self.lanes
            case "winograd_element":
                # n channels to n are n² products and 2n elements, here with n of 16 and 64.
                return (16 * self._per_unit(_NARROW) - self._per_unit(name)) / (16 * 32 - 128)
            case "barrier":
                return BARRIER_FACTOR * barrier_picoseconds()
            case _:
                return self._per_unit(name) if name in PROBES else None

    def _operation(self) -> float:
        """Of a register: those of the chain but one, which the short formula has, too."""
        element = (self._per_unit("operation") - self._per_unit(_SHORT)) / (2 * CHAIN - 1)
        return max(1.0, self.lanes * element)

    def _attention_product(self) -> float:
        return (self._per_unit("attention_product") - self._per_unit("attention_exp")) / 128

    def _per_unit(self, name: str) -> float:
        """Picoseconds of a call without an empty one, for each unit."""
        if self._empty is None:
            self._empty = picoseconds(EMPTY, self.effort)
        if name not in self._spent:
            probe = _ALL[name]
            self._spent[name] = (
                max(0.0, picoseconds(probe, self.effort) - self._empty) / probe.units
            )
        return self._spent[name]


def picoseconds(probe: Probe, effort: Effort) -> float:
    """How long a call takes on one thread, the best of some turns."""
    settings = Settings(matmul=probe.matmul, conv=probe.conv, costs=BUILT_IN)
    model, _ = make_model(CompileRequest("probe.dlm", text=probe.text, settings=settings), 1)
    with model:
        (entry,) = model.entry_points.values()
        arrays = probe.arrays()
        out = cast("Out", entry(*arrays))  # later calls write there: new memory comes page by page
        return 1e12 * _best(lambda: entry(*arrays, out=out), effort)


def _best(call: Callable[[], object], effort: Effort) -> float:
    """Seconds of a call, the best of some turns: processor time, which other work hardly lengthens."""
    begin = time.thread_time()
    call()
    calls = max(1, round(effort.seconds / max(time.thread_time() - begin, 1e-6)))
    best = float("inf")
    for _ in range(effort.turns):
        begin = time.thread_time()
        for _ in range(calls):
            call()
        best = min(best, (time.thread_time() - begin) / calls)
    return best


def barrier_picoseconds() -> float:
    """A wave that two threads share, with the barrier behind it.

    Processor time would count the waiting; so the best of many short times counts, in which both threads
    had a processor.
    """
    bench, threads = EngineCalls(), min(2, default_threads())
    waves = looped(bench.wave(MANY, DEAR))
    return 1000 * min(bench.native(waves, threads, calls=1) for _ in range(_BARRIER_TIMES)) / LOOPS
