"""`pip install --no-deps` plus numpy: artifacts load and run; nothing of the compiler is there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dlc
from tests.packaging.conftest import Installed

TEXT = """\
dlc 1
dim B = 1..64
module Layer {
  param w: f32[8, 4] = normal(1.0)
  param b: f32[4] = zeros()
  export fn scores(x: f32[B, 8]) -> f32[B, 4] = softmax(tanh(x @ w + b))
}
"""

CALL = """\
import sys
import numpy as np
import dlc
model = dlc.load("layer.dlc")
np.save("y.npy", model.scores(np.load("x.npy")))
own = {name for name in sys.modules if name.startswith("dlc")}
allowed = ("dlc.errors", "dlc.first_use", "dlc.runtime", "dlc.version")
assert all(name == "dlc" or name.startswith(allowed) for name in own), own
foreign = {
    name.partition(".")[0]
    for name, module in sys.modules.items()
    if "site-packages" in (getattr(module, "__file__", None) or "")
}
assert foreign == {"dlc", "numpy"}, foreign
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A compiled layer, and numbers for it."""
    model = dlc.compile(text=TEXT, weights="init:1", matmul="generated")
    model.save(tmp_path / "layer.dlc")
    x = np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "expected.npy", np.asarray(model(x)))
    return tmp_path


def test_an_artifact_gives_the_same_bits_with_numpy_alone(alone: Installed, folder: Path) -> None:
    done = alone.run("python", "-c", CALL, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert np.load(folder / "y.npy").tobytes() == np.load(folder / "expected.npy").tobytes()


def test_the_command_runs_an_artifact_with_numpy_alone(alone: Installed, folder: Path) -> None:
    done = alone.run("dlc", "run", "layer.dlc", "--input", "x=x.npy", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"scores: f32[5, 4]\n{np.load(folder / 'expected.npy')}\n"


@pytest.mark.parametrize("command", [("compile", "layer.dlm"), ("--help",)])
def test_what_needs_more_says_what_to_install(
    alone: Installed, folder: Path, command: tuple[str, ...]
) -> None:
    (folder / "layer.dlm").write_text(TEXT)
    done = alone.run("dlc", *command, cwd=folder)
    assert done.returncode == 2
    assert "error[D0923]: typer is not installed" in done.stderr
    assert "pip install typer" in done.stderr


def test_compiling_from_python_says_what_to_install(alone: Installed, folder: Path) -> None:
    script = "import dlc\ntry:\n    dlc.compile\nexcept dlc.DlcError as error:\n    print(error)\n"
    done = alone.run("python", "-c", script, cwd=folder)
    assert "error[D0923]: llvmlite is not installed" in done.stdout


def test_an_artifact_that_calls_blas_says_that_it_needs_scipy(
    alone: Installed, folder: Path
) -> None:
    dlc.compile(text=TEXT, weights="init:1", matmul="blas").save(folder / "layer.dlc")
    done = alone.run("dlc", "run", "layer.dlc", "--random-inputs", "0", cwd=folder)
    assert done.returncode != 0
    assert "scipy" in done.stderr
