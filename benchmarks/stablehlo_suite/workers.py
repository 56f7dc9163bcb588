"""Processes that work through a list, each of which may crash or hang without taking the others along."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar, cast

Task = TypeVar("Task")
Found = TypeVar("Found")

Pipe: TypeAlias = Any

_spawn = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class Lost:
    """What became of a task whose process gave no answer."""

    why: str


class _Worker(Generic[Task, Found]):
    """A process that calls a function, started again after it ended."""

    def __init__(self, function: Callable[[Task], Found]) -> None:
        self._function = function
        self._started: tuple[BaseProcess, Pipe] | None = None

    def ask(self, task: Task, seconds: float) -> Found | Lost:
        process, pipe = self._started or self._start()
        try:
            pipe.send(task)
            if pipe.poll(seconds):
                return cast("Found", pipe.recv())
            why = f"no answer within {seconds:.0f} s"
        except (EOFError, OSError):
            process.join()
            why = f"the process ended with {process.exitcode}"
        self.end()
        return Lost(why)

    def _start(self) -> tuple[BaseProcess, Pipe]:
        ours, theirs = _spawn.Pipe()
        process = _spawn.Process(target=_work, args=(self._function, theirs), daemon=True)
        process.start()
        theirs.close()
        self._started = process, ours
        return self._started

    def end(self) -> None:
        if self._started is not None:
            process, _ = self._started
            process.kill()
            process.join()
            self._started = None


def _work(function: Callable[[Task], Found], pipe: Pipe) -> None:
    while True:
        try:
            task = cast("Task", pipe.recv())
        except EOFError:
            return
        pipe.send(function(task))


def work_through(
    function: Callable[[Task], Found], tasks: Sequence[Task], jobs: int, seconds: float
) -> Iterator[tuple[Task, Found | Lost]]:
    """What a function gives for each task, in the order in which `jobs` processes finish them.

    One that ends its process, or takes longer than `seconds`, gives `Lost`.
    """
    workers = [_Worker[Task, Found](function) for _ in range(jobs)]
    idle: SimpleQueue[_Worker[Task, Found]] = SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def one(task: Task) -> tuple[Task, Found | Lost]:
        worker = idle.get()
        try:
            return task, worker.ask(task, seconds)
        finally:
            idle.put(worker)

    try:
        with ThreadPoolExecutor(jobs) as pool:
            for done in as_completed([pool.submit(one, task) for task in tasks]):
                yield done.result()
    finally:
        for worker in workers:
            worker.end()
