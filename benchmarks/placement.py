"""How low buffers are placed: the public instances of MiniMalloc, one after the other.

    python -m benchmarks placement [NAME]... [--effort 1] [--json]

For each instance: the bytes in use at once, which no placement can go below; the height of best fit, of
what `dlc memory --instance` finds, and both over that bound; whether it fits the capacity for which the
instance was published; the seconds that this took, by the clock and of the processor.
Ends with 3 if the mean over the bound is above 1.08, or one is above 1.12.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from dlc.driver.report.instances import place_instance, read_instance
from dlc.planning.arena import find_overlap, height
from dlc.planning.arena.greedy import best_fit

FOLDER = Path(__file__).parent / "minimalloc"
MEAN, WORST = 1.08, 1.12
"""What is promised of heights over bounds."""


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured of one instance: heights, bound and capacity in bytes."""

    name: str
    buffers: int
    lower_bound: int
    best_fit: int
    height: int
    capacity: int
    seconds: float
    processor_seconds: float

    @property
    def ratio(self) -> float:
        """The height over the bound."""
        return self.height / self.lower_bound

    @property
    def line(self) -> str:
        """The row of the table."""
        fits = "yes" if self.height <= self.capacity else "no"
        return (
            f"{self.name:8} {self.buffers:7} {self.lower_bound:9,} {self.best_fit:9,} "
            f"{self.best_fit / self.lower_bound:6.3f} {self.height:9,} {self.ratio:6.3f} "
            f"{fits:>4} {self.seconds:7.1f} {self.processor_seconds:9.1f}"
        )


HEAD = (
    f"{'instance':8} {'buffers':>7} {'bound':>9} {'best fit':>9} {'/bound':>6} {'dlc':>9} "
    f"{'/bound':>6} {'fits':>4} {'seconds':>7} {'processor':>9}"
)


def instances(names: Sequence[str]) -> list[Path]:
    """The files of the instances with these names, or of all."""
    known = {path.name.partition(".")[0]: path for path in sorted(FOLDER.glob("*.csv"))}
    for name in names:
        if name not in known:
            sys.exit(f"no instance is called {name!r}; there are {', '.join(known)}")
    return [known[name] for name in names or known]


def measure(path: Path, effort: int) -> Row:
    """Place an instance, and look whether the placement is right."""
    buffers = list(read_instance(str(path)).values())
    start, processor = time.perf_counter(), time.process_time()
    placed = place_instance(str(path), effort)
    taken = time.perf_counter() - start, time.process_time() - processor
    offsets = [buffer.offset for buffer in placed.buffers]
    assert find_overlap(buffers, offsets) is None, path
    assert height(buffers, offsets) == placed.height, path
    name, capacity, _ = path.name.split(".")
    greedy = height(buffers, best_fit(buffers))
    return Row(name, len(buffers), placed.lower_bound, greedy, placed.height, int(capacity), *taken)


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """The last lines of the table."""
    ratios = [row.ratio for row in rows]
    fitting = sum(row.height <= row.capacity for row in rows)
    yield f"mean over the bound {fmean(ratios):.4f} (promised {MEAN}), worst {max(ratios):.4f} ({WORST})"
    yield f"{fitting} of {len(rows)} fit the capacity for which they were published"


def main() -> int:
    """Place the instances and print the table; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks placement")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--effort", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not options.json:
        print(HEAD, flush=True)
    rows: list[Row] = []
    for path in instances(options.names):
        rows.append(measure(path, options.effort))
        if not options.json:
            print(rows[-1].line, flush=True)
    if options.json:
        print(json.dumps([asdict(row) for row in rows]))
    else:
        print("\n".join(summary(rows)))
    ratios = [row.ratio for row in rows]
    return 3 if fmean(ratios) > MEAN or max(ratios) > WORST else 0


if __name__ == "__main__":
    sys.exit(main())
