"""Ranks: processes that MPI starts, which do one command together."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dlc.errors import DlcError, Unsupported, UsageError

if TYPE_CHECKING:
    from mpi4py import MPI

STARTED = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
"""Variables of the environment by which a process knows that MPI started it."""
OTHERS_FIRST = 2.0
"""Seconds that a rank other than the first waits before it speaks: what fails on all ranks is told once."""


def started_by_mpi() -> bool:
    """Whether MPI started this process as one of several."""
    return any(name in os.environ for name in STARTED)


def start(ranks: int | None) -> int | None:
    """Do this command again as so many ranks, and give its exit code; None where this is one of them.

    Raises Unsupported (D0740) where MPI is not installed.
    """
    if ranks is None or started_by_mpi():
        return None
    if ranks < 1:
        raise UsageError(f"--ranks is a number from 1 on, found {ranks}", code="D0901")
    if ranks == 1:
        return None
    beside = Path(sys.executable).with_name("mpiexec")
    launcher = str(beside) if beside.exists() else shutil.which("mpiexec")
    if launcher is None:
        raise _missing("there is no mpiexec")
    command = [launcher, "-n", str(ranks), sys.executable, "-m", "dlc", *sys.argv[1:]]
    try:
        return subprocess.run(command, check=False).returncode
    except KeyboardInterrupt:
        return 130


def communicator(ranks: int | None) -> MPI.Intracomm | None:
    """All ranks, of which this process is one; None where it is alone.

    Raises Unsupported (D0740) without mpi4py, UsageError (D0936) where `ranks` is another number.
    """
    if not started_by_mpi():
        return None
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise _missing("mpi4py is not installed") from error
    found = MPI.COMM_WORLD.Get_size()
    if ranks is not None and found != ranks:
        raise UsageError(
            f"--ranks {ranks}, and MPI started {found}",
            code="D0936",
            help=f"write mpiexec -n {ranks}, or leave out --ranks",
        )
    return MPI.COMM_WORLD if found > 1 else None


def _missing(what: str) -> Unsupported:
    return Unsupported(f"ranks need MPI, and {what}", code="D0740", help="pip install 'dlc[mpi]'")


@contextmanager
def together(comm: MPI.Intracomm | None, last_step: Callable[[], int | None]) -> Generator[None]:
    """End all ranks where one fails, with a message that names it; the others would wait for ever."""
    try:
        yield
    except BaseException as error:
        if comm is None:
            raise
        rank = comm.Get_rank()
        if rank:
            time.sleep(OTHERS_FIRST)
        step = last_step()
        after = "" if step is None else f", after step {step}"
        told = _told(error)
        print(
            f"rank {rank} on {platform.node()} failed{after}\n{told}", file=sys.stderr, flush=True
        )
        code = _exit_code(error)
        comm.Abort(code)
        os._exit(code)


def _told(error: BaseException) -> str:
    match error:
        case DlcError():
            return str(error)
        case KeyboardInterrupt():
            return "interrupted"
        case _:
            return f"{type(error).__name__}: {error}"


def _exit_code(error: BaseException) -> int:
    match error:
        case DlcError():
            return error.exit_code
        case KeyboardInterrupt():
            return 130
        case _:
            return 70


def is_first(comm: MPI.Intracomm | None) -> bool:
    """Whether this rank tells what all do."""
    return comm is None or comm.Get_rank() == 0
