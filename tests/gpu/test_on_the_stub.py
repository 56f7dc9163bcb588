"""`make test-gpu` where a driver only pretends: every test fails, is written down, and is tried again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.runtime.cuda.stub import library

ROOT = Path(__file__).parents[2]
STATE = ROOT / "out/gpu"
CASES = "conditions or array.abs-O2"


@pytest.fixture
def no_state() -> Iterator[None]:
    """No run goes on from the one of this test, nor the other way round."""
    files = [STATE / name for name in ("tests.json", "tests.md")]
    if any(file.exists() for file in files):
        pytest.skip(f"{STATE} holds what a run on a GPU has found")
    yield
    for file in files:
        file.unlink(missing_ok=True)


@pytest.mark.long
@pytest.mark.usefixtures("no_state")
def test_a_run_writes_down_what_failed_and_the_next_one_tries_it_again(tmp_path: Path) -> None:
    if library.compiler() is None:
        pytest.skip("there is no C compiler to build the stub of the driver with")
    library.build(tmp_path)
    out = tmp_path / "found"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "gpu"]
    for _ in range(2):
        done = subprocess.run(
            [*command, "tests/gpu", "-k", CASES, "--seconds", "200", "--out", str(out)],
            cwd=ROOT,
            env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "DLC_CACHE": ""},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "3 failed" in done.stdout, done.stdout + done.stderr
        data = cast("dict[str, object]", json.loads((out / "tests.json").read_text("utf-8")))
        assert data["counts"] == {"failed": 3}
        assert data["device"] == "stub (sm_90)"
        assert (out / "tests.md").read_text("utf-8") == (STATE / "tests.md").read_text("utf-8")
