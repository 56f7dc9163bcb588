"""The cost table of this machine measured again, beside the one that passes decide by.

    python -m benchmarks costs [NAME]... [--gpu] [--turns 7] [--json]
    python -m benchmarks costs --networks [NAME]... [--rounds 40] [--json]

Each row is a small model of one kernel on one thread, in caches unless it is about memory; the best of some
turns counts, without the time of an empty call. A ratio above 1 says that this machine is slower than the
table. The table is of no single machine, and rough: passes need the order of magnitude and what is dearer
than what. A row without a measured number is chosen. `--networks` tells how well estimates that are made of
these rows agree with the kernels of whole networks (`kernel_estimates`).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from benchmarks import engine, kernel_estimates
from benchmarks.gpu_contender_dlc import copy_rate, transfers
from dlc.driver.compile.host_target import newest_here
from dlc.driver.compile.settings import Settings
from dlc.driver.run.request import CompileRequest, make_model
from dlc.ir.types import F32
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.calling.results import Out
from dlc.runtime.cpu.threads import default_threads
from dlc.runtime.cuda.devices import driver_of
from dlc.runtime.gpu.entry import GpuEntryPoint
from dlc.target.cpu import HOST, CpuTarget
from dlc.target.gpu import GpuTarget
from dlc.target.table import Row, rows

LENGTH = 1 << 14
"""Elements of an array that the second-level cache keeps several times."""
THIS = CpuTarget.named(HOST)
LANES = THIS.lanes(F32)
ENOUGH_SECONDS = 0.02
"""A turn is so long, at least."""
TRANSFERRED = 64 << 20
"""Bytes of a large transfer."""
MILLISECOND = 1e9
"""In picoseconds."""
BARRIER_FACTOR = 2
"""The table has twice what a barrier takes where threads wait for each other."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A function of a model text, and how many of the row's units a call does."""

    function: str
    inputs: Mapping[str, str]
    """Types by name: `f32[4, 8]`."""
    result: str
    """Its type."""
    units: float
    matmul: str = "generated"
    conv: str = "auto"

    @property
    def text(self) -> str:
        arguments = ", ".join(f"{name}: {type}" for name, type in self.inputs.items())
        return f"dlc 1\nexport fn f({arguments}) -> {self.result} = {self.function}\n"


def vectors(function: str, units: float) -> Probe:
    """A formula of one vector."""
    return Probe(function, {"x": f"f32[{LENGTH}]"}, f"f32[{LENGTH}]", units)


def chained(steps: int) -> str:
    """A polynomial by Horner's rule: a multiplication and an addition in each step."""
    formula = "x"
    for _ in range(steps):
        formula = f"({formula}) * x + x"
    return formula


def products(m: int, k: int, n: int, units: float, matmul: str = "generated") -> Probe:
    """A product of two matrices."""
    types = {"x": f"f32[{m}, {k}]", "y": f"f32[{k}, {n}]"}
    return Probe("x @ y", types, f"f32[{m}, {n}]", units, matmul)


def attended(depth: int) -> Probe:
    """512 queries of 512 keys, heads of so many elements; a unit is a score."""
    types = dict.fromkeys("qkv", f"f32[512, {depth}]")
    return Probe("attention(q, k, v)", types, f"f32[512, {depth}]", 512 * 512)


def winograd(channels: int) -> Probe:
    """A convolution in Winograd's form; a unit is a place of a transformed tile."""
    types = {"x": f"f32[1, 112, 112, {channels}]", "w": f"f32[3, 3, {channels}, {channels}]"}
    places = 28 * 28 * 36
    return Probe("conv(x, w, padding=1)", types, types["x"], places, conv="winograd")


