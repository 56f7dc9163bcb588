"""Cases in worker processes, so that one that crashes or hangs is noticed and ends nothing else."""

from __future__ import annotations

import faulthandler
import gc
import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.fuzz.cases import Check, Outcome, attempt
from benchmarks.fuzz.waiting import queued

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""What ends a run, between two cases."""
STARTING = 300.0
"""Seconds that a process may take until it is ready, in which environments of peers may be made."""
BUSY = 30
"""How many times its seconds a case may take where others keep the processors busy."""
LOOK_SECONDS = 1.0
"""How often processes are looked at, at least."""
STACK_SECONDS = 1.0
"""How long a process that is late may take to write where its threads are."""
GARBAGE = 20
"""Cases between two searches for garbage, which take as long for few objects as for many."""

Started: TypeAlias = Callable[[], Check]


def _work(start: Started, connection: Connection[Any, Any], stacks: Path) -> None:
    """The life of a process: it answers seeds with outcomes until None comes."""
    # The parent tells when to end. What is started here has the usual signals: only SIG_IGN is inherited.
    for number in SIGNALS:
        signal.signal(number, lambda number, frame: None)
    with stacks.open("w") as file:
        faulthandler.register(signal.SIGUSR1, file=file)
        check = start()
        gc.freeze()
        gc.disable()
        connection.send(os.getpid())
        for number in itertools.count(1):
            seed = connection.recv()
            if seed is None:
                return
            connection.send(attempt(check, seed))
            if number % GARBAGE == 0:
                gc.collect()


@dataclass(slots=True)
class Clock:
    """Counts seconds while this process runs and is asked for them, not those in which it was stopped.

    Between two looks at most `2 * LOOK_SECONDS` pass.
    """

    _seen: float = field(default_factory=time.monotonic)
    _total: float = 0.0

    def now(self) -> float:
        """Seconds since it was made."""
        now = time.monotonic()
        self._total += min(now - self._seen, 2 * LOOK_SECONDS)
        self._seen = now
        return self._total


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    connection: Any
    stacks: Path
    """Where it writes its stacks when it is told to."""
    clock: Clock
    begun: float
    allowed: float = STARTING
    """Seconds that it has for its answer, less those in which it waits for a processor."""
    queued: float = 0.0
    """Seconds that it had waited for a processor when it began."""
    until: float = 0.0
    """When to look whether it is late."""
    seed: int | None = None
    """The case that it has."""
    ready: bool = False
    done: int = 0

    @classmethod
    def started(cls, start: Started, clock: Clock) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        handle, name = tempfile.mkstemp(prefix="stacks-")
        os.close(handle)
        process = context.Process(target=_work, args=(start, theirs, Path(name)))
        process.start()
        theirs.close()
        worker = cls(process, ours, Path(name), clock, clock.now())
        worker.until = worker.begun + STARTING
        return worker

    def give(self, seed: int, seconds: float) -> None:
        """Give it a case."""
        self.seed, self.allowed, self.begun = seed, seconds, self.clock.now()
        self.queued, self.until = queued(self._pid), self.begun + seconds
        self.connection.send(seed)

    def is_late(self) -> bool:
        """Whether it has had its seconds; otherwise it is looked at again when it may have had them.

        Time in which others have the processors does not count, up to `BUSY` times its seconds.
        """
        now = self.clock.now()
        waited = max(0.0, queued(self._pid) - self.queued)
        left = self.allowed - (now - self.begun - waited)
        if left <= 0 or now - self.begun > BUSY * self.allowed:
            return True
        self.until = now + max(left, 0.1)
        return False

    def where(self) -> str:
        """Where its threads are."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGUSR1)
            time.sleep(STACK_SECONDS)
        with suppress(OSError):
            return self.stacks.read_text()
        return ""

    @property
    def _pid(self) -> int:
        return self.process.pid or 0

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
        self.stacks.unlink(missing_ok=True)


@dataclass(slots=True)
class Pool:
    """Runs cases in `jobs` processes, each for at most `recycled` ones.

    A case that takes longer than `seconds` counts as hung.
    """

    start: Started
    jobs: int
    seconds: float
    recycled: int = 1_000
    _workers: list[_Worker] = field(default_factory=list[_Worker])
    _clock: Clock = field(default_factory=Clock)

    def outcomes(self, seeds: Iterable[int]) -> Iterator[tuple[int, Outcome]]:
        """Each case with what became of it, as they end; a seed is taken when its case begins.

        Raises RuntimeError for processes that do not even start.
        """
        waiting = iter(seeds)
        self._workers = [_Worker.started(self.start, self._clock) for _ in range(self.jobs)]
        try:
            while self._workers:
                for worker in self._heard():
                    yield from self._answer(worker)
                    self._next(worker, waiting)
        finally:
            for worker in self._workers:
                worker.end(kill=worker.seed is not None or not worker.ready)

    def _heard(self) -> list[_Worker]:
        """Those that answered, ended, or are late."""
        soon = min(worker.until for worker in self._workers) - self._clock.now()
        ready = multiprocessing.connection.wait(
            [worker.connection for worker in self._workers], min(max(soon, 0.0), LOOK_SECONDS)
        )
        now = self._clock.now()
        return [
            worker
            for worker in self._workers
            if worker.connection in ready or (worker.until <= now and worker.is_late())
        ]

    def _answer(self, worker: _Worker) -> Iterator[tuple[int, Outcome]]:
        """What a process says of the case that it had; one that cannot say it is replaced."""
        seed = worker.seed
        try:
            if not worker.connection.poll():
                raise TimeoutError
            said = worker.connection.recv()
        except (EOFError, ConnectionError, TimeoutError) as error:
            late = isinstance(error, TimeoutError)
            where = worker.where() if late else ""
            worker.end(kill=late)
            if seed is None:
                raise RuntimeError(f"a process of the fuzzer did not start\n{where}") from error
            why = f"no answer within {self.seconds:g} s" if late else _ending(worker.process)
            if where:
                why = f"{why}\n{where}"
            self._replace(worker)
            yield seed, Outcome("crashed", why)
            return
        worker.ready, worker.seed = True, None
        if seed is not None:
            worker.done += 1
            yield seed, said

    def _replace(self, worker: _Worker) -> None:
        self._workers[self._workers.index(worker)] = _Worker.started(self.start, self._clock)

    def _next(self, worker: _Worker, waiting: Iterator[int]) -> None:
        """Give a process the next case, or end it where there is none."""
        if worker not in self._workers:
            return
        if worker.done >= self.recycled:
            worker.end()
            self._replace(worker)  # it gets a case as soon as it is ready
            return
        seed = next(waiting, None)
        if seed is None:
            self._workers.remove(worker)
            worker.end()
            return
        worker.give(seed, self.seconds)


def _ending(process: BaseProcess) -> str:
    """How a process ended."""
    code = process.exitcode
    if code is not None and code < 0:
        return f"the process was ended by {signal.Signals(-code).name}"
    return f"the process ended with {code}"
