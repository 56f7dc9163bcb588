"""The networks of the zoo by `dlc.from_torch`: how many are in, right, and have PyTorch's gradients.

    python -m benchmarks torch_suite [--only PATTERN] [--part static dynamic gradients] [--json FILE]

Each network of `benchmarks/zoo/networks`, with random weights, is compiled for the sizes of an example
(`static`), for sizes that each call chooses, at three of them (`dynamic`), and with gradients by all
parameters and inputs (`gradients`), and compared with PyTorch. An environment with PyTorch, torchvision and
transformers is made in the cache folder the first time; `--python` names one that is there. Nothing may be
wrong: the program ends with 3.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from benchmarks.contenders.environment import TORCH, python_with
from benchmarks.contenders.turns import ROOT

PACKAGES = ("torchvision==0.28.0", "transformers==5.23.0")
COMPILER = ("--editable", str(ROOT))
PARTS = ("static", "dynamic", "gradients")
VERDICTS = ("right", "wrong", "refused", "not exported", "failed", "no network")
"""What becomes of a network; `not exported` is what `torch.export` refuses, `refused` what dlc does, and
`no network` what its own package does."""
NUMBERS_DIFFER = 3
Row: TypeAlias = dict[str, object]


def rows_of(python: str, options: argparse.Namespace) -> Iterator[Row]:
    """A row for each part of each network, as soon as it is there."""
    limits = [str(options.seconds), str(options.limit)]
    program = [python, "-m", "benchmarks.torch_suite.measuring"]
    command = [*program, options.only, ",".join(options.part), *limits]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DLC_CACHE": ""}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        for line in process.stdout or ():
            yield json.loads(line)


def line(row: Row) -> str:
    """A row of the list."""
    error = row.get("error")
    figure = f"{error:9.1e}" if isinstance(error, float) else f"{'-':>9}"
    return f"{row['name']!s:28} {row['part']!s:10} {row['verdict']!s:13} {figure}  {row['why']!s}"


def summary(rows: Sequence[Row]) -> str:
    """How many of each part have become what, and half of the errors."""
    lines: list[str] = []
    for part in PARTS:
        own = [row for row in rows if row["part"] == part]
        counts = Counter(str(row["verdict"]) for row in own)
        errors = sorted(float(str(row["error"])) for row in own if row.get("error") is not None)
        told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
        half = f"; half of the errors are below {errors[len(errors) // 2]:.1e}" if errors else ""
        lines += [f"{part}: {len(own)} networks, {told}{half}"] if own else []
    return "\n".join(lines)


def main() -> int:
    """Measure and print; gives the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks torch_suite",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default="*", metavar="PATTERN", help="names that fit it")
    parser.add_argument("--part", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin none after this many")
    parser.add_argument("--limit", type=float, default=240, help="seconds for each")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as they come")
    parser.add_argument("--python", help="of an environment with all packages and dlc")
    options = parser.parse_args()
    python = options.python or python_with("torch_suite", TORCH, PACKAGES, COMPILER)
    rows: list[Row] = []
    for row in rows_of(python, options):
        print(line(row), flush=True)
        rows.append(row)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1))
    print(summary(rows))
    return NUMBERS_DIFFER if any(row["verdict"] == "wrong" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
