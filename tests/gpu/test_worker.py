"""A test on a GPU that fails, hangs or ends its process leaves the GPU to the next one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from dlc.errors import CallError
from dlc.runtime.cuda.driver import Driver
from dlc.runtime.cuda.nvidia import OPENED
from tests.gpu.cases import Case
from tests.gpu.worker import CaseFailed, Worker
from tests.gpu.workshop import NotCompiled, Workshop


def nothing() -> None: ...


def differ() -> None:
    raise AssertionError("1 is not 2")


def hang() -> None:
    time.sleep(1000)


def die() -> None:
    os._exit(3)


class Lost:
    """A GPU after an illegal address."""

    def synchronize_all(self) -> None:
        raise CallError("the GPU's driver refuses cuCtxSynchronize")


def lose() -> None:
    OPENED[0] = cast(Driver, Lost())
    raise CallError("the GPU's driver refuses cuStreamSynchronize")


@dataclass(frozen=True)
class Done:
    """A case whose check, or whose compilation, is a function."""

    do: Callable[[], None] = nothing
    make: Callable[[], None] = nothing
    title: str = "done"
    seconds: float = 60

    def compile(self, target: str) -> list[bytes]:
        self.make()
        return [target.encode()]

    def check(self, artifacts: Sequence[bytes]) -> None:
        assert artifacts == [b"cuda"]
        self.do()


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as made:
        yield made


@pytest.mark.parametrize(
    ("do", "why", "starts"),
    [
        (nothing, None, 0),
        (differ, "AssertionError: 1 is not 2", 0),
        (hang, "no answer in 2 s: the process of the test was ended", 1),
        (die, "the process of the test ended with status 3", 1),
        (lose, "CallError: .*cuStreamSynchronize", 1),
    ],
)
def test_the_next_case_can_be_checked_after_any(
    worker: Worker, tmp_path: Path, do: Callable[[], None], why: str | None, starts: int
) -> None:
    def artifacts(name: str) -> list[Path]:
        (tmp_path / name).write_bytes(b"cuda")
        return [tmp_path / name]

    before = worker.starts
    if why is None:
        worker.check(Done(do), artifacts("first"), 60)
    else:
        with pytest.raises(CaseFailed, match=why):
            worker.check(Done(do), artifacts("first"), 2)
    assert worker.starts == before + starts
    worker.check(Done(), artifacts("second"), 60)


def test_a_workshop_ends_without_what_is_under_way() -> None:
    begin = time.monotonic()
    with Workshop("cuda", processes=1) as workshop:
        case: Case = Done(make=hang)
        workshop.begin([case])
        with pytest.raises(NotCompiled, match="done is not compiled after 0 s"):
            workshop.artifacts(case, 0.1)
    assert time.monotonic() - begin < 100
