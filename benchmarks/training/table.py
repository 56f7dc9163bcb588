"""The classic table of training: six networks, images, tokens or samples per second, and the deviation.

    python -m benchmarks training_table [NAME]... [--threads 2] [--rounds 5] [--without PEER]... [--quick]
        [--json FILE]

A figure is the mean of at least five runs ± their standard deviation, the networks and batches are those of
`benchmarks/training/cases.py`, the contenders and how they take turns those of `benchmarks training`. A
peer that takes too long to compile and make its first steps has no figure.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from benchmarks.training.cases import QUICK_TABLE, TABLE, Case
from benchmarks.training.steps import PEERS, Outcome, measure

LEAST_RUNS = 5
RUN_SECONDS = 2.0
PATIENCE = 120.0
"""Seconds in which a peer has to be compiled and to have made two steps."""
TOO_SLOW = f"not ready in {PATIENCE:.0f} s"


def speed(case: Case, outcome: Outcome) -> tuple[float, float]:
    """Images, tokens or samples per second: the mean of the runs, and their standard deviation."""
    runs = [case.count * len(turn) / (sum(turn) / 1e3) for turn in outcome.turns]
    return float(np.mean(runs)), float(np.std(runs, ddof=1)) if len(runs) > 1 else 0.0


def row(network: str, case: Case, outcomes: Sequence[Outcome]) -> str:
    """One line of the table, in Markdown."""
    found = {outcome.contender: speed(case, outcome) for outcome in outcomes}
    cells = [
        f"{found[name][0]:,.1f} ± {found[name][1]:,.1f}" if name in found else TOO_SLOW
        for name in ("dlc", *PEERS)
    ]
    return f"| {network}, batch of {case.count} {case.unit} | {' | '.join(cells)} |"


def main() -> None:
    """Measure the networks that the command line names, all of them if it names none."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(TABLE))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=LEAST_RUNS, help="at least 5")
    parser.add_argument("--without", action="append", default=[], metavar="PEER", choices=PEERS)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    given = parser.parse_args()
    cases = QUICK_TABLE if given.quick else TABLE
    rounds = 1 if given.quick else max(given.rounds, LEAST_RUNS)
    seconds = 0.0 if given.quick else RUN_SECONDS
    found: list[Outcome] = []
    print("| network, per second | dlc | torch eager | torch.compile | jax |")
    print("|---|---|---|---|---|")
    for name in given.names or cases:
        outcomes = measure(
            name,
            cases[name],
            given.threads,
            rounds,
            contenders=["dlc", *(peer for peer in PEERS if peer not in given.without)],
            seconds=seconds,
            patience=PATIENCE,
        )
        print(row(name, cases[name], outcomes), flush=True)
        found += outcomes
        if given.json:
            given.json.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
