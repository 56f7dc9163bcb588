"""The rows of the cost table that describe whole kernels, fitted to the kernels of networks.

    python -m benchmarks cost_fit [NAME]... [--held NAME]... [--rounds 40] [--fixed ROW]...

Measures each kernel of the networks as `kernel_estimates` does, then lowers the mean error of the
estimates by changing one row after the other, by less and less (coordinate descent). An error is the
logarithm of estimated over measured, at most 1, so that a few kernels that the model does not describe
decide nothing. `--held` names networks that are only estimated, with the rows as they were and as fitted.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from benchmarks.kernel_estimates import CASES, Case, Found, measured, table
from dlc.target.cpu import HOST, CpuTarget
from dlc.target.cpu_costs import CpuCosts

FITTED = (
    *("kernel_product", "kernel_depthwise", "kernel_winograd", "kernel_operation", "kernel_step"),
    *("kernel_start", "strided_element", "near_byte", "cached_byte", "uncached_byte"),
)
STEPS = (1.5, 1.2, 1.1, 1.05)
"""The factors by which a row is changed."""


def error(rows: Sequence[Found], costs: CpuCosts) -> float:
    """The mean error of the estimates by a table."""
    errors = [abs(math.log(row.with_costs(costs).ratio)) for row in rows]
    return sum(min(each, 1.0) for each in errors) / len(errors)


def fitted(rows: Sequence[Found], costs: CpuCosts, names: Iterable[str]) -> CpuCosts:
    """The table with the named rows changed until no change makes the error smaller."""
    least = error(rows, costs)
    for step in STEPS:
        improved = True
        while improved:
            improved = False
            for changed in _changed(costs, names, step):
                if (now := error(rows, changed)) < least - 1e-5:
                    costs, least, improved = changed, now, True
                    break
    return costs


def _changed(costs: CpuCosts, names: Iterable[str], step: float) -> Iterator[CpuCosts]:
    """The tables with one row larger or smaller, by at least 1."""
    for name in names:
        value: int = getattr(costs, name)
        yield replace(costs, **{name: max(value + 1, round(value * step))})
        if value > 1:
            yield replace(costs, **{name: max(1, min(value - 1, round(value / step)))})


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks cost_fit", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks (default: those of it)")
    parser.add_argument("--held", action="append", default=[], metavar="NAME")
    parser.add_argument("--fixed", action="append", default=[], metavar="ROW")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    known = {case.name: case for case in CASES}
    cases = [known.get(name, Case(name)) for name in options.names] or list(CASES)
    rows = _kernels(cases, options.rounds)
    held = _kernels([known.get(name, Case(name)) for name in options.held], options.rounds)
    before = CpuTarget.named(HOST).costs
    after = fitted(rows, before, [name for name in FITTED if name not in options.fixed])
    for name in FITTED:
        print(f"{name:18} {getattr(before, name):>9,} {getattr(after, name):>9,}")
    for label, kernels in (("fitted", rows), ("held", held)):
        for when, costs in (("before", before), ("after", after)):
            print(f"\n{label}, {when}\n")
            print("\n".join(table([row.with_costs(costs) for row in kernels])))


def _kernels(cases: Iterable[Case], rounds: int) -> list[Found]:
    """The kernels of networks that take at least half a microsecond."""
    found = [row for case in cases for row in measured(case, rounds).kernels]
    return [row for row in found if row.measured >= 0.5]


if __name__ == "__main__":
    main()
