"""A model on a processor and a GPU gives what it gives on the processor; the GPU is the evaluator.

The evaluator does what is put into a stream as late as it may, so whoever forgets to wait reads poison.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model, open_training
from dlc.errors import ArtifactError, CallError, Unsupported
from dlc.runtime.abi import (
    ARG_WORDS,
    COPY,
    HEADER_WORDS,
    ON_GPU,
    STEP_WORDS,
    Opcode,
    StepWord,
)
from dlc.runtime.arrays.dtypes import DTYPES
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact import size_expressions
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import Input
from dlc.runtime.model import Model
from tests.runtime.gpu.fake_gpu import FakeGpu, fake_gpu, no_gpu
from tests.suites import every

Array = NDArray[np.generic]

EXAMPLES = Path(__file__).parents[3] / "examples"
TEXT = """dlc 1
import nn (Linear, LSTM)
dim B = 1..8
dim T = 1..6
dim U = 1..60000

fn attended(q: f32[B, 5], k: f32[T, 5]) -> f32 = sum(on DEVICE { attention(q, k, k) } * q)

module Net(n = 5) {
  use first = Linear(n, 4) on DEVICE
  use cells = LSTM(n, 4) on DEVICE
  use last = Linear(4, 3)
  param w: f32[n, 3] = normal(0.5)
  param here: f32[n, 99] = normal(0.5)

