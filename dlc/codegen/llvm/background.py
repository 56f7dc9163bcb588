"""Object files made in the background by further processes, while this one lowers the next kernels.

Not by threads: LLVM's library is used by one thread of a process at a time, and Python by one at a time. A
thread for each process hands it jobs, and always one ahead, so that it need not wait for this process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition, Thread
from types import TracebackType

import llvmlite

from dlc import errors
from dlc.codegen.llvm.object_code import Machine, compile_text

MOST_PROCESSES = 3
"""More would wait for kernels to be lowered."""
AHEAD = 2
"""How many jobs a process has been given at a time."""
PROGRAM = """
import sys
sys.path[:0] = {folders!r}
from dlc.codegen.llvm.worker import serve
serve()
"""


@dataclass(slots=True, eq=False)
class Job:
    """A text to compile, and its object file when that is made."""

    text: str
    machine: Machine
    result: Future[bytes] = field(default_factory=Future[bytes])


class Background:
    """Processes that compile. What none of them has begun when it is needed is compiled here.

    Without a processor to spare, or where no process can be started, all of it is.
    """

    def __init__(self) -> None:
        self._waiting: deque[Job] = deque()
        self._changed = Condition()
        self._closed = False
        spare = len(os.sched_getaffinity(0)) - 1
        started = [_start() for _ in range(min(spare, MOST_PROCESSES))]
        self.processes = [process for process in started if process is not None]
        self._threads = [
            Thread(target=self._feed, args=(process,), daemon=True) for process in self.processes
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Background:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the processes; what they are doing is not needed any more."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
        for process in self.processes:
            process.kill()
        for thread in self._threads:
            thread.join()
        for process in self.processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):  # what was to be sent to it
                        pipe.close()

    def add(self, text: str, machine: Machine) -> Job:
        """A job that is begun as soon as a process has time."""
        job = Job(text, machine)
        with self._changed:
            self._waiting.append(job)
            self._changed.notify()
        return job

    def result(self, job: Job) -> bytes:
        """The object file of a job. Until it is there this process does what no other has begun.

        Raises `InternalError` with the offending line if LLVM refuses the text.
        """
        while not job.result.done():
            other = self._take_last()
            if other is None:
                break
            other.result.set_result(compile_text(other.text, other.machine))
        return job.result.result() or compile_text(job.text, job.machine)

    def _take_last(self) -> Job | None:
        with self._changed:
            return self._waiting.pop() if self._waiting else None

    def _take_first(self, *, wait: bool) -> Job | None:
        """The next job for a process; None where there is none, or there will be no more."""
        with self._changed:
            while wait and not self._waiting and not self._closed:
                self._changed.wait()
            return self._waiting.popleft() if self._waiting else None

    def _feed(self, process: subprocess.Popen[bytes]) -> None:
        """Give jobs to a process. Those of one that has ended are left to this process."""
        given: deque[Job] = deque()
        try:
            while True:
                while len(given) < AHEAD:
                    job = self._take_first(wait=not given)
                    if job is None:
                        break
                    given.append(job)
                    _send(process, job)
                if not given:
                    return
                made = _receive(process)
                given.popleft().result.set_result(made)
        except (OSError, ValueError):  # it has ended, or says what no such process says
            for job in given:
                job.result.set_result(b"")


def _start() -> subprocess.Popen[bytes] | None:
    """A process that compiles; None where that is impossible.

    It sees none of the environment's settings for Python, and finds the two packages that it needs.
    """
    packages = [Path(str(package.__file__)).parent for package in (errors, llvmlite)]
    folders = [str(packages[0].parents[1]), str(packages[1].parent)]
    options = ["-I", "-S", "-B"]
    if sys.pycache_prefix is not None:
        options += ["-X", f"pycache_prefix={sys.pycache_prefix}"]
    if not sys.executable:
        return None
    command = [sys.executable, *options, "-c", PROGRAM.format(folders=folders)]
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return None


def _send(process: subprocess.Popen[bytes], job: Job) -> None:
    assert process.stdin is not None
    text = job.text.encode()
    process.stdin.write(json.dumps([*job.machine, len(text)]).encode() + b"\n" + text)
    process.stdin.flush()


def _receive(process: subprocess.Popen[bytes]) -> bytes:
    """An object file. Raises ConnectionError where the process has ended."""
    assert process.stdout is not None
    line = process.stdout.readline()
    made = process.stdout.read(int(line)) if line else b""
    if not line or len(made) < int(line):
        raise ConnectionError("the process has ended")
    return made
