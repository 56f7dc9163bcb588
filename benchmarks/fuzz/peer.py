"""A long-lived process in the environment of a peer, which answers pickled requests."""

from __future__ import annotations

import atexit
import pickle
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, cast

from benchmarks.contenders.environment import python_with


class NoAnswer(Exception):
    """The peer cannot run a case; the text says why."""


class Peer:
    """A program of this folder, started in an environment with some packages when it is first asked."""

    def __init__(self, program: str, name: str, *packages: Sequence[str]) -> None:
        self._program, self._name, self._packages = program, name, packages
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it now, and wait until it can answer: its imports are not part of a case."""
        self.ask()

    def ask(self, *request: object) -> Any:  # noqa: ANN401 - what the program gives
        """Its answer; none to an empty request. Raises NoAnswer where it cannot run the case or ended."""
        process = self._started()
        try:
            pickle.dump(request, cast("IO[bytes]", process.stdin))
            cast("IO[bytes]", process.stdin).flush()
            reply = pickle.load(cast("IO[bytes]", process.stdout))
        except (EOFError, OSError) as error:
            self._process = None
            raise NoAnswer(f"{self._program} ended with {process.wait()}") from error
        if isinstance(reply, str):
            raise NoAnswer(reply)
        return reply

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            python = python_with(self._name, *self._packages)
            path = str(Path(__file__).parent / self._program)
            pipe = subprocess.PIPE
            # Signals to the group of the fuzzer, such as Ctrl-C, are none for the peer.
            self._process = subprocess.Popen(
                [python, path], stdin=pipe, stdout=pipe, process_group=0
            )
            atexit.register(self._end, self._process)
        return self._process

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        """Let it end, and wait for it, so that its time is counted."""
        cast("IO[bytes]", process.stdin).close()
        process.wait()
