"""What starting costs: the shortest commands, and a call of a tiny model beside NumPy and onnxruntime.

    python -m benchmarks startup [--rounds 15] [--json]

The commands are fresh processes, measured from start to end, in turns. The tiny model is
`relu(x * w + b)` on 64 numbers; all must give the same before anything is timed. Each figure has its
best and its median, and what dlc promises where it does. Ends with 3 if a promise is not kept.
"""

from __future__ import annotations

import argparse
import compileall
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray

import dlc
from dlc.cli import main as command_line

SIZE = 64
BATCH = 200
"""Calls that are timed together: the clock itself costs a tenth of a microsecond."""

TEXT = f"""\
dlc 1
module Tiny {{
  param w: f32[{SIZE}] = normal(1.0)
  param b: f32[{SIZE}] = normal(1.0)
  export fn f(x: f32[{SIZE}] = 1) -> f32[{SIZE}] = relu(x * w + b)
}}
"""

SIZED = """\
dlc 1
dim N = 1..4096
dim M = 1..4096
export fn f(x: f32[N], y: f32[M]) -> f32[4, N // 4] =
  reshape(x, [4, N // 4]) + reshape(y, [4, N // 4])
"""
"""A model whose calls must meet two conditions: 4 divides N, and M is N."""

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Figure:
    """A time in `unit`; `promise` is the most that it may be, where dlc promises something."""

    name: str
    unit: str
    best: float
    median: float
    promise: float | None = None

    @property
    def line(self) -> str:
        """The figure as a row of the table."""
        kept = "" if self.promise is None or self.best <= self.promise else "  NOT KEPT"
        bar = "" if self.promise is None else f"  (promised {self.promise:g}){kept}"
        return f"{self.best:9.2f} {self.median:9.2f} {self.unit}  {self.name}{bar}"


def commands(folder: Path, rounds: int) -> list[Figure]:
    """The shortest commands, each a process of its own, in milliseconds."""
    start = "import sys; from dlc.cli import main; sys.exit(main({}))"
    run = ["run", str(folder / "tiny.dlc"), "--json"]
    programs: dict[str, tuple[str, float | None]] = {
        "python": ("pass", None),
        "python with numpy": ("import numpy", None),
        "dlc --version": (start.format(["--version"]), 150.0),
        "dlc run tiny.dlc": (start.format(run), 300.0),
    }
    taken: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds + 1):
        for name, (program, _) in programs.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
            taken[name].append((time.perf_counter() - began) * 1e3)
    return [
        Figure(name, "ms", min(times[1:]), statistics.median(times[1:]), programs[name][1])
        for name, times in taken.items()
    ]


def calls(model: dlc.Model, rounds: int) -> list[Figure]:
    """One call of the tiny model by each contender, in microseconds."""
    x = np.random.default_rng(0).standard_normal(SIZE).astype(np.float32)
    contenders = _contenders(model, x)
    _compare(contenders)
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds * 20):
        for name, call in contenders.items():
            began = time.perf_counter()
            for _ in range(BATCH):
                call()
            taken[name].append((time.perf_counter() - began) / BATCH * 1e6)
    return [
        Figure(
            f"a call by {name}",
            "us",
            min(times),
            statistics.median(times),
            10.0 if name == "dlc" else None,
        )
        for name, times in taken.items()
    ]


def conditions(rounds: int) -> list[Figure]:
    """What conditions of sizes cost a call that meets them, and one that does not, in microseconds."""
    with dlc.compile(text=SIZED) as model:
        point = model.entry_points["f"]
        x, y = np.ones(24, np.float32), np.ones(7, np.float32)

        def refused() -> None:
            try:
                point(x, y)
            except dlc.DlcError:
                return
            raise AssertionError("sizes that differ were taken")

        met = _each(lambda: point(x, x), rounds)
        over = [taken - min(met) for taken in _each(refused, rounds)]
    return [
        Figure("a call that meets conditions", "us", min(met), statistics.median(met)),
        Figure("a refusal beyond such a call", "us", min(over), statistics.median(over), 50.0),
    ]


def _each(call: Callable[[], object], rounds: int) -> list[float]:
    """Microseconds of one call, in each round."""
    taken: list[float] = []
    for _ in range(rounds * 20):
        began = time.perf_counter()
        for _ in range(BATCH // 10):
            call()
        taken.append((time.perf_counter() - began) / (BATCH // 10) * 1e6)
    return taken


def _contenders(model: dlc.Model, x: Array) -> Mapping[str, Callable[[], object]]:
    w, b = (np.asarray(model.weights[name], np.float32) for name in ("w", "b"))
    session = ort.InferenceSession(_onnx(w, b), providers=["CPUExecutionProvider"])
    point, given = model.entry_points["f"], {"x": x}
    out = np.empty(SIZE, np.float32)
    return {
        "dlc": lambda: point(x),
        "dlc with out=": lambda: point(x, out=out),
        "numpy": lambda: np.maximum(x * w + b, 0),
        "onnxruntime": lambda: session.run(None, given)[0],
    }


def _onnx(w: Array, b: Array) -> bytes:
    """The tiny model for onnxruntime."""
    shape = [onnx.helper.make_tensor_value_info(name, 1, [SIZE]) for name in ("x", "y")]
    nodes = [
        onnx.helper.make_node("Mul", ["x", "w"], ["xw"]),
        onnx.helper.make_node("Add", ["xw", "b"], ["sum"]),
        onnx.helper.make_node("Relu", ["sum"], ["y"]),
    ]
    weights = [onnx.numpy_helper.from_array(w, "w"), onnx.numpy_helper.from_array(b, "b")]
    graph = onnx.helper.make_graph(nodes, "tiny", shape[:1], shape[1:], weights)
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    made.ir_version = 10
    return made.SerializeToString()


def _compare(contenders: Mapping[str, Callable[[], object]]) -> None:
    expected = np.asarray(contenders["numpy"]())
    for name, call in contenders.items():
        np.testing.assert_allclose(np.asarray(call()), expected, rtol=1e-6, err_msg=name)


def measure(rounds: int) -> list[Figure]:
    """All figures, with the tiny model compiled afresh into a folder of its own."""
    # As pip installs it: a checkout may have been run with PYTHONDONTWRITEBYTECODE.
    compileall.compile_dir(str(Path(dlc.__file__).parent), quiet=2)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tiny.dlm").write_text(TEXT, encoding="utf-8")
        arguments = ["compile", str(folder / "tiny.dlm"), "--weights", "init:1"]
        assert command_line(arguments) == 0
        loading = time.perf_counter()
        with dlc.load(folder / "tiny.dlc") as model:
            model.f()
            loaded = (time.perf_counter() - loading) * 1e3
            load = Figure("loading tiny.dlc and its first call", "ms", loaded, loaded)
            tiny = calls(model, rounds)
        return [*commands(folder, rounds), load, *tiny, *conditions(rounds)]


def main(arguments: Sequence[str]) -> int:
    """Print the figures; gives 3 if a promise is not kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    figures = measure(options.rounds)
    if options.json:
        print(json.dumps([asdict(figure) for figure in figures]))
    else:
        print("     best    median")
        for figure in figures:
            print(figure.line)
    kept = all(figure.promise is None or figure.best <= figure.promise for figure in figures)
    return 0 if kept else 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
