"""Environments for the peers: made in the cache folder the first time, apart from ours."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

TORCH = (
    *("torch==2.13.0", "numpy"),
    *("--extra-index-url", "https://download.pytorch.org/whl/cpu", "--retries", "0"),
)
"""PyTorch. Its own index has a build for the CPU alone, a tenth of what comes with the libraries for GPUs,
whose version `2.13.0+cpu` counts as newer; where that index cannot be reached, the usual ones serve."""
JAX = ("jax", "numpy")
TRAINING = (TORCH, JAX)
"""What trains side by side with us."""


def cache_folder() -> Path:
    """Where the environments and what was made for them are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base, "dlc", "benchmarks")


def python_with(name: str, *packages: Sequence[str]) -> str:
    """The Python of an environment, made if it is not there by a call of pip for each of `packages`."""
    folder = cache_folder() / name
    python, complete = folder / "bin" / "python", folder / "complete"
    if not complete.exists():
        print(
            f"installing {', '.join(first for first, *_ in packages)} in {folder}", file=sys.stderr
        )
        venv.create(folder, with_pip=True, clear=True)
        for arguments in packages:
            subprocess.run([python, "-m", "pip", "install", "--quiet", *arguments], check=True)
        complete.touch()
    return str(python)