  export fn rows(x: f32[B, n]) -> f32[B, 3] {
    let h = tanh(x)
    let k = on DEVICE { softmax(relu(first(h))) }
    return last(k) + sum(h + x @ here @ transpose(here), axis=1, keepdims=true) + x @ w
  }
  export fn slope(q: f32[B, n], k: f32[T, n]) -> f32[B, n] = grad(attended, wrt=q)(q, k)
  export fn beside(x: f32[B, n]) -> f32[B, 3] = on DEVICE {
    let h = first(x)
    let both = concat([h, first(x * 2)], axis=1)
    return last(h * both[:, 4:8]) + last(both[:, 2:6])
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
  export fn ordered(x: f32[U]) -> f32[U] = sort(on DEVICE { sort(sin(x), axis=0) * 2 }, axis=0)
  export fn remembered(x: f32[T, n]) -> f32[3] =
    scan a in x with h = zeros([3]) { next h = tanh(h + on DEVICE { a @ w }) }
  export fn chosen(x: f32[T, n]) -> f32[3] =
    scan a in x with h = zeros([3]) {
      next h = if sum(h) > 0.5 then on DEVICE { a @ exp(w) } else tanh(h + on DEVICE { a @ w })
    }
  export fn prepared(x: f32[T, n]) -> f32[3] {
    let v = exp(w) * 0.3
    return scan a in x with h = v[0, :] { next h = on DEVICE { tanh(h + a @ v) } }
  }
  export fn along_weights(x: f32[T, n]) -> f32[3] =
    scan a in w with h = zeros([3]) { next h = on DEVICE { tanh(h + a * sum(x) + w[0, :]) } }
  export fn along_slope(x: f32[T, n]) -> f32[T, n] = grad(of_along, wrt=x)(x)
  fn of_along(x: f32[T, n]) -> f32 = sum(along_weights(x) ** 2)
  export fn recalled(x: f32[T, n]) -> f32[T, n] = grad(of_remembered, wrt=x)(x)
  fn of_remembered(x: f32[T, n]) -> f32 = sum(remembered(x) ** 2)
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
    return compile_model(opened, Settings(level), "init:0")


def results(model: Model, entry: str, arguments: Sequence[Array]) -> list[Array]:
    """What an entry point gives, each result as an array."""
    given = model[entry](*arguments)
    several = cast("tuple[object, ...]", given) if isinstance(given, tuple) else (given,)
    return [np.asarray(result) for result in several]


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    with fake_gpu() as gpu:
        yield Both(gpu)


def numbers(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def test_a_part_on_a_gpu_gives_what_it_gives_on_the_processor(both: Both) -> None:
    for rows in (4, 8, 1):
        both.agree("rows", numbers(rows, 5))


@pytest.mark.parametrize(
    "entry",
    every(2, ["remembered", "chosen", "recalled", "prepared", "along_weights", "along_slope"]),
)
def test_weights_are_on_the_gpu_within_loops_and_choices_too(both: Both, entry: str) -> None:
    for steps in (1, 6):
        both.agree(entry, numbers(steps, 5))


def test_what_a_gpu_runs_has_the_forms_that_it_has_alone(both: Both) -> None:
    both.agree("slope", numbers(3, 5), numbers(6, 5))
    both.agree("beside", numbers(4, 5))
    launched = [name.rpartition("_")[0] for name in both.gpu.launched]
    assert "attention_gradient" in launched
    assert "concatenate" not in launched


def test_scratch_of_the_gpu_is_there_once_and_not_on_the_host(both: Both) -> None:
    both.agree("ordered", numbers(40))
    (alone, _), (host, gpu) = (scratch(model, "ordered", U=40) for model in (both.cpu, both.mixed))
    assert gpu > 0
    assert host == alone
    before = set(both.gpu.allocated)
    both.agree("ordered", numbers(300))
    (found,) = {both.gpu.allocated[each] for each in set(both.gpu.allocated) - before} & {
        scratch(both.mixed, "ordered", U=300)[1]
    }
    assert found > gpu


def scratch(model: Model, entry: str, **dims: int) -> tuple[int, int]:
    """Bytes of scratch for a thread of the host, and for the GPU."""
    (target,) = model.artifact.manifest.targets
    program = target.programs[entry]
    sizes = size_expressions.evaluate_all(program.sizes, dims)
    host, gpu = (
        size_expressions.parse(size).evaluate(dims, sizes)
        for size in (program.scratch, program.gpu_scratch)
    )
    return host, gpu


def test_a_whole_loop_runs_on_the_gpu(both: Both) -> None:
    for length in (1, 6):
        both.agree("steps", numbers(3, length, 5))


def test_a_loop_of_the_host_sends_and_receives_in_every_round(both: Both) -> None:
    both.agree("turns", numbers(5, 1), numbers(5))  # the first call brings the weights, too
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


@pytest.mark.long
@pytest.mark.parametrize("level", [3, 0, 1])
def test_every_level_gives_what_it_gives_on_the_processor(level: int) -> None:
    with fake_gpu() as gpu:
        both = Both(gpu, level)
        both.agree("rows", numbers(3, 5))
        both.agree("turns", numbers(5, 2), numbers(5))


def test_only_weights_that_the_gpu_reads_go_there_and_once(both: Both) -> None:
    model = Model(both.mixed.artifact)
    before = len(both.gpu.transfers)
    results(model, "rows", [numbers(4, 5)])
    first = [count for way, count in both.gpu.transfers[before:] if way == "up"]
    before = len(both.gpu.transfers)
    results(model, "rows", [numbers(4, 5)])
    again = [count for way, count in both.gpu.transfers[before:] if way == "up"]
    weights = first[: len(first) - len(again)]
    stored = len(both.mixed.artifact.section("weights"))
    assert again == [4 * 4 * 5]  # tanh(x), which the GPU reads
    assert 0 < sum(weights) < stored
    assert model.times.upload_ms > 0


def test_memory_is_used_again_by_the_next_call(both: Both) -> None:
    both.agree("rows", numbers(4, 5))
    before = dict(both.gpu.allocated), list(both.gpu.pinned)
    both.agree("rows", numbers(4, 5))
    assert (dict(both.gpu.allocated), list(both.gpu.pinned)) == before


def test_arrays_may_be_lent_as_working_memory(both: Both) -> None:
    x = numbers(4, 5)
    point = both.mixed.entry_points["rows"]
    arena = point.new_arena(B=4)
    wanted = results(both.mixed, "rows", [x])[0]
    np.testing.assert_array_equal(np.asarray(point(x, arena=arena)), wanted)


@pytest.mark.long
def test_a_step_of_training_gives_what_it_gives_on_the_processor() -> None:
    def step(device: str) -> Model:
        opened = open_training(EXAMPLES / "digits_mlp.dlm", places={"net": device})
        return Model(compile_model(opened, Settings(), "init:0"))

    with fake_gpu() as gpu:
        one, other = step("cpu"), step("cuda:0")
        given = [some(item) for item in one["train_step"].inputs]
        wanted, found = (
            results(model, "train_step", [array.copy() for array in given])
            for model in (one, other)
        )
    assert gpu.launched
    for mine, theirs in zip(found, wanted, strict=True):
        close = [np.asarray(array, np.float64) for array in (mine, theirs)]
        np.testing.assert_allclose(*close, rtol=1e-4, atol=1e-4)


def some(item: Input) -> Array:
    """Numbers for an input, in a batch of 3."""
    shape = [int(size) if size.isdecimal() else 3 for size in item.shape]
    dtype = DTYPES[item.dtype].numpy
    draw = np.random.default_rng(len(shape))
    values = draw.random(shape) if dtype.kind == "f" else draw.integers(0, 9, shape)
    return np.asarray(values).astype(dtype)


# Copies beside work ------------------------------------------------------------------------------------

BESIDE = """dlc 1
export fn f(x: f32[64], y: f32[64]) -> (f32[64], f32[64]) {
  let a = on cuda:0 { exp(x) }
  let b = on cuda:0 { sin(a) * a }
  let c = tanh(y)
  return (a * c, b)
}
"""


def test_a_copy_back_does_not_wait_for_kernels_after_the_one_that_made_it() -> None:
    with fake_gpu() as gpu:
        model = Model(compile_model(open_model("m.dlm", text=BESIDE), Settings()))
        before = len(gpu.done)
        x, y = numbers(64), numbers(64)
        first, second = results(model, "f", [x, y])
    np.testing.assert_allclose(np.asarray(first, np.float32), np.exp(x) * np.tanh(y), rtol=1e-5)
    wanted = np.sin(np.exp(x)) * np.exp(x)
    np.testing.assert_allclose(np.asarray(second, np.float32), wanted, rtol=1e-4)
    # The evaluator does no more than what somebody waits for: `a` came back before `b` was computed.
    order = gpu.done[before:]
    kernels = [k for k, what in enumerate(order) if what.startswith("generic")]
    downs = [k for k, what in enumerate(order) if what == "down"]
    assert kernels[0] < downs[0] < kernels[1] < downs[1]


THERE = """dlc 1
export fn f(x: f32[64]) -> (f32[64], f32[64]) {
  let a = sin(x)
  let b = on cuda:0 { exp(a) }
  return (b, cos(a) * a)
}
"""


def test_the_processor_goes_on_with_what_is_being_sent() -> None:
    with fake_gpu() as gpu:
        model = Model(compile_model(open_model("m.dlm", text=THERE), Settings()))
        x = numbers(64)
        results(model, "f", [x])
        before = len(gpu.done)
        first, second = results(model, "f", [x])
    np.testing.assert_allclose(np.asarray(first, np.float32), np.exp(np.sin(x)), rtol=1e-5)
    wanted = np.cos(np.sin(x)) * np.sin(x)
    np.testing.assert_allclose(np.asarray(second, np.float32), wanted, rtol=1e-5)
    # `up` happens when the kernel needs it: no one waited for it on the processor's behalf.
    assert "wait" not in gpu.done[before : gpu.done.index("up", before)]


EMPTY = """dlc 1
dim B = 0..9
dim C = 0..9
export fn one(x: f32[B, 4]) -> f32[B, 4] {
  let a = x + 1
  let b = on cuda:0 { exp(a) * 2 }
  return b - x
}
export fn two(x: f32[B, 4], y: f32[C]) -> (f32[B, 4], f32[C]) {
  let a = x + 1
  let b = y * 3
  let c = on cuda:0 { exp(a) * 2 }
  let d = on cuda:0 { b + sum(a) }
  return (c - x, d - b)
}
"""


@pytest.mark.parametrize("sizes", [[(0, 0), (3, 2)], [(0, 5), (3, 0), (0, 0)], [(2, 0), (0, 4)]])
def test_arrays_without_elements_are_of_either_memory(sizes: list[tuple[int, int]]) -> None:
    """Their offset may be where memory of the other device begins: such programs were refused (D0610)."""
    on_cpu = dlc.compile(text=EMPTY.replace("cuda:0", "cpu:0"), threads=1)
    with fake_gpu():
        mixed = dlc.compile(text=EMPTY)
        for rows, length in sizes * 2:
            x, y = numbers(rows, 4), numbers(length)
            for name, given in (("one", [x]), ("two", [x, y])):
                pairs = [results(model, name, given) for model in (mixed, on_cpu)]
                for found, wanted in zip(*pairs, strict=True):
                    np.testing.assert_allclose(found, wanted, rtol=1e-5)


CHANGES = """dlc 1
export fn add(x: f32[4], inout total: f32[4]) -> f32 {
  let sums = total + x
  set total = sums
  let all = on DEVICE { sum(sums) }
  return all
}
export fn twice(x: f32[4]) -> f32[4] {
  let y = on DEVICE { x * 2 }
  return y
}
"""


@pytest.mark.parametrize("device", ["cpu:0", "cuda:0"])
def test_what_a_call_on_the_host_writes_to_lies_on_the_host(device: str) -> None:
    """What it wrote to was a copy: arrays on a GPU stayed as they were, and nothing said so."""
    with fake_gpu():
        model = dlc.compile(text=CHANGES.replace("DEVICE", device), threads=1)
        x, there = numbers(4), Tensor(numbers(4)).to("cuda")
        with pytest.raises(CallError, match=r"(?s)D0820.*total lies on cuda:0.*total.to\("):
            model.entry_points["add"](x, there)
        with pytest.raises(CallError, match=r"D0805.*out= for the output lies on cuda:0"):
            model.entry_points["twice"](x, out=there)
        np.testing.assert_array_equal(there.numpy(), numbers(4))
        np.testing.assert_allclose(np.asarray(model.entry_points["twice"](there)), 2 * numbers(4))


# What is refused ---------------------------------------------------------------------------------------


def test_without_a_gpu_it_compiles_and_loading_says_what_is_missing() -> None:
    with no_gpu():
        artifact = compile_model(open_model("m.dlm", text=BESIDE), Settings())
        wanted = r"cpu\+cuda:sm_80 needs an NVIDIA GPU with its driver, and there is none here"
        with pytest.raises(ArtifactError, match=wanted):
            Model(artifact)
        with pytest.raises(Unsupported, match=r"what is placed on cuda:0 needs an NVIDIA GPU"):
            dlc.compile(text=BESIDE)


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ("kernel", "gives memory of the GPU to the processor"),
        ("within", "copies within one memory"),
        ("what", "copies something else than bytes from one address to another"),
    ],
)
def test_a_program_that_mixes_up_two_memories_is_refused(both: Both, lie: str, said: str) -> None:
    artifact = both.mixed.artifact
    (target,) = artifact.manifest.targets
    program = target.programs["rows"]
    words = np.frombuffer(artifact.section(program.section), "<i8").copy()
    steps = words[HEADER_WORDS : HEADER_WORDS + STEP_WORDS * words[0]].reshape(-1, STEP_WORDS)
    arguments = words[HEADER_WORDS + steps.size :].reshape(-1, ARG_WORDS)
    calls = [step for step in steps if step[StepWord.OPCODE] == Opcode.CALL]
    first = next(step for step in calls if step[StepWord.A] == COPY)[StepWord.B]
    match lie:
        case "kernel":
            (on_gpu, *_) = [step for step in calls if step[StepWord.A] >= ON_GPU]
            on_gpu[StepWord.A] = next(k for k in target.kernels if k < COPY)
        case "within":
            arguments[first + 1] = arguments[first]
        case _:
            arguments[first + 2] = arguments[first]
    sections = {**artifact.sections, program.section: words.tobytes()}
    with pytest.raises(ArtifactError, match=said):
        Model(Artifact.of(artifact.manifest, sections))


def test_a_loop_beyond_its_limit_fails(both: Both) -> None:
    with pytest.raises(CallError, match="limit of 20"):
        both.mixed["endless"](np.asarray(1, np.float32))
    both.agree("rows", numbers(4, 5))
