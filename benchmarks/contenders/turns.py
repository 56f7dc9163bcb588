"""Contenders in processes of their own, which take turns: a disturbance then hits all of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Timer
from types import TracebackType
from typing import IO, Self, cast

ROOT = Path(__file__).parents[2]
TURN_SECONDS = 0.7
"""How long one contender runs before the next has its turn."""
REST_SECONDS = 0.05
"""Until the threads of the one before have stopped spinning."""
GRACE_SECONDS = 10.0
"""How long a contender may take to end by itself."""


class NotReady(Exception):
    """A contender did not answer in the time that it was given."""


class Process:
    """A running contender: `facts` is what it says about itself, `turns` the milliseconds of its calls,
    turn by turn.

    It leads a process group, which ends with it: workers that a compiler has started would go on using the
    device that the others are timed on.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        settings: Mapping[str, str],
        patience: float | None = None,
    ) -> None:
        """Start it and wait until it is ready. Ends the program if it fails.

        Raises NotReady if that, or a later answer, takes more than `patience` seconds.
        """
        self.name = name
        self._patience = patience
        # The peers' choice of kernels is left to them; ours must not be crippled either.
        environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
        self._process = subprocess.Popen(
            command,
            env={**environment, "PYTHONPATH": python_path(), **settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.facts = cast("dict[str, float]", self._answer())
        self.turns: list[list[float]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):
                cast("IO[str]", pipe).close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_SECONDS)
        self._end()

    def _end(self) -> None:
        """End the whole process group, of which others may live on when its leader has ended."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    @property
    def times(self) -> list[float]:
        """The milliseconds of all calls that count."""
        return [spent for turn in self.turns for spent in turn]

    def turn(self, calls: int) -> list[float]:
        """The milliseconds of each of `calls` calls."""
        given = cast("IO[str]", self._process.stdin)
        given.write(f"{calls}\n")
        given.flush()
        return cast("list[float]", self._answer())

    def _answer(self) -> object:
        """The next line that it prints, read as JSON. Ends the program if there is none.

        Raises NotReady if it takes longer than the patience.
        """
        late = Event()

        def end() -> None:
            late.set()
            self._end()

        impatient = None if self._patience is None else Timer(self._patience, end)
        if impatient is not None:
            impatient.start()
        line = cast("IO[str]", self._process.stdout).readline()
        if impatient is not None:
            impatient.cancel()
            impatient.join()
        if line:
            return json.loads(line)
        self.__exit__(None, None, None)
        if late.is_set():
            raise NotReady(self.name)
        sys.exit(f"{self.name} ended with status {self._process.returncode}")


def python_path() -> str:
    """What PYTHONPATH is for a process that imports from this checkout: it comes before what was set."""
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def ranked(ranks: int, *command: str) -> list[str]:
    """The command that starts a module of this environment as `ranks` ranks.

    An error that one of them does not catch ends all, which would wait for it otherwise.
    """
    if ranks < 2:
        return [sys.executable, "-m", *command]
    mpiexec = Path(sys.executable).with_name("mpiexec")
    return [str(mpiexec), "-n", str(ranks), sys.executable, "-m", "mpi4py", "-m", *command]


def take_turns(
    running: Sequence[Process],
    rounds: int,
    seconds: float = TURN_SECONDS,
    least: int = 3,
    end: float = float("inf"),
) -> None:
    """Let the contenders run one after the other, each for about so long and `least` calls, several
    times.

    After the first round none begins once `time.monotonic` is at `end`.
    """
    for process in running:
        process.turn(2)
    for number in range(rounds):
        if number and time.monotonic() >= end:
            return
        for process in running:
            (once,) = process.turn(1)
            process.turns.append(process.turn(max(least, int(seconds * 1e3 / once))) or [once])
            time.sleep(REST_SECONDS)
