"""How long a call takes to be refused whose sizes conflict, for networks in ONNX files.

    python -m benchmarks refused_calls FOLDER NAME ...

Each network `NAME.onnx` of a folder with `NAME.0.npz` is compiled, called once, and then called with other
sizes of its inputs, chosen at random, until 25 calls were refused: microseconds from the call to the error
of the first one, the median and the most of the others, each of sizes that no call had before, and of the
last sizes once more.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from dlc.driver.api import compile
from dlc.errors import CallError
from dlc.importers.onnx.reading import read_graph

REFUSED = 25
TRIES = 400
CHANGE = 7
"""Sizes become as much larger or smaller at most."""

Array = NDArray[np.generic]


def measure(file: Path) -> str:
    """The row of a network."""
    model = compile(file)
    (entry,) = model.entry_points.values()
    with np.load(file.with_suffix(".0.npz")) as stored:
        inputs: list[Array] = [stored[declared] for declared in stored.files]

    def called(given: Sequence[Array]) -> None:
        entry(*given)

    called(inputs)
    choose, times, last = random.Random(1), list[float](), inputs
    free = _free_axes(file)
    for _ in range(TRIES):
        others = [_changed(array, axes, choose) for array, axes in zip(inputs, free, strict=True)]
        taken = _refused_after(called, others)
        if taken is not None:
            times.append(taken)
            last = others
        if len(times) == REFUSED:
            break
    if len(times) < 2:
        return f"{file.stem:28} refuses none of {TRIES} calls"
    again = [_refused_after(called, last) or 0.0 for _ in range(100)]
    columns = times[0], median(times[1:]), max(times[1:]), median(again)
    return f"{file.stem:28}" + "".join([f"{1e6 * each:9.1f}" for each in columns])


def _free_axes(file: Path) -> list[list[int]]:
    """The axes of each input whose size is not a number in the file."""
    axes = [declared.axes for declared in read_graph(file).inputs]
    return [[k for k, axis in enumerate(each) if not isinstance(axis, int)] for each in axes]


def _changed(array: Array, axes: Sequence[int], choose: random.Random) -> Array:
    shape = list(array.shape)
    for axis in axes:
        shape[axis] = max(1, shape[axis] + choose.randint(-CHANGE, CHANGE))
    return np.zeros(shape, array.dtype)


def _refused_after(
    called: Callable[[Sequence[Array]], object], given: Sequence[Array]
) -> float | None:
    """The seconds until a call is refused; None if it is possible."""
    start = perf_counter()
    try:
        called(given)
    except CallError:
        return perf_counter() - start
    return None


if __name__ == "__main__":
    print(f"{'network':28}{'first':>9}{'others':>9}{'most':>9}{'again':>9}")
    for name in sys.argv[2:]:
        print(measure(Path(sys.argv[1], f"{name}.onnx")), flush=True)
