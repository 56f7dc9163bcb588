"""How far networks in bf16 are from those of PyTorch and JAX: the contenders of a GPU, on a processor.

    python -m benchmarks gpu_agreement [NAME]... [--precision bf16|f32] [--patience 600] [--quick] [--json]

Each network is called on one example and trained for two steps, on the same weights and arrays, as
`python3 -m benchmarks.gpu` has them compared before it measures. How far two contenders are apart is the
norm of the difference by the norm: of a result, of the worse of two losses, of the gradient of the weight
where that is largest. The peers come from an environment that is made in the cache folder the first time;
one that is not ready after `--patience` seconds is left out. The exit code is 1 where ours are further
from a peer than is allowed on a GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

from benchmarks.contenders.environment import TRAINING, python_with
from benchmarks.contenders.turns import NotReady
from benchmarks.gpu.__main__ import Contender, allowed, furthest, write_case
from benchmarks.gpu.case import Array, GpuCase, Kind, Precision
from benchmarks.gpu.cases import CALLED, NETWORKS, cases

OURS = "dlc"
CONTENDERS = (OURS, "torch eager", "jax")
PAIRS = tuple(combinations(CONTENDERS, 2))
KINDS: tuple[Kind, ...] = ("inference", "training")

Results = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far two and two are apart in one part of what a network gives; None for who was not ready."""

    network: str
    part: str
    apart: Mapping[str, float | None]
    limit: float

    @property
    def is_right(self) -> bool:
        """Whether ours are as near to the peers as they have to be on a GPU."""
        ours = [self.apart[_title(pair)] for pair in PAIRS if OURS in pair]
        return all(distance is None or distance <= self.limit for distance in ours)


def compare(case: GpuCase, python: str, patience: float) -> list[Agreement]:
    """The agreement of all contenders about one case, which they compute one after the other."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_case(case, folder)
        found = {name: _results(name, case, folder, python, patience) for name in CONTENDERS}
    there = {name: results for name, results in found.items() if results is not None}
    limit = allowed(case, [results for name, results in there.items() if name != OURS])
    return [
        Agreement(case.name, part, _distances(part, there), limit)
        for part in dict.fromkeys(map(part_of, there[OURS]))
    ]


def _results(
    name: str, case: GpuCase, folder: Path, python: str, patience: float
) -> Results | None:
    """What a contender finds; None for a peer that is not ready in time."""
    mine = name == OURS
    try:
        with Contender(
            name,
            case,
            folder,
            None if mine else patience,
            python=sys.executable if mine else python,
            device="cpu",
        ) as one:
            return one.results()
    except NotReady:
        return None


def part_of(name: str) -> str:
    """Which part an array belongs to; a first moment is a gradient, but for a factor."""
    return {"result": "result", "loss": "losses", "second_loss": "losses"}.get(name, "gradients")


def _distances(part: str, found: Mapping[str, Results]) -> dict[str, float | None]:
    """Between each two, by their names."""
    parts = {
        name: {key: array for key, array in results.items() if part_of(key) == part}
        for name, results in found.items()
    }
    return {
        _title(pair): furthest(parts[pair[0]], parts[pair[1]]) if parts.keys() >= {*pair} else None
        for pair in PAIRS
    }


def _title(pair: tuple[str, str]) -> str:
    return " and ".join(pair)


def line(row: Agreement) -> str:
    """A row of the table."""
    cells = [f"{each:21.1e}" if each is not None else f"{'-':>21}" for each in row.apart.values()]
    wrong = "" if row.is_right else "  WRONG"
    return f"{row.network:9} {row.part:9} {' '.join(cells)} {row.limit:8.1e}{wrong}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the networks that the command line names, all of them if it names none."""
    known = (*NETWORKS, *CALLED)
    parser = argparse.ArgumentParser(
        "python -m benchmarks gpu_agreement", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    parser.add_argument("--precision", choices=("bf16", "f32"), default="bf16")
    parser.add_argument("--patience", type=float, default=600, help="seconds that a peer may take")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try the benchmark")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    unknown = sorted({*given.names} - {*known})
    if unknown:
        parser.error(f"no network is called {unknown[0]!r}; there are {', '.join(known)}")
    precision: Precision = given.precision
    python = python_with("training", *TRAINING)
    if not given.json:
        titles = " ".join([f"{_title(pair):>21}" for pair in PAIRS])
        print(f"{'network':9} {'part':9} {titles} {'allowed':>8}", flush=True)
    is_right = True
    for name in given.names or known:
        for kind in KINDS:
            for case in cases(kind, precision, quick=given.quick):
                if case.name == name:
                    rows = compare(case, python, given.patience)
                    is_right &= all(row.is_right for row in rows)
                    shown = [json.dumps(asdict(row)) if given.json else line(row) for row in rows]
                    print("\n".join(shown), flush=True)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
