"""Compiled operators decide nothing by memory that was never written, as valgrind sees it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dlc.driver.compile.settings import Settings
from tests.op_examples.every import OPERATORS
from tests.op_examples.example import EXAMPLES
from tests.runtime.cpu.guarded_runs import compiled
from tests.runtime.cpu.valgrind_runs import found_in

ROOT = Path(__file__).parents[3]
TARGET = "cpu:x86-64-v3"
"""Without AVX-512, which valgrind does not know."""


def prepare(folder: Path, every: int) -> int:
    """Compile every so-many-th example of the operations whose sizes are numbers; how many there are."""
    number = 0
    for name in OPERATORS:
        for example in EXAMPLES.get(name, ()):
            number += not example.dims
            if number % every or example.dims:
                continue
            place = folder / f"{number:04} {name}"
            place.mkdir()
            compiled(example, Settings(2, target=TARGET)).write(place / "model.dlc")
            np.savez(place / "inputs.npz", *[given.array for given in example.inputs])
    return len(list(folder.iterdir()))


@pytest.mark.long
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_operators_use_no_memory_that_was_never_written(tmp_path: Path) -> None:
    assert prepare(tmp_path, 4) > 100
    command = ["valgrind", "--error-limit=no", "--num-callers=4", sys.executable]
    done = subprocess.run(
        [*command, "-m", "tests.runtime.cpu.valgrind_runs", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONMALLOC": "malloc"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert not found_in(done.stderr)


def test_a_complaint_about_code_without_symbols_is_found() -> None:
    log = (
        "-- 0004 array.add\n==7== Conditional jump or move depends on uninitialised value(s)\n"
        "==7==    at 0x4C3F: ???\n==7==    by 0x1: main (main.c:1)\n"
        "==7== Invalid read of size 8\n==7==    at 0x40: strncmp (strcmp.S:160)\n"
    )
    assert found_in(log) == [
        "0004 array.add: Conditional jump or move depends on uninitialised value(s)"
    ]
