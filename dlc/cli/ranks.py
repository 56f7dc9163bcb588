"""Ranks: processes that MPI starts, which do one command together."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dlc.cli.report import errors_data, note, print_json
from dlc.cli.started import RANK, started_by_mpi
from dlc.errors import CallError, DlcError, Unsupported, UsageError
from dlc.runtime.ranks.lost_ranks import LIMIT, Lost, Watcher
from dlc.runtime.ranks.pulse import ENDED, FAILED, OwnPulse, exit_code, is_held
from dlc.runtime.system.atomic_write import write_file

if TYPE_CHECKING:
    from mpi4py import MPI

    from dlc.runtime.training.trainer import Trainer

FOLDER = "DLC_RANKS_FOLDER"
"""The variable with the folder in which the process that started the ranks watches them."""
PARENT, STOP, FACTS = "parent", "stop", "facts.json"
"""Files of that folder: what its maker holds; what asks the ranks to stop; how to go on without one."""
OTHERS_FIRST = 2.0
"""Seconds that a rank other than the first waits before it speaks: what fails on all ranks is told once."""


def communicator(ranks: int | None) -> MPI.Intracomm | None:
    """All ranks, of which this process is one; None where it is alone.

    Raises Unsupported (D0740) without mpi4py, UsageError (D0936) where `ranks` is another number.
    """
    if not started_by_mpi():
        return None
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise missing("mpi4py is not installed") from error
    found = MPI.COMM_WORLD.Get_size()
    if ranks is not None and found != ranks:
        raise UsageError(
            f"--ranks {ranks}, and MPI started {found}",
            code="D0936",
            help=f"write mpiexec -n {ranks}, or leave out --ranks",
        )
    return MPI.COMM_WORLD if found > 1 else None


def missing(what: str) -> Unsupported:
    """The error where ranks cannot be started."""
    return Unsupported(f"ranks need MPI, and {what}", code="D0740", help="pip install 'dlc[mpi]'")


def is_first(comm: MPI.Intracomm | None) -> bool:
    """Whether this rank tells what all do."""
    return comm is None or comm.Get_rank() == 0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a rank failed, as the process that started it is to tell it."""

    text: str
    code: int
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def tell(self) -> int:
        """Tell it; gives the exit code."""
        if self.text:
            note(self.text)
        if "--json" in sys.argv:
            print_json(self.data)
        return self.code


def failure_of(folder: Path, rank: int) -> Failure:
    """What a rank that failed has written; where it wrote nothing it has told it itself."""
    path = folder / f"failure{rank}.json"
    if not path.exists():
        return Failure("", exit_code(folder, rank) or 1)
    return Failure(**json.loads(path.read_text()))


