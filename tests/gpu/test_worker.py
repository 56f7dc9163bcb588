"""A test on a GPU that fails, hangs or ends its process leaves the GPU to the next one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import pytest

import dlc
from dlc.errors import CallError
from dlc.runtime.cuda.driver import Driver
from dlc.runtime.cuda.nvidia import OPENED
from tests.gpu.cases import Case
from tests.gpu.worker import CaseFailed, Worker
from tests.gpu.workshop import NotCompiled, Workshop
from tests.runtime.cuda.stub import library
from tests.suites import every

TWO_KERNELS = """dlc 1
export fn f(x: f32[2, 3]) -> f32[2, 3] = softmax(x * sum(x))
"""


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
    every(
        4,
        [
            (nothing, None, 0),
            (differ, "AssertionError: 1 is not 2", 0),
            (hang, "no answer in 2 s: the process of the test was ended", 1),
            (die, "the process of the test ended with status 3", 1),
            (lose, "CallError: .*cuStreamSynchronize", 1),
        ],
    ),
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


def work_on_the_stub(status: int = 0, seconds: float = 0) -> None:
    """Call a model, where the driver is the stub; its second kernel ends so, after so long."""

    stub = library.Stub()
    second = stub["launches"] + 2

    def in_kernel(number: int) -> int:
        time.sleep(seconds if number == second else 0)
        return status if number == second else 0

    stub.evaluate()
    stub.in_kernel = in_kernel
    model = dlc.compile(text=TWO_KERNELS, target="cuda:sm_80")
    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(np.asarray(model.f(x)), np.full((2, 3), 1 / 3), rtol=1e-6)


@pytest.mark.long
def test_a_kernel_that_fails_or_hangs_leaves_the_driver_to_the_next_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if library.compiler() is None:
        pytest.skip("there is no C compiler to build the stub of the driver with")
    library.build(tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("DLC_CACHE", "")
    with Worker() as worker:
        for work, why in (
            (partial(work_on_the_stub, 700), "this process cannot use the GPU any more"),
            (partial(work_on_the_stub, 0, 1000), "no answer in 20 s"),
        ):
            before = worker.starts
            artifacts = [tmp_path / f"{which}{before}" for which in ("failing", "next")]
            for artifact in artifacts:
                artifact.write_bytes(b"cuda")
            with pytest.raises(CaseFailed, match=why):
                worker.check(Done(work), artifacts[:1], 20)
            assert worker.starts == before + 1
            worker.check(Done(work_on_the_stub), artifacts[1:], 60)


def test_a_workshop_ends_without_what_is_under_way() -> None:
    begin = time.monotonic()
    with Workshop("cuda", processes=1) as workshop:
        case: Case = Done(make=hang)
        workshop.begin([case])
        with pytest.raises(NotCompiled, match="done is not compiled after 0 s"):
            workshop.artifacts(case, 0.1)
    assert time.monotonic() - begin < 100
