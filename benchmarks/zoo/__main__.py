"""A zoo of real networks: exports them, and runs a folder of networks beside their own frameworks.

    python -m benchmarks zoo make FOLDER [--only 'bert*'] [--seconds 600]
    python -m benchmarks zoo run FOLDER [--only 'bert*.dynamo'] [--jobs 1] [--json FILE]

`make` exports with random weights, each network with inputs at three sizes; `run` compiles whatever is in
a folder and prints what is in, how well it agrees, and what it takes. Ends with 1 if numbers are wrong.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.zoo import making, running
from benchmarks.zoo.children import GIB, Limits

SOURCES = [making.WHEELS, "script", "dynamo", "pt2", making.INT8]
"""Where networks come from: wheels, and PyTorch's exporters, of which `pt2` makes no ONNX; `int8` quantises
what `script` made."""


def parsed(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks zoo", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    make = verbs.add_parser("make", help="export networks into a folder")
    make.add_argument("--seconds", type=float, default=1e9, help="begin none after this many")
    make.add_argument("--exporter", nargs="+", default=SOURCES[:3], choices=SOURCES)
    run = verbs.add_parser("run", help="run the networks of a folder")
    run.add_argument("--jobs", type=int, default=1, help="networks at a time")
    run.add_argument("--threads", type=int, default=2)
    run.add_argument("--rounds", type=int, default=3, help="turns of each; with 0 none is timed")
    run.add_argument("--memory", type=float, default=12, metavar="GIB", help="of each process")
    run.add_argument("--only-import", action="store_true", help="neither compile nor run")
    run.add_argument("--json", type=Path, metavar="FILE", help="write the rows as they come")
    for verb, limit in ((make, 150), (run, 120)):
        verb.add_argument("folder", type=Path)
        verb.add_argument("--only", default="*", metavar="PATTERN", help="names that fit it")
        verb.add_argument("--limit", type=float, default=limit, help="seconds for each step")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Make or run; gives the exit code."""
    options = parsed(arguments)
    if options.verb == "make":
        return making.make(
            options.folder, options.only, options.exporter, options.seconds, options.limit
        )
    limits = Limits(options.limit, int(options.memory * GIB))
    setting = running.Setting(
        making.python(), limits, options.threads, options.rounds, options.only_import
    )
    rows = running.run(options.folder, options.only, setting, options.jobs, options.json)
    print(running.summary(rows))
    return int(any(row.wrong for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
