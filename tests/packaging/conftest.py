"""What a user installs: the wheel of this tree, in environments of their own. Nothing needs a network."""

from __future__ import annotations

import email
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment with dlc and numpy, and nothing else."""

    folder: Path

    def run(self, *command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """A program of the environment, such as `python` or `dlc`."""
        program = str(self.folder / "bin" / command[0])
        return run([program, *command[1:]], cwd)


def run(
    command: list[str], cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def pip_install(*arguments: str, cwd: Path) -> None:
    """Install with this environment's pip and build tools, without the network."""
    offline = ("--no-deps", "--no-index", "--no-build-isolation", "--no-compile", "--quiet")
    common = ("--disable-pip-version-check", "--no-cache-dir", "install")
    done = run([sys.executable, "-m", "pip", *common, *offline, *arguments], cwd)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the tree's package."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    shutil.copytree(ROOT / "dlc", tree / "dlc", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    build = "import sys\nfrom setuptools import build_meta\nbuild_meta.build_wheel(sys.argv[1])\n"
    done = run([sys.executable, "-c", build, str(folder)], tree)
    assert done.returncode == 0, done.stdout + done.stderr
    [made] = folder.glob("*.whl")
    return made


@pytest.fixture(scope="session")
def requirements(wheel: Path) -> list[Requirement]:
    """What the wheel says that it needs."""
    with zipfile.ZipFile(wheel) as opened:
        [name] = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(opened.read(name))
    return [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]


@pytest.fixture(scope="session")
def alone(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """A fresh environment with the wheel and numpy: what `pip install --no-deps dlc numpy` gives."""
    folder = tmp_path_factory.mktemp("alone")
    venv.create(folder / "env", with_pip=False, symlinks=True)
    [site] = (folder / "env" / "lib").glob("python*/site-packages")
    packages = Path(np.__file__).parents[1]
    for name in ("numpy", "numpy.libs"):
        if (packages / name).is_dir():
            (site / name).symlink_to(packages / name)
    pip_install("--target", str(site), str(wheel), cwd=folder)
    script = folder / "env" / "bin" / "dlc"
    script.write_text(
        f"#!{folder}/env/bin/python\nimport sys\nfrom dlc.cli import main\nsys.exit(main())\n"
    )
    script.chmod(0o755)
    return Installed(folder / "env")
