"""Compiles cases for a GPU, in as many processes as there are processors for this one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from multiprocessing import TimeoutError, get_context
from multiprocessing.pool import AsyncResult
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from types import TracebackType
from typing import Self

from tests.gpu.cases import Case

PATIENCE = 300.0
"""Seconds that compiling a case may take, beside the others."""


class NotCompiled(Exception):
    """A case was not compiled in time."""


def _compile(case: Case, target: str, folder: Path) -> list[Path]:
    """The artifacts of a case as files: those of large networks are too large to be handed over."""
    made = Path(mkdtemp(dir=folder))
    found: list[Path] = []
    for number, data in enumerate(case.compile(target)):
        found.append(made / f"{number}.dlc")
        found[-1].write_bytes(data)
    return found


class Workshop:
    """Compiles cases ahead of the tests that want them."""

    def __init__(self, target: str, processes: int | None = None) -> None:
        self._target = target
        # Not by fork: a process that has spoken with a GPU cannot be copied. Not with an executor, which
        # waits at its end for what is under way: a large network takes longer than there may be time.
        self._pool = get_context("spawn").Pool(processes or len(os.sched_getaffinity(0)))
        self._folder = TemporaryDirectory(ignore_cleanup_errors=True)
        self._made: dict[Case, AsyncResult[list[Path]]] = {}

    def begin(self, cases: Iterable[Case]) -> None:
        """Compile these in this order."""
        for case in cases:
            if case not in self._made:
                given = (case, self._target, Path(self._folder.name))
                self._made[case] = self._pool.apply_async(_compile, given)

    def artifacts(self, case: Case, patience: float = PATIENCE) -> Sequence[Path]:
        """What was compiled, as soon as it is there. Raises NotCompiled after so many seconds."""
        self.begin([case])
        try:
            return self._made.pop(case).get(patience)
        except TimeoutError:
            raise NotCompiled(f"{case.title} is not compiled after {patience:.0f} s") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.terminate()
        self._pool.join()
        self._folder.cleanup()
