"""The cost table of this machine measured again, beside the one that passes decide by.

    python -m benchmarks costs [NAME]... [--gpu] [--turns 7] [--json]
    python -m benchmarks costs --networks [NAME]... [--rounds 40] [--json]

`dlc tune` measures the same and keeps it. Each row is a small model of one kernel on one thread, in caches
unless it is about memory; the best of some turns counts, without the time of an empty call. A ratio above 1
says that this machine is slower than the table. The table is of no single machine, and rough: passes need
the order of magnitude and what is dearer than what. A row without a measured number is chosen. `--networks`
tells how well estimates that are made of these rows agree with the kernels of whole networks
(`kernel_estimates`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

import numpy as np

from benchmarks import kernel_estimates
from benchmarks.gpu.contender_dlc import copy_rate, transfers
from dlc.driver.compile.host_target import newest_here
from dlc.driver.compile.settings import Settings
from dlc.driver.run.request import CompileRequest, make_model
from dlc.driver.tune.measure import FULL, HEADER, MeasuredRow, host_rows, measured
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.cuda.devices import driver_of
from dlc.runtime.gpu.entry import GpuEntryPoint
from dlc.target.gpu import GpuTarget
from dlc.target.table import rows

TRANSFERRED = 64 << 20
"""Bytes of a large transfer."""
MILLISECOND = 1e9
"""In picoseconds."""


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
    """The parts of a call that adds 1 to `count` numbers of the host on the GPU, in milliseconds."""
    type = f"f32[{count}]"
    text = f"dlc 1\nexport fn f(x: {type}) -> {type} = x + 1\n"
    model, _ = make_model(CompileRequest("probe.dlm", text=text, settings=Settings(target="cuda")))
    (point,) = model.entry_points.values()
    assert isinstance(point, GpuEntryPoint)
    return transfers(point, [Tensor(np.zeros(count, np.float32))])


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
    gpu = GpuTarget.named(newest_here() or "")
    table = {row.name: row for row in rows(gpu.costs)} if options.gpu else host_rows()
    names: list[str] = options.names or list(table)
    unknown = sorted({*names} - {*table})
    if unknown:
        parser.error(f"no cost is called {unknown[0]!r}; there are {', '.join(table)}")
    effort = FULL._replace(turns=options.turns)
    now = measured_on_gpu(names) if options.gpu else measured(names, effort)
    if options.json:
        print(json.dumps(now))
        return
    print(HEADER)
    for name in names:
        print(MeasuredRow(table[name], now.get(name)))


if __name__ == "__main__":
    main()
