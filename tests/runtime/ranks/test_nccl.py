"""Ranks call NCCL as its header declares it: on a stub, without a GPU."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.contenders.turns import ranked
from dlc.errors import CallError
from dlc.runtime.ranks.nccl import Nccl, NcclAxis
from tests.runtime.cuda.stub import library

ROOT = Path(__file__).parents[3]
SECONDS = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stubs of the driver and of NCCL."""
    if library.compiler() is None:
        pytest.skip("there is no C compiler to build the stubs with")
    folder = tmp_path_factory.mktemp("stubs")
    library.build(folder)
    library.build(folder, "libnccl.so.2")
    return folder


@pytest.fixture
def environment(folder: Path, tmp_path: Path) -> Mapping[str, str]:
    """In which the stubs are the libraries of new processes."""
    pytest.importorskip("cuda.bindings.driver")
    pytest.importorskip("mpi4py")
    mine = {"LD_LIBRARY_PATH": str(folder), "DLC_CACHE": "", "TMPDIR": str(tmp_path)}
    return {**os.environ, **mine, "PYTHONPATH": str(ROOT)}


def ranks(environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ranked(2, "tests.runtime.cuda.stub.ranks"),
        env=dict(environment),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.mark.long
def test_ranks_with_a_gpu_each_exchange_arrays_by_nccl(environment: Mapping[str, str]) -> None:
    done = ranks(environment)
    # Two ranks may print at once, to one line.
    found = sorted(re.findall(r"rank \d is done", done.stdout))
    assert found == ["rank 0 is done", "rank 1 is done"], done.stderr
    assert done.returncode == 0


def test_what_nccl_refuses_is_told_in_its_words(folder: Path) -> None:
    library_of_stub = ctypes.CDLL(str(folder / "libnccl.so.2"))
    with pytest.raises(CallError, match="NCCL refuses ncclCommInitRank: invalid argument") as told:
        NcclAxis(Nccl(library_of_stub), 5, 2, lambda own: own)
    assert told.value.diagnostics[0].code == "D0818"
