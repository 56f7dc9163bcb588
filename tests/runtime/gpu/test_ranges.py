"""Profilers are told of calls and kernels by NVTX, where that is asked for."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType

import numpy as np
import pytest

from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model
from dlc.errors import UsageError
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.gpu.ranges import NVTX, annotate
from dlc.runtime.model import Model
from tests.runtime.gpu.fake_gpu import fake_gpu

TEXT = """dlc 1
export fn rows(x: f32[4, 5]) -> f32[4, 5] {
  let y = softmax(x)
  return y @ transpose(y) @ x
}
"""


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ranges that a profiler sees, each with those around it."""
    found: list[str] = []
    around: list[str] = []

    @contextmanager
    def annotated(message: str, *, domain: str) -> Generator[None]:
        assert domain == "dlc"
        around.append(message)
        found.append(" > ".join(around))
        yield
        around.pop()

    module = ModuleType("nvtx")
    vars(module)["annotate"] = annotated
    monkeypatch.setitem(sys.modules, "nvtx", module)
    monkeypatch.setenv(NVTX, "1")
    return found


def test_calls_and_their_kernels_are_ranges_named_by_lines(ranges: list[str]) -> None:
    with fake_gpu():
        opened = open_model("rows.dlm", text=TEXT)
        model = Model(compile_model(opened, Settings(target="cuda:sm_80"), "init:0"))
        x = Tensor(np.ones((4, 5), np.float32)).to("cuda")
        for _ in range(5):
            model["rows"](x)
    calls = [each for each in ranges if " > " not in each]
    kernels = [each.removeprefix("rows > ") for each in ranges if " > " in each]
    assert calls == ["rows"] * 5
    # Later calls are graphs.
    assert [each.partition(":")[2][0] for each in kernels] == ["3", "4", "4"]


def test_without_the_variable_there_are_none(
    ranges: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for off in ("", "0"):
        monkeypatch.setenv(NVTX, off)
        with annotate()("a name"):
            pass
    monkeypatch.delenv(NVTX)
    with annotate()("a name"):
        pass
    assert not ranges


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setenv(NVTX, "1")
    with pytest.raises(UsageError, match=r"D0902.*nvtx"):
        annotate()
