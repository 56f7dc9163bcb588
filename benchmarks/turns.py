"""Contenders in processes of their own, which take turns: a disturbance then hits all of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Timer
from types import TracebackType
from typing import IO, Self, cast

ROOT = Path(__file__).parents[1]
TURN_SECONDS = 0.7
"""How long one contender runs before the next has its turn."""
REST_SECONDS = 0.05
"""Until the threads of the one before have stopped spinning."""


class NotReady(Exception):
    """A contender did not come to its first turn in the time that it was given."""


class Process:
    """A running contender: `facts` is what it says about itself, `turns` the milliseconds of its calls,
    turn by turn."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        settings: Mapping[str, str],
        patience: float | None = None,
    ) -> None:
        """Start it and wait until it is ready. Ends the program if it fails.

        Raises NotReady if that takes more than `patience` seconds.
        """
        self.name = name
        # The peers' choice of kernels is left to them; ours must not be crippled either.
        environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
        self._process = subprocess.Popen(
            command,
            env={**environment, "PYTHONPATH": str(ROOT), **settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.facts = cast("dict[str, float]", self._first_line(patience))
        self.turns: list[list[float]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.__exit__(kind, error, trace)

    @property
    def times(self) -> list[float]:
        """The milliseconds of all calls that count."""
        return [spent for turn in self.turns for spent in turn]

    def turn(self, calls: int) -> list[float]:
        """Milliseconds of so many calls."""
        given = cast("IO[str]", self._process.stdin)
        given.write(f"{calls}\n")
        given.flush()
        return cast("list[float]", self._line())

    def _first_line(self, patience: float | None) -> object:
        if patience is None:
            return self._line()
        impatient = Timer(patience, self._process.kill)
        impatient.start()
        try:
            return self._line()
        except SystemExit:
            if impatient.is_alive():
                raise
            raise NotReady(self.name) from None
        finally:
            impatient.cancel()

    def _line(self) -> object:
        line = cast("IO[str]", self._process.stdout).readline()
        if not line:
            with self._process:
                sys.exit(f"{self.name} ended with status {self._process.wait()}")
        return json.loads(line)


def take_turns(
    running: Sequence[Process], rounds: int, seconds: float = TURN_SECONDS, least: int = 3
) -> None:
    """Let the contenders run one after the other, each for about so long and `least` calls, several
    times."""
    for process in running:
        process.turn(2)
    for _ in range(rounds):
        for process in running:
            (once,) = process.turn(1)
            process.turns.append(process.turn(max(least, int(seconds * 1e3 / once))))
            time.sleep(REST_SECONDS)