EMPTY = Probe("x + 1", {"x": "f32"}, "f32", 1)
NARROW = winograd(32)
SHORT = vectors("x + x", LENGTH / LANES)
PROBES: Mapping[str, Probe] = {
    "operation": vectors(chained(16), LENGTH / LANES),
    "load_byte": Probe("sum(x)", {"x": "f32[131072]"}, "f32", 4 * 131072),
    "division": vectors("x / (x + 2) / (x + 3) / (x + 5) / (x + 7)", LENGTH / LANES),
    "function": vectors("exp(x)", LENGTH / LANES),
    "product": products(384, 512, 768, 384 * 512 * 768),
    "blas_product": products(384, 512, 768, 384 * 512 * 768, "blas"),
    "blas_element": products(512, 2, 512, 512 * 512, "blas"),
    "attention_product": attended(128),
    "attention_exp": attended(64),
    "depthwise_product": Probe(
        "conv(x, w, padding=1, groups=64)",
        {"x": "f32[1, 56, 56, 64]", "w": "f32[3, 3, 1, 64]"},
        "f32[1, 56, 56, 64]",
        56 * 56 * 64 * 9,
    ),
    "winograd_element": winograd(64),
    "copied_byte": Probe(
        "concat([x, y], axis=1)",
        {"x": "f32[256, 192]", "y": "f32[256, 320]"},
        "f32[256, 512]",
        4 * 256 * 512,
    ),
    "updated_element": Probe(
        "update(x, at=[i, ..], v)",
        {"x": "f32[256, 512]", "v": "f32[512]", "i": "i64"},
        "f32[256, 512]",
        256 * 512,
    ),
    "scattered_element": Probe(
        'update(x, at=[i], v, mode="add")',
        {"x": "f32[4096, 64]", "i": "i64[4096]", "v": "f32[4096, 64]"},
        "f32[4096, 64]",
        2 * 4096 * 64,
    ),
    "scanned_element": Probe("cumsum(x)", {"x": "f32[32, 4096]"}, "f32[32, 4096]", 32 * 4096),
    "sorted_element": Probe("sort(x)", {"x": "f32[32, 1024]"}, "f32[32, 1024]", 32 * 1024 * 7),
    "nonzero_element": Probe("nonzero(x > 0).1", {"x": f"f32[{LENGTH}]"}, "i64", LENGTH),
    "kernel_product": products(100, 100, 100, 100**3),
    "memory_byte": Probe("sum(x)", {"x": f"f32[{1 << 26}]"}, "f32", 4 << 26),
}


def inputs_of(probe: Probe) -> list[NDArray[np.generic]]:
    """Arrays for a probe: floats of both signs, and places that are there."""
    random = np.random.default_rng(0)
    arrays: list[NDArray[np.generic]] = []
    for type in probe.inputs.values():
        dtype, _, sizes = type.partition("[")
        shape = tuple(int(size) for size in sizes.removesuffix("]").split(",") if size.strip())
        if dtype == "i64":
            arrays.append(random.integers(0, 256, shape, np.int64))
        else:
            arrays.append(np.asarray(random.standard_normal(shape, np.float32)))
    return arrays


def picoseconds(probe: Probe, turns: int) -> float:
    """How long a call takes on one thread, the best of some turns."""
    settings = Settings(matmul=probe.matmul, conv=probe.conv)
    model, _ = make_model(CompileRequest("probe.dlm", text=probe.text, settings=settings), 1)
    (entry,) = model.entry_points.values()
    arrays = inputs_of(probe)
    out = cast("Out", entry(*arrays))  # later calls write there: new memory comes page by page
    begin = time.perf_counter()
    entry(*arrays, out=out)
    calls = max(1, round(ENOUGH_SECONDS / (time.perf_counter() - begin)))
    best = float("inf")
    for _ in range(turns):
        begin = time.perf_counter()
        for _ in range(calls):
            entry(*arrays, out=out)
        best = min(best, (time.perf_counter() - begin) / calls)
    return best * 1e12


