"""Every call of a GPU's driver goes through cuda-bindings as the driver wants it: on a stub, without a GPU.

The versions are the one that is installed, and those that `make test` puts into `.venv-cuda`: the oldest
that dlc runs with, and the first for CUDA 13.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from supply_chain.lock import CUDA, read_lock
from tests.runtime.cuda.stub import library
from tests.runtime.cuda.stub.scenarios import SCENARIOS

pytest.importorskip("cuda.bindings.driver")

ROOT = Path(__file__).parents[3]
OTHERS = ROOT / ".venv-cuda"
SECONDS = 240
"""Each version takes some; one that waits for ever is ended."""


def other_versions() -> dict[Path, str]:
    """The folder of each further version, as the locks name it."""
    found: dict[Path, str] = {}
    for lock in CUDA:
        (pin,) = read_lock(lock.read_text("utf-8")).values()
        found[OTHERS / lock.stem.rpartition("-")[2]] = pin.version
    return found


def test_every_call_is_accepted_through_each_version(tmp_path: Path) -> None:
    if library.compiler() is None:
        pytest.skip("there is no C compiler to build the stub of the driver with")
    library.build(tmp_path)
    known = other_versions()
    others = {folder: name for folder, name in known.items() if folder.exists()}
    environment = {"LD_LIBRARY_PATH": str(tmp_path), "DLC_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.cuda.stub.scenarios", "", *map(str, others)],
        env={**os.environ, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        line
        for name in (version("cuda-bindings"), *others.values())
        for line in (f"cuda-bindings {name}", *(scenario.__name__ for scenario in SCENARIOS))
    ]
    if missing := known.keys() - others.keys():
        pytest.skip(f"the others passed; `make test` installs {', '.join(map(str, missing))}")
