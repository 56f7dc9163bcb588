"""The demonstration that `make demo` runs: one small model at every level, saved, and loaded again."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import dlc
from dlc.codegen.kernels import kernel_texts
from dlc.driver.compile.compile import Settings, lower
from dlc.driver.source.open import open_model
from dlc.text.ir.printer import print_module

MODEL = Path(__file__).parent / "poly.dlm"


def title(text: str) -> None:
    print(f"\n== {text} ".ljust(100, "="))


def levels() -> None:
    """The model at each level, from text to LLVM."""
    title("text")
    print(MODEL.read_text().rstrip())
    opened = open_model(MODEL)
    settings = Settings()
    for stage in ("graph", "kernel", "plan", "loop"):
        lower(opened, settings, stage)
        title(stage)
        print(print_module(opened.module).rstrip())
    title("llvm, the first kernel")
    print(next(iter(kernel_texts(opened.module).values())).rstrip())


def run() -> None:
    """The compiled model, and the same from the saved artifact."""
    title("compiled")
    start = time.perf_counter()
    model = dlc.compile(MODEL)
    print(f"compiled in {(time.perf_counter() - start) * 1e3:.0f} ms")
    for name in model.entry_points:
        print(f"{name}: {model.entry_points[name]()}")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "poly.dlc"
        model.save(path)
        start = time.perf_counter()
        again = dlc.load(path)
        taken = (time.perf_counter() - start) * 1e3
        print(f"saved {path.stat().st_size} bytes; loaded again in {taken:.1f} ms")
        print(f"y: {again.entry_points['y']()}")


if __name__ == "__main__":
    levels()
    run()
