"""Checks cases in a process of its own, so that a kernel that fails or hangs spoils no other test.

After an illegal address or a failed launch, every call of the process to the GPU ends with the same error.
The worker tries the GPU after each test that fails, and is started anew where it does not work, where the
worker has ended, or where a test has taken its time.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Self

from dlc.errors import CallError
from dlc.runtime.cuda.nvidia import OPENED
from tests.gpu.cases import Case

START = 60.0
"""Seconds that Python may take to start in the worker, beside processes that compile."""


class CaseFailed(Exception):
    """A case failed in the worker; the message is what is to be read."""


class Worker:
    """One process that checks a case at a time."""

    def __init__(self) -> None:
        self._context = get_context("spawn")
        self.starts = 0
        """How often a process was started."""
        self._start()

    def _start(self) -> None:
        self._pipe, theirs = self._context.Pipe()
        self._process = self._context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._is_ready = False
        self.starts += 1

    def check(self, case: Case, artifacts: Sequence[Path], seconds: float) -> None:
        """Check a case. Raises CaseFailed, also where it takes longer than so many seconds."""
        try:
            if not self._is_ready:
                self._answer(START)
                self._is_ready = True
            self._pipe.send((case, artifacts))
            why, is_lost = self._answer(seconds)
        except (EOFError, BrokenPipeError):
            self._process.join()
            status = self._process.exitcode
            self._restart()
            raise CaseFailed(f"the process of the test ended with status {status}") from None
        if is_lost:
            self._restart()
        if why:
            raise CaseFailed(why)

    def _answer(self, seconds: float) -> tuple[str, bool]:
        if not self._pipe.poll(seconds):
            self._restart()
            raise CaseFailed(f"no answer in {seconds:.0f} s: the process of the test was ended")
        answer: tuple[str, bool] = self._pipe.recv()
        return answer

    def _restart(self) -> None:
        self._end()
        self._start()

    def _end(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()


def _serve(pipe: Connection) -> None:
    """Check case after case; answer with what went wrong, and whether the GPU is lost for this process."""
    pipe.send(("", False))
    while True:
        try:
            case, artifacts = pipe.recv()
        except EOFError:
            return
        try:
            case.check([file.read_bytes() for file in artifacts])
        except BaseException as error:  # noqa: BLE001  pytest's failures are no Exceptions
            why = f"{type(error).__name__}: {error}".strip()
            pipe.send((f"{why}\n\n{traceback.format_exc()}", _is_lost()))
        else:
            pipe.send(("", False))
        for file in artifacts:
            os.unlink(file)


def _is_lost() -> bool:
    """Whether a GPU that this process has used does not work any more."""
    try:
        for driver in OPENED.values():
            driver.synchronize_all()
    except CallError:
        return True
    return False
