"""`dlc probe`: what the inner values of a call are like, in figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from dlc.driver.run.outputs import JSON, seen_type
from dlc.driver.run.seen import Seen
from dlc.driver.run.watch import Watch
from dlc.driver.tables import Table
from dlc.errors import visible
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.system.counts import counted

BINS = 16
"""Bars of a histogram, of equal width from the least to the largest finite number."""
BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Statistics:
    """The finite numbers of a value: least, largest, mean, standard deviation; and how many are what.

    `histogram` counts them in bars of equal width from `min` to `max`. Without finite numbers the first
    four are None. Booleans are 0 and 1.
    """

    min: float | None
    max: float | None
    mean: float | None
    std: float | None
    zeros: int
    nan: int
    inf: int
    histogram: tuple[int, ...]


def statistics_of(value: Tensor) -> Statistics:
    """The statistics of all elements of a value, computed in f64."""
    numbers = np.asarray(value.values(), np.float64).reshape(-1)
    finite = numbers[np.isfinite(numbers)]
    nan = int(np.isnan(numbers).sum())
    zeros, inf = int((finite == 0).sum()), len(numbers) - len(finite) - nan
    if not len(finite):
        return Statistics(None, None, None, None, zeros, nan, inf, (0,) * BINS)
    least, largest = float(finite.min()), float(finite.max())
    scale = max(abs(least), abs(largest)) or 1.0  # squares of large numbers have no f64
    scaled = finite / scale
    counts, _ = np.histogram(scaled, BINS, (least / scale, largest / scale))
    mean, std = float(scaled.mean() * scale), float(scaled.std() * scale)
    return Statistics(least, largest, mean, std, zeros, nan, inf, tuple(counts.tolist()))


def probe_text(watch: Watch) -> str:
    """A row for each value in the order of the call, then the first NaN and the first infinity."""
    rows = tuple([_row(name, seen) for name, seen in watch.seen.items()])
    head = (
        "value",
        "type",
        "min",
        "max",
        "mean",
        "std",
        "zeros",
        "NaN",
        "inf",
        "histogram",
        "from",
    )
    lines = [Table(counted(len(rows), "value"), head, rows).text]
    for flaw, (name, step) in watch.first.items():
        steps = watch.loops_of(name)
        where = f" in step {_step(step, steps)}" if steps else ""
        place = watch.known.get(name, "")
        lines.append(f"the first {flaw.split()[-1]}: {visible(name)}{where}, {visible(place)}")
    return "\n".join(lines)


def _row(name: str, seen: Seen) -> tuple[str | int, ...]:
    found = statistics_of(seen.value)
    figures = [_short(x) for x in (found.min, found.max, found.mean, found.std)]
    counts = [found.zeros, found.nan, found.inf]
    source = "" if seen.source == "machine code" else seen.source
    return (visible(name), seen_type(seen), *figures, *counts, _bars(found.histogram), source)


def _short(number: float | None) -> str:
    return "" if number is None else f"{number:.4g}"


def _bars(counts: tuple[int, ...]) -> str:
    """A bar for each count; a count above 0 has one that can be seen, 0 none."""
    most = max(counts)
    top = len(BARS) - 1
    return "".join(BARS[-(-count * top // most)] if count else " " for count in counts)


def _step(number: int, loops: tuple[int, ...]) -> str:
    """The place of a step in its loops."""
    if len(loops) == 1:
        return str(number)
    return ", ".join(str(index) for index in np.unravel_index(number, loops))


def probe_data(entry: str, watch: Watch) -> JSON:
    """The same for programs (`docs/json.md`)."""
    return {
        "entry": entry,
        "values": {name: _data(name, seen, watch) for name, seen in watch.seen.items()},
        "first": {
            "nan" if flaw == "NaN" else "inf": {
                "value": name,
                "step": step if watch.loops_of(name) else None,
                "place": watch.known.get(name) or None,
            }
            for flaw, (name, step) in watch.first.items()
        },
    }


def _data(name: str, seen: Seen, watch: Watch) -> Mapping[str, object]:
    return {
        "dtype": seen.value.dtype,
        "shape": list(seen.value.shape),
        "loops": list(seen.loops),
        "source": seen.source,
        "place": watch.known.get(name) or None,
        **asdict(statistics_of(seen.value)),
    }
