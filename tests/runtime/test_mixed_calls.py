"""A model on a processor and a GPU gives what it gives on the processor; the GPU is the evaluator.

The evaluator does what is put into a stream as late as it may, so whoever forgets to wait reads poison.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.driver.compile import compile_opened
from dlc.driver.open import open_model
from dlc.driver.settings import Settings
from dlc.errors import CallError
from dlc.runtime.artifact import Artifact
from dlc.runtime.model import Model
from tests.runtime.fake_gpu import FakeGpu, fake_gpu

Array = NDArray[np.generic]

TEXT = """dlc 1
import nn (Linear, LSTM)
dim B = 1..8
dim T = 1..6

module Net(n = 5) {
  use first = Linear(n, 4) on DEVICE
  use cells = LSTM(n, 4) on DEVICE
  use last = Linear(4, 3)
  param w: f32[n, 3] = normal(0.5)

  export fn rows(x: f32[B, n]) -> f32[B, 3] {
    let h = tanh(x)
    let k = on DEVICE { softmax(relu(first(h))) }
    return last(k) + sum(h, axis=1, keepdims=true) + x @ w
  }
  export fn steps(x: f32[B, T, n]) -> f32[B, T, 4] = cells(exp(x) * 0.1).y
  export fn turns(x: f32[n, T], s: f32[n]) -> (f32[n], f32[n, T]) =
    scan a in x along 1 with h = s {
      let b = on DEVICE { tanh(a * h) }
      let c = on DEVICE { b * 2 }
      next h = b + h
      yield c
    }
  export fn within(x: f32[n, T]) -> f32[n, T] = on DEVICE {
    let (h, y) = scan a in x along 1 with h = zeros([n]) {
      let b = on cpu { sin(a) * a }
      next h = h * 0.5 + b
      yield h * b
    }
    return y + reshape(h, [n, 1])
  }
  export fn until(x: f32[4]) -> (f32[4], i32) = on DEVICE {
    while sum(w) < 100 with w = x * x + 1, n = 0 limit 50 { next w = w * 2  next n = n + 1 }
  }
  export fn mixed_until(x: f32[4]) -> f32[4] =
    while sum(w) < 100 with w = x * x + 1 limit 50 { next w = on DEVICE { w * 2 } }
  export fn either(a: f32, x: f32[4]) -> f32[4] =
    if a > 0.0 then on DEVICE { exp(x) } else cos(x) * 2
  export fn endless(x: f32) -> f32 =
    while x > 0 with x = x limit 20 { next x = on DEVICE { x + 1 } }
  export fn inner(x: f32[T, n]) -> f32[n] {
    return scan a in x with h = zeros([n]) {
      let c = scan i in 0..3 with c = a { next c = sin(c) + h }
      next h = on DEVICE { c * 0.5 }
    }
  }
}
"""


class Both:
    """A model on the processor alone, and with a part of it on a GPU."""

    def __init__(self, gpu: FakeGpu, level: int = 2) -> None:
        self.gpu = gpu
        self.cpu = Model(made("cpu", level), threads=1)
        self.mixed = Model(made("cuda:0", level), threads=2)

    def agree(self, entry: str, *arguments: Array) -> None:
        wanted, found = (
            results(model, entry, [array.copy() for array in arguments])
            for model in (self.cpu, self.mixed)
        )
        for one, other in zip(found, wanted, strict=True):
            close = [np.asarray(array, np.float64) for array in (one, other)]
            np.testing.assert_allclose(*close, rtol=1e-5, atol=1e-5)


def made(device: str, level: int = 2) -> Artifact:
    opened = open_model("net.dlm", text=TEXT.replace("DEVICE", device))
    return compile_opened(opened, Settings(level), "init:0")


def results(model: Model, entry: str, arguments: Sequence[Array]) -> list[Array]:
    """What an entry point gives, each result as an array."""
    given = model[entry](*arguments)
    several = cast("tuple[object, ...]", given) if isinstance(given, tuple) else (given,)
    return [np.asarray(result) for result in several]


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    with fake_gpu() as gpu:
        yield Both(gpu)


def numbers(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def test_a_part_on_a_gpu_gives_what_it_gives_on_the_processor(both: Both) -> None:
    for rows in (4, 8, 1):
        both.agree("rows", numbers(rows, 5))


def test_a_whole_loop_runs_on_the_gpu(both: Both) -> None:
    for length in (1, 6):
        both.agree("steps", numbers(3, length, 5))


def test_a_loop_of_the_host_sends_and_receives_in_every_round(both: Both) -> None:
    before = len(both.gpu.transfers)
    both.agree("turns", numbers(5, 6), numbers(5))
    ways = [way for way, _ in both.gpu.transfers[before:]]
    # a and h there, b and c back, in each of six rounds
    assert (ways.count("up"), ways.count("down")) == (12, 12 + 1)


def test_a_loop_of_the_gpu_lets_the_processor_do_a_part(both: Both) -> None:
    both.agree("within", numbers(5, 4))


def test_conditions_are_read_where_they_are(both: Both) -> None:
    both.agree("until", numbers(4))
    both.agree("mixed_until", numbers(4))
    for a in (-1.0, 1.0):
        both.agree("either", np.asarray(a, np.float32), numbers(4))


def test_loops_of_the_processor_stand_within_loops_of_both(both: Both) -> None:
    both.agree("inner", numbers(4, 5))


def test_a_loop_beyond_its_limit_fails(both: Both) -> None:
    with pytest.raises(CallError, match="limit of 20"):
        both.mixed["endless"](np.asarray(1, np.float32))
    both.agree("rows", numbers(4, 5))
