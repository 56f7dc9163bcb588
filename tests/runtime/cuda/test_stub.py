"""Every call of a GPU's driver goes through cuda-python as the driver wants it: on a stub, without a GPU.

The quick suite takes the cuda-python that is installed; `make test-all` also takes those that it puts into
`.venv-cuda`: the oldest that dlc runs with, and the first for CUDA 13.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.runtime.cuda.stub import library
from tests.runtime.cuda.stub.scenarios import SCENARIOS

pytest.importorskip("cuda.bindings.driver")

ROOT = Path(__file__).parents[3]
OTHERS = ROOT / ".venv-cuda"
SECONDS = 120
"""None takes more than some; one that waits for ever is ended."""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """In which the stub is the driver of a new process."""
    if library.compiler() is None:
        pytest.skip("there is no C compiler to build the stub of the driver with")
    folder = tmp_path_factory.mktemp("stub")
    library.build(folder)
    return {**os.environ, "LD_LIBRARY_PATH": str(folder), "DLC_CACHE": ""}


@pytest.mark.parametrize(
    "version", ["installed", *[pytest.param(v, marks=pytest.mark.long) for v in ("12.9", "13.0")]]
)
def test_every_call_is_accepted(environment: Mapping[str, str], version: str) -> None:
    packages = OTHERS / version
    if version != "installed" and not packages.exists():
        pytest.skip(f"make test-all puts cuda-bindings {version} into {packages}")
    path = str(ROOT) if version == "installed" else f"{packages}{os.pathsep}{ROOT}"
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.cuda.stub.scenarios"],
        env={**environment, "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    first, *passed = done.stdout.splitlines() or [""]
    assert passed == [scenario.__name__ for scenario in SCENARIOS], done.stdout + done.stderr
    assert done.returncode == 0
    assert done.stderr == ""
    assert version == "installed" or first.startswith(f"cuda-bindings {version}.")
