"""`--ranks N`: the process that starts ranks by MPI, watches them, and ends all where one is lost.

The ranks are in a session of their own, so that Ctrl-C comes to this process alone, and find the folder of
their files in the environment. What fails is told here, once.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from dlc.cli.ranks import FACTS, FOLDER, PARENT, STOP, failure_of, missing
from dlc.cli.report import INTERRUPTED, note, print_json
from dlc.cli.started import started_by_mpi
from dlc.errors import CallError, UsageError
from dlc.runtime.ranks.lost_ranks import LIMIT, Lost, Watcher
from dlc.runtime.ranks.pulse import ENDED, hold, is_held, path_of

FINALIZING = 5.0
"""Seconds that MPI may take after all ranks have ended: it waits for ever for one that was killed then."""
SIGNALS = 128
"""Exit codes above are those of processes that a signal ended: of a rank after its work, while MPI ends."""
LOOK = 0.2
"""Seconds between two looks at the ranks."""
_SHELL = """\
trap "" USR1
"$@" <&0 & wait $! 2> /dev/null
code=$?
[ $code = 0 ] || echo $code > "$%s/exit$PMI_RANK"
exit $code"""
"""What stands between MPICH's mpiexec and a rank, a shell. When a process ends, mpiexec signals the others,
which end before anyone can see who was first; the shell keeps that from them, and notes its own end."""


def start(ranks: int | None, *, restarts: int = 0, limit: float = LIMIT) -> int | None:
    """Run this command again as `ranks` ranks and give its exit code; None where this is one of them.

    Where a rank is lost it is done up to `restarts` times more, with as many as the training says, from the
    last checkpoint. Raises Unsupported (D0740) without MPI, CallError (D0823) for a lost rank.
    """
    if started_by_mpi():
        return None
    if restarts and ranks is None:
        raise UsageError(
            "--restarts starts ranks again, and there are none",
            code="D0901",
            help="add --ranks N",
        )
    if ranks is None:
        return None
    if ranks < 1:
        raise UsageError(f"--ranks is a number from 1 on, found {ranks}", code="D0901")
    if ranks == 1:
        return None
    arguments = sys.argv[1:]
    while True:
        with tempfile.TemporaryDirectory(prefix="dlc-ranks-") as folder:
            run = _Run(Path(folder), ranks, limit)
            code = run.finish(arguments)
            if run.lost is None or run.lost.failed:
                return code
            error = _error(run.lost)
            if not restarts:
                raise error
            restarts -= 1
            ranks, again = run.rest()
            replaced = ["--ranks", "--resume"] if again else ["--ranks"]
            arguments = [*_without(arguments, replaced), "--ranks", str(ranks), *again]
        note(error.render())
        # What the user or an earlier restart resumed from still holds where nothing new was written.
        whence = "the last checkpoint" if "--resume" in arguments else "the beginning"
        note(
            f"goes on as {ranks} rank{'s' if ranks > 1 else ''} from {' '.join(again[1:]) or whence}"
        )


def _command(ranks: int, arguments: Sequence[str]) -> list[str]:
    """The command that starts ranks by MPI, told to leave it to us to end them where it can be."""
    if find_spec("mpi4py") is None:
        raise missing("mpi4py is not installed")
    beside = Path(sys.executable).with_name("mpiexec")
    launcher = str(beside) if beside.exists() else shutil.which("mpiexec")
    if launcher is None:
        raise missing("there is no mpiexec")
    about = subprocess.run([launcher, "--version"], capture_output=True, text=True, check=False)
    rank = [sys.executable, "-m", "dlc", *arguments]
    if "HYDRA" not in about.stdout:
        return [launcher, "-n", str(ranks), *rank]
    shell = ["sh", "-c", _SHELL % FOLDER, "sh"]
    return [launcher, "-disable-auto-cleanup", "-n", str(ranks), *shell, *rank]


def _without(arguments: Sequence[str], names: Sequence[str]) -> list[str]:
    """A command line without these options.

    >>> _without(["train", "--ranks", "4", "--resume=a", "b.dlm"], ["--ranks", "--resume"])
    ['train', 'b.dlm']
    """
    left: list[str] = []
    rest = iter(arguments)
    for word in rest:
        if word in names:
            next(rest, None)
        elif word.partition("=")[0] not in names:
            left.append(word)
    return left


def _error(lost: Lost) -> CallError:
    return CallError(
        str(lost),
        code="D0823",
        help="go on from the last checkpoint with --resume; --restarts N does so by itself",
    )


@dataclass(slots=True)
class _Run:
    """One start of all ranks, which have their files in `folder`."""

    folder: Path
    ranks: int
    limit: float
    lost: Lost | None = None

    def finish(self, arguments: Sequence[str]) -> int:
        """Start them, wait for their end, and give their exit code; prints what they did, if all ended."""
        held = hold(self.folder / PARENT)
        watcher = Watcher(self.folder, self.ranks, limit=self.limit)
        environment = {**os.environ, FOLDER: str(self.folder)}
        output = self.folder / "output"  # mpiexec adds to it what it has to say of a lost rank
        with output.open("wb") as file:
            process = subprocess.Popen(
                _command(self.ranks, arguments),
                env=environment,
                stdout=file,
                start_new_session=True,
            )
        try:
            with _interrupts() as asked:
                code = self.watch(process, watcher, asked)
        finally:
            self._end_all(process, watcher)
            os.close(held)
        if self.lost is None:
            print(output.read_text(errors="replace"), end="")
        return code

    def watch(self, process: subprocess.Popen[bytes], watcher: Watcher, asked: list[int]) -> int:
        """Wait for the end of all, or for the loss of one."""
        ended: float | None = None
        while True:
            code = self._poll(process)
            self.lost = watcher.look()
            if self.lost is not None:
                return failure_of(self.folder, self.lost.rank).tell() if self.lost.failed else 1
            pulses = watcher.pulses.values()
            done = len(pulses) == self.ranks and all(pulse.state == ENDED for pulse in pulses)
            if code is not None:
                was_killed = code > SIGNALS and code != INTERRUPTED
                return code if not (done and was_killed) else INTERRUPTED if asked else 0
            if done:
                ended = ended or time.monotonic()
                if time.monotonic() - ended > FINALIZING:
                    return INTERRUPTED if asked else 0
            if asked:
                (self.folder / STOP).touch()
                if len(asked) > 1 or all(pulse.step < 0 for pulse in pulses):
                    return _interrupted()

    @staticmethod
    def _poll(process: subprocess.Popen[bytes]) -> int | None:
        try:
            return process.wait(LOOK)
        except subprocess.TimeoutExpired:
            return None

    def _end_all(self, process: subprocess.Popen[bytes], watcher: Watcher) -> None:
        """End what still runs: ranks first, those that have stopped too, as MPI would wait for them."""
        for rank, pulse in watcher.pulses.items():
            here = pulse.host == platform.node() and is_held(path_of(self.folder, rank))
            with suppress(ProcessLookupError):
                if here:
                    os.kill(pulse.process, signal.SIGKILL)
        process.kill()  # nothing happens where it has ended
        process.wait()

    def rest(self) -> tuple[int, list[str]]:
        """With how many ranks to go on, and the options that say from where."""
        try:
            facts = json.loads((self.folder / FACTS).read_text())
        except OSError:  # lost before the training began
            return self.ranks, []
        path = Path(facts["checkpoint"])
        written = path.exists() and path.stat().st_mtime_ns != facts["before"]
        return facts["ranks"], ["--resume", str(path)] if written else []


def _interrupted() -> int:
    note("interrupted")
    if "--json" in sys.argv:
        print_json({"errors": [], "interrupted": True})
    return INTERRUPTED


@contextmanager
def _interrupts() -> Generator[list[int]]:
    """The interrupts that come meanwhile."""
    asked: list[int] = []
    usual = signal.signal(signal.SIGINT, lambda number, _: asked.append(number))
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, usual)
