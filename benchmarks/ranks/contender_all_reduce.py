"""Compiled all-reduces in turns with mpi4py's, for `benchmarks.ranks`.

    mpiexec -n RANKS python -m benchmarks.ranks.contender_all_reduce ROUNDS BYTES...

A step calls compiled code once and has several sums: so has a call here, `SUMS`, each of the sum before.
The first rank prints a line of JSON for each size: its bytes, and the milliseconds of a sum, of every call
of ours and of theirs.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import dlc
from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.ranks.agreement import made_once

LEAST, MOST_SECONDS = 5, 0.2
SUMS = 8
TEXT = """\
module {{dlc.mesh=["data = {ranks}"]}} {{
  func @total {{dlc.inputs=["x"]}} (%0: f32[{count}]) {{
{sums}
    return %{last}
  }}
}}
"""
SUM = '    %{after} = comm.all_reduce %{before} {{mesh_axis="data", ranks={ranks}}}'


def compiled(count: int, comm: MPI.Intracomm) -> dlc.Model:
    """A model whose entry point `total` sums arrays of `count` elements."""

    def make() -> Artifact:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "total.dlir")
            ranks = comm.Get_size()
            sums = [SUM.format(after=k + 1, before=k, ranks=ranks) for k in range(SUMS)]
            text = TEXT.format(ranks=ranks, count=count, sums="\n".join(sums), last=SUMS)
            path.write_text(text, "utf-8")
            return make_artifact(CompileRequest(str(path), trust_ir=True)).artifact

    return dlc.Model(made_once(comm, make), threads=1, comm=comm)


def timed(comm: MPI.Intracomm, call: Callable[[], object], count: int) -> list[float]:
    """Milliseconds of a sum, of each of the calls, which all ranks begin together."""
    spent: list[float] = []
    for _ in range(count):
        comm.Barrier()
        begin = time.perf_counter()
        call()
        spent.append((time.perf_counter() - begin) * 1e3 / SUMS)
    return spent


def sum_repeatedly(comm: MPI.Intracomm, x: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """What the model computes, by mpi4py."""
    comm.Allreduce(x, out)
    for _ in range(SUMS - 1):
        comm.Allreduce(MPI.IN_PLACE, out)


def main(rounds: str, *sizes: str) -> None:
    """Measure each size."""
    comm = MPI.COMM_WORLD
    for size in map(int, sizes):
        model = compiled(size // 4, comm)
        x = np.full(size // 4, comm.Get_rank(), np.float32)
        ours, theirs = np.empty_like(x), np.empty_like(x)
        calls = (partial(model.total, x, out=ours), partial(sum_repeatedly, comm, x, theirs))
        once = SUMS * max(timed(comm, call, 3)[-1] for call in calls) / 1e3
        counts = comm.allgather(int(np.clip(MOST_SECONDS / once, LEAST, 200)))
        count = max(counts)
        assert np.array_equal(ours, theirs)
        spent: tuple[list[float], list[float]] = ([], [])
        for _ in range(int(rounds)):
            for call, times in zip(calls, spent, strict=True):
                times += timed(comm, call, count)
        if comm.Get_rank() == 0:
            print(json.dumps([size, *spent]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
