"""The classic comparison: a product of two n x n matrices of f32, on the processor and on a GPU.

Both are the text in `on_device.dlm`, one word of it changed. `python examples/cpu_gpu.py 30000` is the
size of the classic, which takes 10.8 GB for the matrices alone. The GPU's time is that of the whole call;
how much of it are the copies there and back is told behind it.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import dlc
from dlc.errors import DlcError
from dlc.runtime.hetero.entry import HeteroEntryPoint
from dlc.runtime.system.available_memory import check_free

MODEL = Path(__file__).parent / "on_device.dlm"
WORDS = ("cpu", "cuda:0")
ROWS = 16
"""How many rows of the two products are compared."""
Matrix = NDArray[np.float32]


def elapsed(word: str, a: Matrix, b: Matrix, product: Matrix) -> tuple[float, str]:
    """Seconds that the product takes on a device, and what they consist of on a GPU.

    Raises DlcError where that is not to be had.
    """
    text = MODEL.read_text(encoding="utf-8").replace("on cpu", f"on {word}")
    with dlc.compile(text=text, settings={"n": len(a)}) as model:
        multiply = model["multiply"]
        start = time.perf_counter()
        if not isinstance(multiply, HeteroEntryPoint):
            multiply(a, b, out=product)
            return time.perf_counter() - start, ""
        parts = [ms / 1e3 for ms in multiply.timed(a, b, out=product)]
        seconds = time.perf_counter() - start
        return seconds, "; {:.3f} s there, {:.3f} s computing, {:.3f} s back".format(*parts)


def compare(n: int) -> list[str]:
    """Lines that tell how long the product takes on each device, or why it is not to be had.

    Raises Unsupported where the machine does not have the memory for three matrices.
    """
    check_free(f"a product of two {n} x {n} matrices", 3 * 4 * n * n)
    draw = np.random.default_rng(0)
    a, b = (draw.standard_normal((n, n), dtype=np.float32) for _ in range(2))
    product = np.zeros_like(a)
    lines: list[str] = []
    found: list[Matrix] = []
    for word in WORDS:
        try:
            seconds, parts = elapsed(word, a, b, product)
        except DlcError as error:
            lines.append(f"on {word:7} {error.diagnostics[0].message}")
            continue
        found.append(product[:ROWS].copy())
        lines.append(f"on {word:7} {seconds:.3f} s, {2 * n**3 / seconds / 1e9:,.1f} GFLOP/s{parts}")
    if len(found) == len(WORDS):
        apart = np.abs(found[0] - found[1]).max()
        lines.append(f"apart      {apart:.1e} at most, in the first rows")
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A product on the processor and on a GPU.")
    parser.add_argument("n", type=int, nargs="?", default=2000, help="rows and columns; 2000")
    try:
        print("\n".join(compare(parser.parse_args().n)))
    except DlcError as refused:
        raise SystemExit(str(refused)) from None
