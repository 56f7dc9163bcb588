"""What fails on a machine of a processor and a GPU is told as on one device: by its line and operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model
from dlc.errors import CallError, Diagnostic
from dlc.runtime.gpu.errors import WAIT
from dlc.runtime.hetero.entry import HeteroEntryPoint
from dlc.runtime.model import Model
from tests.runtime.gpu.fake_gpu import FakeGpu, fake_gpu
from tests.suites import each_value

TEXT = """dlc 1
dim N = 1..8
export fn by_processor(x: f32[N], i: i32[4]) -> f32[4] {
  let y = on DEVICE { exp(x) }
  return y[i] * 2
}
export fn by_gpu(x: f32[N], i: i32[4]) -> f32[4] {
  let y = sin(x)
  let z = on DEVICE { y[i] * 3 }
  return z * 2
}
export fn in_rounds(x: f32[N], i: i32[4]) -> f32[4] {
  return scan k in i with h = zeros([4]) {
    let y = on DEVICE { exp(x)[i * 0 + k] }
    next h = h + y
  }
}
export fn endless(x: f32[N], i: i32[4]) -> f32[N] =
  while sum(y) + f32(sum(i)) > 0 with y = x limit 20 { next y = on DEVICE { y + 1 } }
"""
X = np.ones(5, np.float32)
BEYOND = np.array([0, 1, 7, 2], np.int32)
GOOD = np.array([0, 1, 4, 2], np.int32)


@pytest.fixture(scope="module")
def gpu() -> Iterator[FakeGpu]:
    with fake_gpu() as found:
        yield found


def placed(device: str, level: int = 2) -> Model:
    opened = open_model("net.dlm", text=TEXT.replace("DEVICE", device))
    return Model(compile_model(opened, Settings(level)), threads=2)


def failure(call: Callable[[], object]) -> Diagnostic:
    with pytest.raises(CallError) as caught:
        call()
    (said,) = caught.value.diagnostics
    return said


@pytest.mark.parametrize(
    ("level", "entry"),
    each_value([0, 2], ["by_processor", "by_gpu", "in_rounds", "endless"]),
)
def test_a_failure_is_told_as_on_one_device(gpu: FakeGpu, entry: str, level: int) -> None:
    alone, beside = placed("cpu", level), placed("cuda:0", level)
    on_one = failure(lambda: alone[entry](X, BEYOND))
    on_both = failure(lambda: beside[entry](X, BEYOND))
    assert (on_both.code, on_both.message) == (on_one.code, on_one.message)
    assert on_one.place is not None
    assert on_both.place is not None
    assert on_both.place.line == on_one.place.line


def test_a_kernel_that_the_driver_refuses_is_told_by_its_line(gpu: FakeGpu) -> None:
    model = placed("cuda:0")
    model.by_gpu(X, GOOD)
    gpu.refuses = gpu.launched[-1]
    said = failure(lambda: model.by_gpu(X, GOOD))
    entry = model["by_gpu"]
    assert isinstance(entry, HeteroEntryPoint)
    timed = failure(lambda: entry.timed(X, GOOD))
    gpu.refuses = None
    assert not gpu.is_busy
    for each in (said, timed):
        assert each.code == "D0818"
        assert each.message.startswith("by_gpu: ")
        assert each.place is not None
        assert (each.place.file, each.place.line) == ("net.dlm", 9)
    model.by_gpu(X, GOOD)


def test_one_that_fails_later_is_told_by_its_line_where_each_is_waited_for(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said() -> Diagnostic:
        model = placed("cuda:0")
        model.by_gpu(X, GOOD)
        gpu.fails = gpu.launched[-1]
        try:
            return failure(lambda: model.by_gpu(X, GOOD))
        finally:
            gpu.fails = None

    somewhere = said()
    assert somewhere.place is None
    assert somewhere.help is not None
    assert f"with {WAIT}=1 in the environment" in somewhere.help
    monkeypatch.setenv(WAIT, "1")
    there = said()
    assert there.code == "D0818"
    assert there.place is not None
    assert there.place.line == 9
