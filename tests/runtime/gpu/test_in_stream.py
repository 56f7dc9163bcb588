"""Calls in a stream of the caller's: nobody waits for them, and what fails is raised later."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model
from dlc.errors import CallError, Unsupported, UsageError
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.gpu.in_stream import stream_handle
from dlc.runtime.model import Model
from tests.runtime.gpu.fake_gpu import FakeGpu, fake_gpu

Array = NDArray[np.generic]

TEXT = """dlc 1
dim B = 1..64
export fn rows(x: f32[B, 5]) -> f32[B, 5] = softmax(relu(x) * sum(x))
export fn picked(x: f32[6], i: i64[B]) -> f32[B] = x[i]
"""


def model_for(target: str) -> Model:
    opened = open_model("rows.dlm", text=TEXT)
    return Model(compile_model(opened, Settings(target=target), "init:0"), threads=1)


@pytest.fixture(scope="module")
def gpu() -> Iterator[FakeGpu]:
    with fake_gpu() as fake:
        yield fake


@pytest.fixture(scope="module")
def model(gpu: FakeGpu) -> Model:
    return model_for("cuda:sm_80")


def there(array: Array) -> Tensor:
    return Tensor(array).to("cuda")


def numbers(count: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((count, 5)).astype(np.float32)


def test_a_call_returns_before_its_work_is_done(gpu: FakeGpu, model: Model) -> None:
    stream = gpu.create_stream()
    calls = model["rows"].in_stream(stream)
    on_cpu = model_for("cpu")
    held: list[object] = []  # what nobody holds any more is waited for
    # Sizes that grow move the arena; the third call of a size launches a graph.
    for count in (2, 2, 2, 40, 2):
        x = numbers(count, count)
        here = there(x)
        given = calls(here)
        held += [here, given]
        assert gpu.is_busy
        with gpu:
            gpu.synchronize(stream)
        wanted = np.asarray(on_cpu["rows"](x), np.float64)
        np.testing.assert_allclose(np.asarray(given, np.float64), wanted, rtol=1e-5, atol=1e-6)


def test_arguments_and_results_live_until_the_work_is_done(gpu: FakeGpu, model: Model) -> None:
    stream = gpu.create_stream()
    calls = model["rows"].in_stream(stream)
    x = numbers(3)
    given = [calls(calls(there(x))) for _ in range(3)]
    gc.collect()
    on_cpu = model_for("cpu")["rows"]
    wanted = np.asarray(on_cpu(np.asarray(on_cpu(x))))
    with gpu:
        gpu.synchronize(stream)
    for each in given:
        np.testing.assert_allclose(np.asarray(each), wanted, rtol=1e-5, atol=1e-6)


def test_a_function_that_is_dropped_leaves_its_calls_what_they_use(gpu: FakeGpu) -> None:
    stream = gpu.create_stream()
    x = numbers(3)
    given = model_for("cuda:sm_80")["rows"].in_stream(stream)(there(x))
    gc.collect()
    frames = len(gpu.retired)
    with gpu:
        gpu.synchronize(stream)
    wanted = np.asarray(model_for("cpu")["rows"](x))
    np.testing.assert_allclose(np.asarray(given), wanted, rtol=1e-5, atol=1e-6)
    there(np.zeros(1 << 20, np.float32))  # an allocation waits for the device
    assert frames
    assert not gpu.retired


def test_functions_of_a_model_are_dropped_one_by_one(gpu: FakeGpu, model: Model) -> None:
    stream, x = gpu.create_stream(), there(numbers(3))
    held = set[int]()
    for _ in range(4):
        model["rows"].in_stream(stream)(x)
        gc.collect()
        there(np.zeros(1 << 20, np.float32))
        held.add(len(gpu.allocated))
    assert len(held) == 1


def test_what_a_call_has_failed_with_is_raised_by_the_next_one_and_then_forgotten(
    gpu: FakeGpu, model: Model
) -> None:
    stream = gpu.create_stream()
    calls = model["picked"].in_stream(stream)
    x, good, bad = there(np.arange(6, dtype=np.float32)), np.array([5, 0]), np.array([1, 7])
    calls(x, there(bad))
    with gpu:
        gpu.synchronize(stream)
    with pytest.raises(CallError, match="D0807"):
        calls(x, there(good))
    given = calls(x, there(good))
    calls.wait()
    np.testing.assert_array_equal(np.asarray(given), [5, 0])
    calls(x, there(bad))
    with pytest.raises(CallError, match="D0807"):
        calls.wait()
    calls.wait()


def test_an_array_of_the_host_is_refused(gpu: FakeGpu, model: Model) -> None:
    calls = model["rows"].in_stream(gpu.create_stream())
    with pytest.raises(CallError, match=r"D0805.*x lies on the host"):
        calls(numbers(2))
    with pytest.raises(CallError, match=r"D0805.*the output lies on the host"):
        calls(there(numbers(2)), out=np.zeros((2, 5), np.float32))


def test_a_processor_has_no_streams() -> None:
    with pytest.raises(Unsupported, match="D0702"):
        model_for("cpu")["rows"].in_stream(1)


class OfTorch:
    cuda_stream = 7


class OfCuda:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 8


def test_a_stream_is_a_handle_or_has_one(model: Model) -> None:
    assert [stream_handle(each) for each in (6, OfTorch(), OfCuda())] == [6, 7, 8]
    for other in ("0", None, True, 1.5, -1, 1 << 64):
        with pytest.raises(UsageError, match="D0902"):
            stream_handle(other)
    with pytest.raises(UsageError, match=r"D0902.*NoneType is not a stream"):
        model["rows"].in_stream(None)  # warnings are errors: nothing is left half made
