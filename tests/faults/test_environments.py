"""Compiling, running and training where the disk is full, nothing can be written, or the user is nobody."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.faults.operations import TRAINED

ROOT = Path(__file__).parents[2]
STRANGER = 54321
"""A user that no system has: without a name and without a home."""

COMMANDS = """
import contextlib, io, json, sys
from dlc.cli import main
done = []
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    done.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(done))
"""
"""Command lines: what each returned and printed."""
AS_USER = (
    """
import contextlib, io, os, shutil, sys, tempfile
from dlc.cli import main
# Python and its packages may lie where only root can read: what is imported late is imported before.
here, cached = os.getcwd(), os.environ.pop("DLC_CACHE", None)
with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
    for name in ("line.dlm", "line.npz"):
        shutil.copy(name, folder)
    os.chdir(folder)
    os.environ["DLC_CACHE"] = folder + "/cache"
    for words in (
        ["run", "line.dlm", "--random-inputs", "0"],
        ["compile", "line.dlm", "-o", "line.dlc"],
        ["run", "line.dlc", "--random-inputs", "0"],
        ["train", "line.dlm", "--checkpoint", "c.safetensors"],
    ):
        assert main(words) == 0
    os.chdir(here)
del os.environ["DLC_CACHE"]
if cached is not None:
    os.environ["DLC_CACHE"] = cached
user = int(sys.argv[2])
os.setgroups([])
os.setgid(user)
os.setuid(user)
"""
    + COMMANDS
)
"""The same as another user."""


class Done(NamedTuple):
    """How a command has ended, and what it printed."""

    code: int
    out: str
    err: str


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount and be another user")


@dataclass
class Place:
    """Commands run in `folder`, with these variables, as this user."""

    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    user: int | None = None

    def run_each(self, *commands: Sequence[str]) -> list[Done]:
        """Commands one after the other, in one process."""
        user = [] if self.user is None else [str(self.user)]
        said = self._process("-c", AS_USER if user else COMMANDS, json.dumps(commands), *user)
        assert said.code == 0, said.err
        every = [Done(*one) for one in json.loads(said.out)]
        for done in every:
            assert "Traceback" not in done.err and "D0999" not in done.err, done.err
        return every

    def _process(self, *words: str) -> Done:
        packages = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        kept = {"PATH": os.environ["PATH"], "PYTHONPATH": packages}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-B", *words],
            cwd=self.folder,
            env={**kept, **self.variables},
            capture_output=True,
            text=True,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def good(self, *commands: Sequence[str]) -> list[str]:
        """What commands print that end as they should."""
        done = self.run_each(*commands)
        assert not any(one.code for one in done), done
        return [one.out for one in done]


def fill(folder: Path) -> None:
    """A model that trains and its data, for everybody to read."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(16, 2)).astype(np.float32)
    np.savez(folder / "line.npz", x=x, y=x.sum(1, keepdims=True))
    (folder / "line.dlm").write_text(TRAINED)
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


