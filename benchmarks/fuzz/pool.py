"""Cases in worker processes, so that one that crashes or hangs is noticed and ends nothing else."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias

from benchmarks.fuzz.cases import Check, Outcome, attempt

RECYCLED = 1_000
"""Cases after which a process makes room for a fresh one: what leaks or is only ever added ends there."""
STARTING = 300.0
"""Seconds that a process may take until it is ready, in which environments of peers may be made."""

Started: TypeAlias = Callable[[], Check]


def _work(start: Started, connection: Connection[Any, Any]) -> None:
    """The life of a process: it answers seeds with outcomes until None comes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent tells when to end
    check = start()
    connection.send(os.getpid())
    while (seed := connection.recv()) is not None:
        connection.send(attempt(check, seed))


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    connection: Any
    until: float
    """When it is late with its answer."""
    seed: int | None = None
    """The case that it has."""
    ready: bool = False
    done: int = 0

    @classmethod
    def started(cls, start: Started) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(start, theirs))
        process.start()
        theirs.close()
        return cls(process, ours, time.monotonic() + STARTING)

    def end(self, *, kill: bool = False) -> None:
        if kill:
            self.process.kill()
        elif self.process.is_alive():
            with suppress(OSError):  # it has ended by itself, which is what is wanted
                self.connection.send(None)
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.connection.close()


@dataclass(slots=True)
class Pool:
    """Runs cases in `jobs` processes; a case that takes longer than `seconds` counts as hung."""

    start: Started
    jobs: int
    seconds: float
    _workers: list[_Worker] = field(default_factory=list[_Worker])

    def outcomes(
        self, seeds: Iterable[int], until: float | None = None
    ) -> Iterator[tuple[int, Outcome]]:
        """Each case with what became of it, as they end; none is begun after `until`.

        Raises RuntimeError for processes that do not even start.
        """
        waiting = iter(seeds)
        self._workers = [_Worker.started(self.start) for _ in range(self.jobs)]
        try:
            while self._workers:
                for worker in self._heard():
                    yield from self._answer(worker)
                    self._next(worker, waiting, until)
        finally:
            for worker in self._workers:
                worker.end(kill=worker.seed is not None or not worker.ready)

    def _heard(self) -> list[_Worker]:
        """Those that answered, ended, or are late."""
        timeout = max(0.0, min(worker.until for worker in self._workers) - time.monotonic())
        ready = multiprocessing.connection.wait(
            [worker.connection for worker in self._workers], timeout
        )
        now = time.monotonic()
        return [w for w in self._workers if w.connection in ready or w.until <= now]

    def _answer(self, worker: _Worker) -> Iterator[tuple[int, Outcome]]:
        """What a process says of the case that it had; one that cannot say it is replaced."""
        seed = worker.seed
        try:
            if not worker.connection.poll():
                raise TimeoutError
            said = worker.connection.recv()
        except (EOFError, ConnectionError, TimeoutError) as error:
            late = isinstance(error, TimeoutError)
            worker.end(kill=late)
            if seed is None:
                raise RuntimeError("a process of the fuzzer did not start") from error
            why = f"no answer within {self.seconds:g} s" if late else _ending(worker.process)
            self._replace(worker)
            yield seed, Outcome("crashed", why)
            return
        worker.ready, worker.seed = True, None
        if seed is not None:
            worker.done += 1
            yield seed, said

    def _replace(self, worker: _Worker) -> None:
        self._workers[self._workers.index(worker)] = _Worker.started(self.start)

    def _next(self, worker: _Worker, waiting: Iterator[int], until: float | None) -> None:
        """Give a process the next case, or end it where there is none."""
        if worker not in self._workers:
            return
        seed = None if until is not None and time.monotonic() >= until else next(waiting, None)
        if seed is None:
            self._workers.remove(worker)
            worker.end()
            return
        if worker.done >= RECYCLED:
            worker.end()
            fresh = _Worker.started(self.start)
            fresh.connection.recv()  # it is ready
            fresh.ready = True
            self._workers[self._workers.index(worker)] = fresh
            worker = fresh
        worker.seed, worker.until = seed, time.monotonic() + self.seconds
        worker.connection.send(seed)


def _ending(process: BaseProcess) -> str:
    """How a process ended."""
    code = process.exitcode
    if code is not None and code < 0:
        return f"the process was ended by {signal.Signals(-code).name}"
    return f"the process ended with {code}"
