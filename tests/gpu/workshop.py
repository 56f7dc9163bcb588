"""Compiles cases for the GPU of this machine, in as many processes as it has processors."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from types import TracebackType
from typing import Self

from tests.gpu.cases import Case


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
        # Not by fork: a process that has spoken with a GPU cannot be copied.
        self._pool = ProcessPoolExecutor(processes or os.cpu_count(), get_context("spawn"))
        self._folder = TemporaryDirectory()
        self._made: dict[Case, Future[list[Path]]] = {}

    def begin(self, cases: Iterable[Case]) -> None:
        """Compile these in this order."""
        for case in cases:
            if case not in self._made:
                folder = Path(self._folder.name)
                self._made[case] = self._pool.submit(_compile, case, self._target, folder)

    def artifacts(self, case: Case) -> list[bytes]:
        """What was compiled, as soon as it is there; it is not kept."""
        self.begin([case])
        files = self._made.pop(case).result()
        found = [file.read_bytes() for file in files]
        for file in files:
            file.unlink()
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._folder.cleanup()