class Member:
    """This rank among those that are watched."""

    def __init__(self) -> None:
        self.comm: MPI.Intracomm | None = None
        self.rank = 0
        self.asked: list[bool] = []
        """Not empty as soon as the training is to stop."""
        self.pulse: OwnPulse | None = None
        self._watcher: Watcher | None = None
        parent = os.environ.get(FOLDER) if started_by_mpi() else None
        self._has_parent = parent is not None
        self.folder = None if parent is None else Path(parent)
        if self.folder is not None:
            # MPI waits for all ranks when it begins: it is seen before which one does not come.
            self.rank = int(next(os.environ[name] for name in RANK if name in os.environ))
            self.pulse = OwnPulse(self.folder, self.rank)
            self.pulse.beat(self._on_beat)

    def join(self, ranks: int | None, limit: float) -> None:
        """Begin to work with the others; see `communicator`."""
        self.comm = communicator(ranks)
        if self.comm is None or self._has_parent:
            return
        self.rank = self.comm.Get_rank()
        self.folder = _common_folder(self.comm)
        if self.folder is not None:
            self.pulse = OwnPulse(self.folder, self.rank, synced=True)
            self._watcher = Watcher(self.folder, self.comm.Get_size(), limit=limit)
            self.pulse.beat(self._on_beat)

    def _on_beat(self) -> None:
        assert self.folder is not None
        if not self._has_parent:
            lost = None if self._watcher is None else self._watcher.look()
            if lost is not None and not lost.failed:
                self._end_with(lost)
            return
        if not is_held(self.folder / PARENT):
            os._exit(1)  # who started the ranks was killed
        if (self.folder / STOP).exists() and not self.asked:
            self.asked.append(True)

    def _end_with(self, lost: Lost) -> None:
        """End this process because another rank is lost; the lowest one tells it."""
        assert self._watcher is not None
        left = [rank for rank in self._watcher.pulses if rank != lost.rank]
        if self.rank == min(left, default=self.rank):
            note(f"error[D0823]: {lost}")
        else:
            time.sleep(OTHERS_FIRST)
        if lost.pulse.host == platform.node():
            # A stopped process would stay: MPI asks processes to end, and it does not hear.
            with suppress(ProcessLookupError, PermissionError):
                os.kill(lost.pulse.process, signal.SIGKILL)
        os._exit(1)

    @contextmanager
    def training(self, trainer: Trainer) -> Generator[None]:
        """While inside, the trainer says how far it has come."""
        if self.pulse is None:
            yield
            return
        trainer.pulse = self.pulse
        self.pulse.begin(trainer.steps)
        try:
            yield
        finally:
            self.pulse.end_steps()

    def tell_facts(self, ranks: int, checkpoint: Path) -> None:
        """Tell who started the ranks with how many of them to go on where one is lost, and from where."""
        if self.folder is None or self.rank:
            return
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else None
        facts = {"ranks": ranks, "checkpoint": str(checkpoint), "before": before}
        write_file(self.folder / FACTS, [json.dumps(facts).encode()], durable=False)

    def end(self) -> None:
        """End as all ranks do, when the last of them has come to its end."""
        sys.stdout.flush()
        if self.comm is not None:
            self.comm.Barrier()
        if self.pulse is not None:
            self.pulse.end(ENDED)
        if self.folder is not None and not self._has_parent and self.rank == 0:
            shutil.rmtree(self.folder, ignore_errors=True)

    def fail(self, error: BaseException) -> None:
        """Tell why this rank fails, and end all of them."""
        step = None if self.pulse is None else self.pulse.step
        after = "" if step is None else f", after step {step}"
        text = f"rank {self.rank} on {platform.node()} failed{after}\n{_told(error)}"
        nothing: dict[str, object] = {"errors": []}
        data = errors_data(error) if isinstance(error, DlcError) else nothing
        failure = Failure(text, _exit_code(error), data)
        if isinstance(error, CallError) and error.diagnostics[0].code == "D0824":
            time.sleep(OTHERS_FIRST)  # another rank has failed, and tells why
        if self._has_parent and self.folder is not None and self.pulse is not None:
            path = self.folder / f"failure{self.rank}.json"
            write_file(path, [json.dumps(asdict(failure)).encode()], durable=False)
            self.pulse.end(FAILED)
            time.sleep(OTHERS_FIRST)  # the process that started this one ends it
        else:
            if self.rank:
                time.sleep(OTHERS_FIRST)
            failure.tell()
        if self.comm is not None:
            self.comm.Abort(failure.code)
        os._exit(failure.code)


def _common_folder(comm: MPI.Intracomm) -> Path | None:
    """A new folder that all ranks see: on one host a temporary one, or else beside the model; else None."""
    alike = len(set(comm.allgather(platform.node()))) == 1
    made: str | None = None
    if comm.Get_rank() == 0:
        with suppress(OSError):
            made = tempfile.mkdtemp(prefix=".dlc-ranks-", dir=None if alike else ".")
    found = cast("str | None", comm.bcast(made))
    if found is None:
        return None
    folder = Path(found).absolute()
    return folder if all(comm.allgather(folder.is_dir())) else None


@contextmanager
def together(ranks: int | None, limit: float = LIMIT) -> Generator[Member]:
    """Work with the other ranks, if there are any; see `communicator`.

    Where one fails all are ended, with a message that names it: the others would wait for ever.
    """
    member = Member()
    try:
        member.join(ranks, limit)
        yield member
    except BaseException as error:
        if not started_by_mpi():
            raise
        member.fail(error)
    member.end()


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
