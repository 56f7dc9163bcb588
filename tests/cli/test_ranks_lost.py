"""`dlc train --ranks`: one rank is lost, or all are interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from dlc.runtime.ranks.pulse import Pulse, path_of, read_pulse
from tests.cli.test_ranks import MODEL, filled, run

pytest.importorskip("mpi4py")
ENDS = 30
"""Seconds in which all ranks have ended after one was lost."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a model and its data."""
    return filled(tmp_path)


class Training:
    """A training of 2 ranks that runs."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process, self._folder = process, folder

    def pulses(self, step: int) -> list[Pulse]:
        """The pulses of both when they have finished so many steps."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            (made,) = list(self._folder.glob("dlc-ranks-*")) or [self._folder]
            found = [read_pulse(path_of(made, rank)) for rank in range(2)]
            pulses = [pulse for pulse in found if pulse is not None and pulse.step >= step]
            if len(pulses) == 2:
                return pulses
            time.sleep(0.05)
        raise TimeoutError(self.process.communicate()[1])

    def ended(self) -> tuple[int, str]:
        """The exit code and what was said."""
        said = self.process.communicate(timeout=ENDS)[1]
        return self.process.returncode, said


@contextmanager
def training(folder: Path, *more: str) -> Generator[Training]:
    """Train for very long with a checkpoint after each epoch."""
    (folder / "line.dlm").write_text(MODEL.replace("epochs = 3", "epochs = 100000"))
    options = ["--threads", "1", "--ranks", "2", "--checkpoint", "line.safetensors"]
    (folder / "tmp").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "dlc", "train", "line.dlm", *options, *more],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Training(process, folder / "tmp")
    finally:
        process.kill()
        process.communicate()


def is_alive(process: int) -> bool:
    """Whether there is such a process after a while."""
    for _ in range(50):
        if not Path(f"/proc/{process}").exists():
            return False
        time.sleep(0.1)
    return True


def test_a_killed_rank_ends_all_with_its_name_host_and_step(folder: Path) -> None:
    with training(folder) as runs:
        pulses = runs.pulses(8)
        os.kill(pulses[1].process, signal.SIGKILL)
        code, said = runs.ended()
    assert code == 1
    assert said.count("D0823") == 1
    assert f"rank 1 on {os.uname().nodename} was killed, after step " in said
    assert "Traceback" not in said
    assert not any(is_alive(pulse.process) for pulse in pulses)
    assert not list((folder / "tmp").iterdir())
    part = ("--set", "epochs=1", "--resume", "line.safetensors")
    assert run(folder, "train", "line.dlm", *part).code == 0


@pytest.mark.long
def test_a_stopped_rank_ends_all(folder: Path) -> None:
    with training(folder, "--rank-timeout", "2") as runs:
        pulses = runs.pulses(1)
        os.kill(pulses[0].process, signal.SIGSTOP)
        code, said = runs.ended()
    assert code == 1
    assert f"rank 0 on {os.uname().nodename} has not answered for 2 s, after step " in said
    assert not any(is_alive(pulse.process) for pulse in pulses)


def put_folder(path: Path) -> None:
    """Put a folder in the place of a file, which a rank may write again meanwhile."""
    while not path.is_dir():
        path.unlink(missing_ok=True)
        with suppress(FileExistsError):
            path.mkdir()


@pytest.mark.long
def test_a_checkpoint_that_cannot_be_written_ends_all(folder: Path) -> None:
    with training(folder) as runs:
        pulses = runs.pulses(1)
        put_folder(folder / "line.safetensors")
        code, said = runs.ended()
    assert code == 2
    assert said.count("D0502") == 1
    assert f"rank 0 on {os.uname().nodename} failed, after step " in said
    assert not any(is_alive(pulse.process) for pulse in pulses)


@pytest.mark.long
def test_an_interrupt_ends_all_after_the_same_step_with_a_checkpoint(folder: Path) -> None:
    with training(folder) as runs:
        runs.pulses(8)
        runs.process.send_signal(signal.SIGINT)
        code, said = runs.ended()
    assert code == 130
    assert "go on with --resume line.safetensors" in said
    assert said.count("interrupted") == 1


def test_ranks_end_when_the_process_that_started_them_is_killed(folder: Path) -> None:
    with training(folder) as runs:
        pulses = runs.pulses(1)
        runs.process.kill()
        assert not any(is_alive(pulse.process) for pulse in pulses)


@pytest.mark.long
def test_the_rest_goes_on_from_the_last_checkpoint(folder: Path) -> None:
    with training(folder, "--restarts", "1") as runs:
        pulses = runs.pulses(8)
        os.kill(pulses[1].process, signal.SIGKILL)
        time.sleep(3)
        runs.process.send_signal(signal.SIGINT)
        code, said = runs.ended()
    assert code == 130
    assert "goes on as 1 rank from line.safetensors" in said


LOOPS = """\
from dlc.cli.ranks import together

with together(None, 2) as member:
    member.pulse.begin(3)
    while member.rank == 1:
        pass
    with member.pulse.call():
        member.comm.Barrier()
"""


@pytest.mark.long
def test_ranks_that_mpiexec_started_notice_an_endless_loop(folder: Path) -> None:
    (folder / "loops.py").write_text(LOOPS)
    mpiexec = Path(sys.executable).with_name("mpiexec")
    done = subprocess.run(
        [mpiexec, "-n", "3", sys.executable, "loops.py"],
        cwd=folder, capture_output=True, text=True, timeout=ENDS, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert done.stderr.count("D0823") == 1
    assert "has come no further for 2 s, in which the others wait, after step 3" in done.stderr
    assert f"rank 1 on {os.uname().nodename} " in done.stderr


@pytest.mark.long
def test_ranks_with_other_options_are_refused(folder: Path) -> None:
    mpiexec = Path(sys.executable).with_name("mpiexec")
    rank = ["-n", "1", sys.executable, "-m", "dlc", "train", "line.dlm"]
    done = subprocess.run(
        [mpiexec, *rank, ":", *rank, "-O0"],
        cwd=folder, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert done.stderr.count("D0937") == 1
    assert "rank 1 has another list of options than rank 0" in done.stderr


def test_restarts_need_ranks(folder: Path) -> None:
    done = run(folder, "train", "line.dlm", "--restarts", "1")
    assert done.code == 2
    assert "add --ranks N" in done.err


@pytest.mark.long
def test_kills_at_random_moments_lose_nothing(folder: Path) -> None:
    from benchmarks.fuzz.kills import start

    check = start()
    for seed in range(3):
        outcome = check(seed)
        assert outcome.verdict == "agreed", outcome.what
