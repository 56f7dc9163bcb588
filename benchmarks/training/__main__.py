"""Training steps side by side with PyTorch, eager and compiled, and JAX: in turns, after they agree.

    python -m benchmarks training [NAME]... [--threads 2] [--rounds 5] [--quick] [--json FILE]

All contenders begin with the same weights and the same batch. Before anything is timed, the losses of the
first two steps and the gradients of the first must agree (each network's own optimizer keeps its first
moment: that is the gradient, but for a factor). The peers come from an environment that is made in the
cache folder the first time. `--quick` makes everything so small that only the benchmark is tested.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.contenders.turns import TURN_SECONDS
from benchmarks.training.cases import QUICK_STEPS, STEPS
from benchmarks.training.steps import Outcome, measure


def table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes of one network as lines for people, ours first."""
    ours, *peers = outcomes
    lines = [f"{ours.network}, {ours.threads} thread{'s' if ours.threads > 1 else ''}"]
    for outcome in outcomes:
        facts = outcome.facts
        lines.append(
            f"  {outcome.contender:13} best {outcome.best:9.2f} ms  median {outcome.median:9.2f} ms"
            f"  ready {facts['ready_s']:6.2f} s  step {facts['step_bytes'] / 2**20:8.1f} MiB"
            f"  gradients {outcome.error:7.1e}"
        )
    if peers:
        best = ours.best / min(peer.best for peer in peers)
        median = ours.median / min(peer.median for peer in peers)
        lines.append(f"  dlc / the fastest peer: best {best:.2f}  median {median:.2f}")
    lines.append(
        f"  dlc: compile {ours.facts['compile_s']:.2f} s ({ours.facts['compile_cpu_s']:.2f} s of processor"
        f" time), alive at once {ours.facts['lower_bound_bytes'] / 2**20:.1f} MiB"
    )
    return "\n".join(lines)


def main() -> None:
    """Measure the networks that the command line names, all of them if it names none."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(STEPS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    given = parser.parse_args()
    cases = QUICK_STEPS if given.quick else STEPS
    rounds, seconds = (1, 0.0) if given.quick else (given.rounds, TURN_SECONDS)
    found: list[Outcome] = []
    for name in given.names or cases:
        outcomes = measure(name, cases[name], given.threads, rounds, seconds=seconds)
        print(table(outcomes), flush=True)
        found += outcomes
        if given.json:
            given.json.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
