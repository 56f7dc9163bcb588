"""Calls artifacts under valgrind: `valgrind ... python -m tests.runtime.cpu.valgrind_runs FOLDER`.

`prepare` puts artifacts and their inputs into a folder, compiled for processors that valgrind knows. The
name of each is written to stderr before it is called, where valgrind writes what it finds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.model import load

STARTED = "-- "
"""What stands before a name."""


def call(folder: Path) -> None:
    """Load and call one artifact with its inputs."""
    with np.load(folder / "inputs.npz") as inputs, load(folder / "model.dlc", threads=1) as model:
        dtypes = [item.dtype for item in model.main.inputs]
        arrays = [np.array(inputs[f"arr_{number}"]) for number in range(len(dtypes))]
        values = [Tensor.from_bits(bits, dtype) for bits, dtype in zip(arrays, dtypes, strict=True)]
        model.main(*values)


def found_in(log: str) -> Sequence[str]:
    """The names of what valgrind complains about in code that has no symbols: compiled models."""
    found: list[str] = []
    name, lines = "before the first", log.split("\n")
    for line, following in pairwise(lines):
        if line.startswith(STARTED):
            name = line.removeprefix(STARTED)
        if following.endswith(": ???") and "   at 0x" in following:
            found.append(f"{name}: {line.partition('== ')[2]}")
    return found


def main(folder: str) -> None:
    for path in sorted(Path(folder).iterdir()):
        print(STARTED + path.name, file=sys.stderr, flush=True)
        call(path)


if __name__ == "__main__":
    main(sys.argv[1])
