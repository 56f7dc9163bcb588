"""The command as a process of its own: closed and full outputs, Ctrl-C, two at once, odd surroundings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

import dlc as package
from tests.cli.conftest import Command
from tests.suites import every

ROOT = Path(package.__file__).parents[1]

ENDLESS = """\
dlc 1
export fn f(x: f32[64, 64] = 0) -> f32[64, 64] =
  while all(y >= 0) with y = broadcast(x, [64, 64]) limit 2000000000 { next y = y * 0.5 }
"""
COMMANDS = [
    pytest.param(("ops",), marks=pytest.mark.long),
    pytest.param(("run", "rows.dlc", "--random-inputs", "0")),
    pytest.param(("--version",)),
]
PRINTED = "total: f32\n14.0\nrows: f32[1]\n[14.]\n"
"""The results of `rows.dlm` for the row [1, 2, 3]."""


def surroundings(**changes: str | None) -> dict[str, str]:
    """This process's environment with changes; None takes a variable away."""
    found = {**os.environ, "PYTHONPATH": str(ROOT), **changes}
    return {name: value for name, value in found.items() if value is not None}


def start(
    folder: Path, *arguments: str, out: int = subprocess.PIPE, env: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dlc", *arguments],
        cwd=folder,
        env=surroundings() if env is None else dict(env),
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    assert "Traceback" not in err
    return process.returncode, out, err


@pytest.mark.parametrize("where", every(2, ["2>&-", "2>/dev/full"]))
def test_results_are_given_where_nothing_else_can_be_said(
    dlc: Command, folder: Path, where: str
) -> None:
    dlc("compile", "rows.dlm")
    result = dlc("run", "rows.dlc", "--random-inputs", "0").out
    (folder / "wrong.dlm").write_text("dlc 1\nexport fn f(x: f32) -> f32 = y\n")
    for command, code, out in (
        ("run rows.dlc --random-inputs 0", 0, result),
        ("check wrong.dlm", 1, ""),
    ):
        done = subprocess.run(
            ["/bin/sh", "-c", f"exec {sys.executable} -m dlc {command} {where}"],
            check=False,
            cwd=folder,
            env=surroundings(),
            stdout=subprocess.PIPE,
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stdout) == (code, out)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_has_gone_is_no_error(
    dlc: Command, folder: Path, command: tuple[str, ...]
) -> None:
    dlc("compile", "rows.dlm")
    reading, writing = os.pipe()
    os.close(reading)
    process = start(folder, *command, out=writing)
    os.close(writing)
    assert ended(process) == (0, None, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_an_output_that_cannot_be_written_is_said(
    dlc: Command, folder: Path, command: tuple[str, ...]
) -> None:
    dlc("compile", "rows.dlm")
    with Path("/dev/full").open("wb") as full:
        code, _, err = ended(start(folder, *command, out=full.fileno()))
    assert code == 2
    assert err.startswith("error[D0502]: cannot write the output: no space left on device")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        pytest.param("compile rows.dlm", 0, marks=pytest.mark.long),
        ("new first", 2),
        ("run rows.dlc --random-inputs 0", 2),
    ],
)
def test_without_any_stdout_a_command_does_its_work_and_says_what_is_lost(
    dlc: Command, folder: Path, command: str, code: int
) -> None:
    dlc("compile", "rows.dlm")
    shell = f"{sys.executable} -m dlc {command} >&-"
    done = subprocess.run(
        ["sh", "-c", shell],
        cwd=folder,
        env=surroundings(),
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == code
    assert ("cannot write the output: it is closed" in done.stderr) == (code == 2)
    assert command != "new first" or (folder / "first.dlm").exists()


@pytest.mark.parametrize(("model", "spent"), every(2, [("endless.dlc", 100), ("endless.dlm", 250)]))
def test_ctrl_c_ends_a_running_call_with_130(
    dlc: Command, folder: Path, model: str, spent: int
) -> None:
    """`spent` is hundredths of a second of processor time: it is in the loop by then."""
    (folder / "endless.dlm").write_text(ENDLESS)
    assert dlc("compile", "endless.dlm").code == 0
    process = start(folder, "run", model)
    cpu = Path(f"/proc/{process.pid}/stat")
    while int(cpu.read_text().split()[13]) < spent:
        time.sleep(0.05)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    try:
        code, out, err = ended(process)
    finally:
        process.kill()
    assert (code, out) == (130, "")
    assert err.endswith("interrupted\n")


@pytest.mark.long
def test_two_processes_that_write_one_artifact_leave_a_whole_one(
    dlc: Command, folder: Path
) -> None:
    both = [start(folder, "compile", "rows.dlm", "-o", "rows.dlc") for _ in range(2)]
    assert [ended(process)[0] for process in both] == [0, 0]
    assert dlc("run", "rows.dlc", "--input", "x=[[1, 2, 3]]").out == PRINTED
    assert sorted(path.name for path in folder.glob("*rows*")) == ["rows.dlc", "rows.dlm"]


@pytest.mark.parametrize(
    "changes",
    every(
        8,
        [
            {"DLC_CACHE": "/proc/nothing"},
            {"DLC_CACHE": "rows.dlm"},
            {"DLC_CACHE": ""},
            {"DLC_CACHE": "with space\nand line"},
            {"DLC_CACHE": None, "XDG_CACHE_HOME": None, "HOME": "rows.dlm"},
            {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            {"OPENBLAS_CORETYPE": "Haswell"},
            {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        ],
    ),
    ids=str,
)
def test_odd_surroundings_change_no_result(folder: Path, changes: Mapping[str, str | None]) -> None:
    env = surroundings(**changes)
    process = start(folder, "run", "rows.dlm", "--input", "x=[[1, 2, 3]]", env=env)
    code, out, err = ended(process)
    assert (code, out) == (0, PRINTED), err


def test_names_of_files_may_be_of_any_letters(folder: Path) -> None:
    (folder / "rows.dlm").rename(folder / "mödell 名.dlm")
    env = surroundings(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    written = ("--random-inputs", "0", "--output", "rows=größe.npy")
    code, _, err = ended(start(folder, "run", "mödell 名.dlm", *written, env=env))
    assert code == 0, err
    assert (folder / "größe.npy").exists()
    code, _, err = ended(start(folder, "run", "gönö.dlc", env=env))
    assert code == 2
    assert "D0501" in err