RUN = ("run", "line.dlm", "--random-inputs", "0")
TRAIN = ("train", "line.dlm")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KiB with the model on it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if mount is None:
        pytest.skip("there is no mount")
    command = [mount, "-t", "tmpfs", "-o", "size=512k", "none", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"mounting is not allowed here: {mounted.stderr.strip()}")
    try:
        fill(folder)
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill_up(folder: Path) -> None:
    """Leave no byte of the disk."""
    with open(folder / "filler", "wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue


@pytest.mark.long
@as_root
def test_a_full_disk_stops_files_and_nothing_else(small_disk: Path) -> None:
    place = Place(small_disk, {"HOME": str(small_disk), "TMPDIR": str(small_disk)})
    off = Place(small_disk, {"DLC_CACHE": ""})
    compiled = ("compile", "line.dlm", "-o", "line.dlc")
    checkpoint = (*TRAIN, "--checkpoint", "c.safetensors")
    *_, expected = off.good(compiled, checkpoint, RUN)
    old = {name: (small_disk / name).read_bytes() for name in ("line.dlc", "c.safetensors")}
    fill_up(small_disk)
    there = names(small_disk) - {"filler"}

    ran, loaded, trained, *refused = place.run_each(
        *(RUN, ("run", "line.dlc", "--random-inputs", "0"), TRAIN),
        *((*compiled, "-O0"), (*checkpoint, "--set", "seed=2")),
    )
    assert [ran.code, loaded.code, trained.code] == [0, 0, 0]
    assert ran.out == expected
    assert loaded.out
    assert "loss" in trained.out
    for done in refused:
        assert done.code == 2, done.err
        assert "error[D0502]: cannot write" in done.err
        assert "no space left on device" in done.err
    assert names(small_disk) - {"filler", ".cache"} == there
    assert not list(small_disk.rglob("*.tmp"))
    for name, data in old.items():
        assert (small_disk / name).read_bytes() == data

    (small_disk / "filler").unlink()
    place.good((*compiled, "-O0"))
    assert (small_disk / "line.dlc").read_bytes() != old["line.dlc"]


def check_nothing_can_be_written(place: Place, elsewhere: Path) -> None:
    """In a folder that is for reading only; `elsewhere` the user may write."""
    there = names(place.folder)
    compiled, trained = str(elsewhere / "line.dlc"), str(elsewhere / "c.safetensors")
    done = place.run_each(
        RUN,
        TRAIN,
        ("compile", "line.dlm", "-o", "line.dlc"),
        (*TRAIN, "--checkpoint", "c.safetensors"),
        ("compile", "line.dlm", "-o", compiled),
        ("run", compiled, "--random-inputs", "0"),
        (*TRAIN, "--checkpoint", trained),
    )
    assert [one.code for one in done] == [0, 0, 2, 2, 0, 0, 0], done
    assert "loss" in done[1].out
    assert all("error[D0502]: cannot write" in one.err for one in done[2:4])
    assert names(place.folder) == there
    assert names(elsewhere) == {"line.dlc", "c.safetensors"}


@pytest.fixture
def theirs() -> Iterator[Path]:
    """A folder with the model that everybody may read, and one, `elsewhere`, that a stranger may write."""
    # pytest's own folders are for their user alone.
    folder = Path(tempfile.mkdtemp())
    try:
        fill(folder)
        (folder / "elsewhere").mkdir()
        yield folder
    finally:
        shutil.rmtree(folder)


@as_root
@pytest.mark.skipif(
    not all(folder.stat().st_mode & 0o005 == 0o005 for folder in (ROOT, *ROOT.parents)),
    reason="another user cannot read this checkout",
)
@pytest.mark.parametrize("home", ["unreadable", pytest.param("none", marks=pytest.mark.long)])
def test_another_user_who_may_only_read_works_without_a_cache(theirs: Path, home: str) -> None:
    os.chown(theirs / "elsewhere", STRANGER, STRANGER)
    (theirs / "home").mkdir(0o700)
    variables = {} if home == "none" else {"HOME": str(theirs / "home")}
    check_nothing_can_be_written(Place(theirs, variables, STRANGER), theirs / "elsewhere")
    assert not names(theirs / "home")


@pytest.mark.long
@as_root
def test_the_cache_of_another_user_is_not_used_and_said_once(theirs: Path) -> None:
    os.chown(theirs / "elsewhere", STRANGER, STRANGER)
    place = Place(theirs, {"DLC_CACHE": str(theirs / "elsewhere")})
    warned = subprocess.run(
        [sys.executable, "-m", "dlc", *TRAIN],
        cwd=theirs,
        env={**os.environ, "PYTHONPATH": str(ROOT), **place.variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert warned.stderr.count("is not used: it belongs to another user") == 1
    assert not names(theirs / "elsewhere")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_stops_files_and_nothing_else(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    tmp_path.chmod(0o555)
    try:
        place = Place(tmp_path, {"HOME": str(tmp_path)})
        check_nothing_can_be_written(place, tmp_path / "elsewhere")
    finally:
        tmp_path.chmod(0o755)