def measured(names: Sequence[str], turns: int) -> dict[str, float]:
    """What the named rows cost here, in their units; those that are chosen are left out."""
    empty = picoseconds(EMPTY, turns)
    spent: dict[str, float] = {}

    def per_unit(name: str) -> float:
        """Picoseconds of a call without an empty one, for each unit."""
        if name not in spent:
            probe = {**PROBES, "short": SHORT, "narrow": NARROW}[name]
            spent[name] = max(0.0, picoseconds(probe, turns) - empty) / probe.units
        return spent[name]

    def operation() -> float:
        return (per_unit("operation") - per_unit("short")) / 31

    def attention_product() -> float:
        return (per_unit("attention_product") - per_unit("attention_exp")) / 128

    found: dict[str, float] = {}
    for name in names:
        match name:
            case "operation":
                found[name] = operation()
            case "division":
                found[name] = (per_unit(name) - per_unit("short")) / 4 / operation()
            case "function":
                found[name] = (per_unit(name) - per_unit("short")) / operation()
            case "blas_element":
                found[name] = per_unit(name) - 2 * per_unit("blas_product")
            case "attention_product":
                found[name] = attention_product()
            case "attention_exp":
                found[name] = (per_unit(name) - 128 * attention_product()) * LANES
            case "winograd_element":
                # n channels to n: n² products and 2n elements.
                products = per_unit(name) - 2 * per_unit("narrow")
                found[name] = (2 * per_unit("narrow") - products) / 128
            case "barrier":
                found[name] = BARRIER_FACTOR * barrier_picoseconds()
            case _ if name in PROBES:
                found[name] = per_unit(name)
            case _:
                pass
    return found


def barrier_picoseconds() -> float:
    """A wave that two threads share, with the barrier behind it."""
    bench, threads = engine.Bench(), min(2, default_threads())
    wave = bench.wave(engine.MANY, engine.DEAR)
    return 1000 * bench.native(engine.looped(wave), threads, calls=20) / engine.LOOPS


def measured_on_gpu(names: Sequence[str]) -> dict[str, float]:
    """What the named rows cost on the first GPU; only what `--target auto` weighs is measured alone."""
    driver = driver_of("cuda")
    few, many = (_parts(count) for count in (1, TRANSFERRED // 4))
    upload = few["upload_ms"] * MILLISECOND
    found = {
        "launch": few["compute_ms"] * MILLISECOND,
        "transfer": upload,
        "transfer_byte": (many["upload_ms"] * MILLISECOND - upload) / TRANSFERRED,
        "memory_byte": 1000 / copy_rate(driver, TRANSFERRED),
    }
    return {name: found[name] for name in names if name in found}


def _parts(count: int) -> dict[str, float]:
    """The parts of a call that adds 1 to so many numbers of the host on the GPU, in milliseconds."""
    type = f"f32[{count}]"
    text = f"dlc 1\nexport fn f(x: {type}) -> {type} = x + 1\n"
    model, _ = make_model(CompileRequest("probe.dlm", text=text, settings=Settings(target="cuda")))
    (point,) = model.entry_points.values()
    assert isinstance(point, GpuEntryPoint)
    return transfers(point, [Tensor(np.zeros(count, np.float32))])


def line(row: Row, now: float | None) -> str:
    """A row of what is printed."""
    if now is None:
        return f"{row.name:18} {row.value:9,} {'-':>11} {'':6} {row.unit:11} {row.meaning}"
    ratio = now / row.value
    return f"{row.name:18} {row.value:9,} {now:11,.1f} {ratio:6.2f} {row.unit:11} {row.meaning}"


def main() -> None:
    if "--networks" in sys.argv:
        sys.argv.remove("--networks")
        kernel_estimates.main()
        return
    parser = argparse.ArgumentParser("python -m benchmarks costs", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", metavar="NAME", help="rows (default: all)")
    parser.add_argument("--gpu", action="store_true", help="the table of the first GPU")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    costs = GpuTarget.named(newest_here() or "").costs if options.gpu else THIS.costs
    table = {row.name: row for row in rows(costs)}
    names: list[str] = options.names or list(table)
    unknown = sorted({*names} - {*table})
    if unknown:
        parser.error(f"no cost is called {unknown[0]!r}; there are {', '.join(table)}")
    now = measured_on_gpu(names) if options.gpu else measured(names, options.turns)
    if options.json:
        print(json.dumps(now))
        return
    print(f"{'cost':18} {'stored':>9} {'measured':>11} {'ratio':>6} unit")
    for name in names:
        print(line(table[name], now.get(name)))


if __name__ == "__main__":
    main()
