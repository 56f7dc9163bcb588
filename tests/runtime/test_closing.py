"""What closing a model means for calls that run: they end as usual, and later ones are refused."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
from pathlib import Path
from typing import cast
from weakref import ref

import numpy as np
import pytest

from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model
from dlc.errors import CallError
from dlc.runtime.calling.frames import Frame
from dlc.runtime.model import Model
from dlc.runtime.system.buffers import Bytes
from tests.runtime import closings
from tests.runtime.gpu.fake_gpu import FakeGpu, fake_gpu
from tests.suites import every

ROOT = Path(__file__).parents[2]
X = np.random.default_rng(0).standard_normal((16, closings.WIDTH)).astype(np.float32)
NARROW = 24
"""The width where the evaluator computes what a GPU would."""


def close_at_random_moments(count: int, seed: int) -> None:
    """In a process of its own: what reads freed memory may end it."""
    command = [sys.executable, "-m", "tests.runtime.closings", str(count), str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("count", every(2, (12, 50)))
def test_calls_of_eight_threads_are_right_or_refused_when_a_model_is_closed(count: int) -> None:
    close_at_random_moments(count, 0)


@pytest.mark.long
def test_a_thousand_models_are_closed_during_calls() -> None:
    close_at_random_moments(1_000, 1)


def test_a_closed_model_gives_back_the_weights_when_its_last_call_has_ended() -> None:
    model = Model(closings.artifact())
    model.f(X)
    entry = model.f
    frame = entry._take_frame()  # pyright: ignore[reportPrivateUsage]
    assert isinstance(frame, Frame)
    prepared, _ = cast("tuple[Bytes, Bytes]", frame._weights.memory)  # pyright: ignore[reportPrivateUsage]
    lives = ref(prepared)
    model.close()
    del prepared
    gc.collect()
    assert lives() is not None
    entry._give_back(frame)  # pyright: ignore[reportPrivateUsage]
    del frame
    gc.collect()
    assert lives() is None


@pytest.mark.parametrize(
    ("width", "target"),
    every(4, itertools.product((NARROW, closings.WIDTH), ("cuda:sm_80", "cpu"))),
)
def test_a_model_on_a_gpu_is_closed_during_a_call(
    width: int, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU alone, and with a part on one beside a processor."""
    text = closings.TEXT.replace(str(closings.WIDTH), str(width))
    if target == "cpu":
        text = text.replace("tanh(x @ (2.0 * w))", "on cuda:0 { tanh(x @ (2.0 * w)) }")
    with fake_gpu() as gpu:
        opened = open_model("net.dlm", text=text)
        model = Model(compile_model(opened, Settings(target=target), "init:0"))
        x = X[:, :width].copy()
        expected = np.asarray(model.f(x))
        closed = close_while_waiting(gpu, model, monkeypatch)
        np.testing.assert_array_equal(np.asarray(model.f(x)), expected)
        assert closed
        with pytest.raises(CallError, match="D0811"):
            model.f(x)


def close_while_waiting(gpu: FakeGpu, model: Model, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Close the model as soon as a call waits for the device, which begins its work then."""
    synchronize, waited = gpu.synchronize, list[int]()

    def closing(stream: int) -> None:
        waited.append(stream)
        model.close()
        gc.collect()
        synchronize(stream)

    monkeypatch.setattr(gpu, "synchronize", closing)
    return waited
