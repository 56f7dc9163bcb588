"""A model for a GPU gives what it gives on a CPU; the GPU is the evaluator of its kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model, open_training
from dlc.driver.source.source_model import SourceModel
from dlc.errors import ArtifactError, CallError
from dlc.runtime.abi import STEP_WORDS, Opcode, Root
from dlc.runtime.arrays.dtypes import DTYPES
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import Input
from dlc.runtime.cuda import devices
from dlc.runtime.cuda.driver import Driver, NoGpu
from dlc.runtime.gpu.segments import Launch, Walk
from dlc.runtime.gpu.steps import StepTable
from dlc.runtime.model import Model
from tests.runtime.gpu.fake_gpu import FakeGpu, fake_gpu

Array = NDArray[np.generic]

EXAMPLES = Path(__file__).parents[3] / "examples"
TEXT = """dlc 1
import nn (LSTM)
dim B = 1..8
dim T = 1..6
dim E = 0..9

module Net(n = 5) {
  param w: f32[n, 3] = normal(0.5)
  use cells = LSTM(n, 4)
  export fn rows(x: f32[B, n]) -> f32[B, 3] = softmax(relu(x) @ (2.0 * w), axis=-1)
  export fn steps(x: f32[B, T, n]) -> f32[B, T, 4] = cells(x).y
  export fn picked(x: f32[6], i: i64[B]) -> f32[B] = x[i]
  export fn ordered(x: f32[2, E]) -> f32[2, E] = sort(x)
  export fn root(a: f32) -> f32 =
    while abs(x * x - a) > 1e-5 with x = a limit 100 { next x = (x + a / x) / 2 }
  export fn either(a: f32, x: f32[4]) -> f32[4] = if a > 0.0 then exp(x) else -x
}
"""


class Both:
    """A model compiled for a CPU and for a GPU."""

    def __init__(self, fake: FakeGpu, cpu: SourceModel, cuda: SourceModel) -> None:
        self.gpu = fake
        self.cpu = Model(made(cpu, "cpu"), threads=1)
        self.cuda = Model(made(cuda, "cuda:sm_80"))

    def agree(self, entry: str, *arguments: Array, rtol: float = 1e-5) -> None:
        wanted, found = (
            results(model, entry, [array.copy() for array in arguments])
            for model in (self.cpu, self.cuda)
        )
        for one, other in zip(found, wanted, strict=True):
            close = [np.asarray(array, np.float64) for array in (one, other)]
            np.testing.assert_allclose(*close, rtol=rtol, atol=rtol)


def results(model: Model, entry: str, arguments: Sequence[Array]) -> list[Array]:
    """What an entry point gives, each result as an array."""
    given = model[entry](*arguments)
    several = cast("tuple[object, ...]", given) if isinstance(given, tuple) else (given,)
    return [np.asarray(result) for result in several]


def made(opened: SourceModel, target: str) -> Artifact:
    return compile_model(opened, Settings(target=target), "init:0")


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    with fake_gpu() as fake:
        yield Both(fake, *[open_model("net.dlm", text=TEXT) for _ in range(2)])


def numbers(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def number(value: float) -> Array:
    return np.asarray(value, np.float32)


def test_a_row_without_elements_is_sorted(both: Both) -> None:
    """It has no last element that the places beyond its end could stand for."""
    for length in (0, 1, 9):
        both.agree("ordered", numbers(2, length))


def test_a_network_gives_what_it_gives_on_a_processor(both: Both) -> None:
    both.agree("rows", numbers(4, 5))
    both.agree("rows", numbers(7, 5))


def test_weights_are_prepared_by_the_first_call_only(both: Both) -> None:
    x = numbers(4, 5)
    model = Model(both.cuda.artifact)
    results(model, "rows", [x])
    before = len(both.gpu.launched)
    results(model, "rows", [x])
    again = both.gpu.launched[before:]
    results(Model(both.cuda.artifact), "rows", [x])
    first = both.gpu.launched[before + len(again) :]
    assert len(again) < len(first)
    assert again == first[-len(again) :]


def test_loops_run_as_many_rounds_as_a_size_says(both: Both) -> None:
    for length in (1, 6):
        both.agree("steps", numbers(2, length, 5))


def test_conditions_are_read_from_the_device(both: Both) -> None:
    both.agree("root", number(9))
    for a in (-1.0, 1.0):
        both.agree("either", number(a), numbers(4))


def test_a_loop_beyond_its_limit_fails(both: Both) -> None:
    with pytest.raises(CallError, match="limit of 100"):
        both.cuda["root"](number(1e30))


def test_memory_on_the_device_is_used_again_by_the_next_call(both: Both) -> None:
    both.agree("rows", numbers(4, 5))
    before = dict(both.gpu.allocated)
    both.agree("rows", numbers(4, 5))
    assert both.gpu.allocated == before


def training(hidden: int = 16) -> SourceModel:
    return open_training(EXAMPLES / "digits_mlp.dlm", settings={"hidden": hidden})


@pytest.mark.long
@pytest.mark.parametrize("hidden", [16, 128])
def test_arrays_that_a_call_updates_are_written_over(hidden: int) -> None:
    with fake_gpu() as fake:
        both = Both(fake, *[training(hidden) for _ in range(2)])
        given = [some(item) for item in both.cuda["train_step"].inputs]
        both.agree("train_step", *given, rtol=1e-4)


CACHE = """dlc 1
export fn step(row: f32[4], p: i32, inout cache: f32[3, 4], inout n: i32) -> f32[4] {
  set cache = update(cache, row, at=[p])
  set n = n + 1
  return 2 * row
}
"""


def test_a_call_that_fails_leaves_the_arrays_of_the_host_as_they_were() -> None:
    with fake_gpu():
        model = Model(made(open_model("cache.dlm", text=CACHE), "cuda:sm_80"))
        cache, n = np.zeros((3, 4), np.float32), np.zeros((), np.int32)
        with pytest.raises(CallError, match="index 5 is out of range for an axis of size 3"):
            model.step(np.ones(4, np.float32), 5, cache, n)
        assert not cache.any()
        assert n == 0
        model.step(np.ones(4, np.float32), 1, cache, n)
        assert cache[1].tolist() == [1, 1, 1, 1]
        assert n == 1


def some(item: Input) -> Array:
    """Numbers for an input, in a batch of 3."""
    shape = [int(size) if size.isdecimal() else 3 for size in item.shape]
    dtype = DTYPES[item.dtype].numpy
    random = np.random.default_rng(len(shape))
    values = random.random(shape) if dtype.kind == "f" else random.integers(0, 9, shape)
    return np.asarray(values).astype(dtype)


def test_a_block_of_half_a_warp_is_refused(both: Both) -> None:
    artifact = both.cuda.artifact
    (target,) = artifact.manifest.targets
    assert target.gpu is not None
    kernels = tuple([kernel._replace(threads=16) for kernel in target.gpu.kernels])
    lie = target._replace(gpu=target.gpu._replace(kernels=kernels))
    with pytest.raises(ArtifactError, match="has 16 threads in a block"):
        Artifact.of(artifact.manifest._replace(targets=(lie,)), artifact.sections)


def test_without_a_gpu_loading_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(device: int) -> Driver:
        raise NoGpu("an NVIDIA GPU with its driver, and there is none here")

    monkeypatch.setattr(devices, "open_driver", none)
    artifact = made(open_model("net.dlm", text=TEXT), "cuda:sm_80")
    with pytest.raises(ArtifactError, match="cuda:sm_80 needs an NVIDIA GPU with its driver"):
        Model(artifact)


def test_a_wave_that_the_host_interrupts_ends_before_the_next_one() -> None:
    """A collective in the middle of a wave: what follows in it does not run beside the next wave."""
    kernel, collective = 0, 1
    calls = [(Opcode.CALL, number, 0, 0, 0, 0, op) for op, number in enumerate((0, 1, 0, 0))]
    steps = [(Opcode.WAVE, 3), *calls[:3], (Opcode.WAVE, 1), calls[3], (Opcode.END,)]
    rows = [[*step, *[0] * (STEP_WORDS - len(step))] for step in steps]
    words = [len(rows), 0, 1, *[word for row in rows for word in row]]
    table = StepTable(np.array(words, np.int64).view(np.uint8), len(Root), {collective})
    walk = Walk(table, [1], lambda root, offset, count: 0)
    before = walk.segment(0)
    after = walk.segment(before.end + 1)
    assert [item.kernel for item in (*before.items, *after.items) if isinstance(item, Launch)] == [
        kernel
    ] * 3
    assert [item.wave for item in after.items] == [0, 1]
