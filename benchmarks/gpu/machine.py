"""What a run on a GPU is told with: when, on what, and of which commit."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from dlc.errors import Unsupported
from dlc.runtime.cuda.devices import driver_of

ROOT = Path(__file__).parents[2]
PACKAGES = ("numpy", "llvmlite", "cuda-bindings", "torch", "jax")


def facts() -> dict[str, str]:
    """Date, device, commit, and versions."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "device": device(),
        "commit": commit(),
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
    }


def device() -> str:
    """The GPU's name and kind."""
    try:
        driver = driver_of("cuda:0")
    except Unsupported as error:
        return f"none: {error.diagnostics[0].message}"
    major, minor = driver.capability
    return f"{driver.name} (sm_{major}{minor})"


def commit() -> str:
    """The commit of the checkout, and whether files differ from it; what is known without a repository."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return f"unknown, sources {_sources()}"
    return done.stdout.strip()


def _sources() -> str:
    """A number that says whether two checkouts have the same compiler."""
    found = hashlib.sha256()
    for path in sorted((ROOT / "dlc").rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()[:12]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
