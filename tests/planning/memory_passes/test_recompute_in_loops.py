"""What loops keep for their derivatives, computed again instead: less is held, and no bit changes."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from dlc.dialects import flow, func, kernel
from dlc.driver.compile import compile
from dlc.driver.compile.checks.verify_each import EachPass
from dlc.driver.compile.compile import lower
from dlc.driver.compile.entries import find_function
from dlc.driver.compile.settings import Settings
from dlc.driver.run.request import CompileRequest, make_artifact, make_model
from dlc.driver.run.train import make_trainer
from dlc.driver.source.open import open_training
from dlc.driver.source.source_model import SourceModel
from dlc.errors import Unsupported
from dlc.ir.passes import PASSES
from dlc.ir.verify import verify
from dlc.planning.liveness import Timeline, updates_of
from dlc.planning.memory_passes import recompute
from dlc.planning.memory_passes.loop_residuals import pairs_in
from dlc.runtime.artifact.contents import Artifact
from dlc.target.cpu_costs import USUAL_COSTS
from dlc.target.estimates import is_product, picoseconds
from tests.suites import every

BLOCKS = """\
dlc 1
import nn (Attention, LayerNorm, Linear)

module Block(D, H) {
  use scaled = LayerNorm(D)
  use attend = Attention(D, H, causal=true)
  use up = Linear(D, 4 * D)
  use down = Linear(4 * D, D)
  fn call(x: f32[2, 16, D]) -> f32[2, 16, D] {
    let y = x + attend(scaled(x))
    return y + (y |> up |> gelu |> down)
  }
}

module Model(D = 16, L = 5) {
  use first = Linear(3, D)
  use blocks = L * Block(D, 2)
  use last = Linear(D, 4)
  fn call(x: f32[2, 16, 3]) -> f32[2, 16, 4] {
    let y = scan block in blocks with h = first(x) { next h = block(h) }
    return last(y)
  }
}
"""

LSTMS = """\
dlc 1
import nn (LSTM, Linear)

module Model(D = 24) {
  use one = LSTM(3, D)
  use two = LSTM(D, D)
  use last = Linear(D, 4)
  fn call(x: f32[2, 16, 3]) -> f32[2, 16, 4] = last(two(one(x).y).y)
}
"""

# `w` is updated before the second loop runs, where only what it decided in each step is needed.
UPDATED_EARLY = """\
dlc 1
import nn (Linear)

module Model(D = 32) {
  param w: f32[D, D] = normal(0.3)
  use first = Linear(3, D)
  use last = Linear(D, 4)
  fn call(x: f32[2, 16, 3]) -> f32[2, 16, 4] {
    let y = scan t in 0..8 with h = first(x) {
      next h = h + where(h @ w > 0, tanh(h), 0.1 * h)
    }
    return last(y @ w)
  }
}
"""

# What a loop carried last is walked by another one, as its stacks may be.
CARRIED = """\
dlc 1
export fn f(xs: f32[8, 8]) -> f32[8] {
  let (h, g) = scan x in xs with h = xs, g = xs { next h = h + x  next g = g * h }
  return scan (a, b) in (h, g) { yield sum(a * b) }
}
"""

TRAIN = """
train Model {
  data = npz("data.npz", x="x", label="label")
  loss(x: f32[2, 16, 3], label: i32[2, 16]) = mean(cross_entropy(call(x), label))
  optimizer = momentum(lr=0.1)
}
"""

MODELS = {"blocks": BLOCKS, "lstms": LSTMS, "updated early": UPDATED_EARLY}
BOTH = pytest.mark.parametrize("model", ["blocks", "lstms"])


def lowered(model: str, effort: float) -> SourceModel:
    """The step of training as kernels, with at most so much more time for computing again."""
    opened = open_training("model.dlm", text=MODELS[model] + TRAIN, purpose="train")
    lower(opened, Settings(disabled=frozenset({"recompute", "reorder"})), "kernel")
    opened.context.options = Settings(recompute=effort).options()
    return opened


def step_of(opened: SourceModel) -> func.Func:
    return find_function(opened.module, "train_step")


@cache
def without(model: str) -> Timeline:
    """The step that keeps everything."""
    return Timeline(step_of(lowered(model, 0)))


@cache
def recomputed(model: str, effort: float) -> tuple[SourceModel, Timeline]:
    """The step behind the pass, which was checked by evaluating both."""
    opened, check = lowered(model, effort), EachPass()
    check.before("recompute", opened.module)
    opened.context.log.current_pass = "recompute"
    PASSES["recompute"].run(opened.module, opened.context)
    check.after("recompute", opened.module)
    assert not check.skipped
    verify(opened.module)
    return opened, Timeline(step_of(opened))


def again(timeline: Timeline) -> list[kernel.Kernel]:
    """The kernels in loops that compute a value again."""
    inside = [op for loop in timeline.ops if isinstance(loop, flow.Scan) for op in loop.body]
    return [
        op for op in inside if isinstance(op, kernel.Kernel) and recompute.MARK in op.attributes
    ]


def stacked(timeline: Timeline) -> int:
    """The bytes that loops hand over to others."""
    pairs = list(pairs_in(timeline.ops))
    stacks = {stack for pair in pairs for stack in pair.backward.xs if stack.op is pair.forward}
    return sum(map(timeline.bytes, stacks))


@pytest.mark.parametrize(("model", "part"), every(2, [("blocks", 0.65), ("lstms", 0.9)]))
def test_less_is_handed_over_and_less_is_held_at_the_peak(model: str, part: float) -> None:
    before, (_, timeline) = without(model), recomputed(model, 4.0)
    assert stacked(timeline) < part * stacked(before)
    assert max(timeline.alive) < part * max(before.alive)


def test_of_a_stack_of_blocks_only_what_goes_from_one_to_the_next_is_kept() -> None:
    _, timeline = recomputed("blocks", 4.0)
    (pair,) = pairs_in(timeline.ops)
    kept = [stack for stack in pair.backward.xs if stack.op is pair.forward]
    assert [timeline.bytes(stack) for stack in kept] == [5 * 2 * 16 * 16 * 4]


@BOTH
def test_loops_stay_as_they_are_where_no_limit_asks_for_more(model: str) -> None:
    assert not again(recomputed(model, Settings().recompute)[1])


def test_products_are_computed_again_only_where_that_is_forced() -> None:
    cheap = again(recomputed("blocks", 0.9)[1])
    assert cheap
    assert not any(map(is_product, cheap))
    assert any(map(is_product, again(recomputed("blocks", 4.0)[1])))


@BOTH
def test_the_time_that_may_be_spent_is_not_exceeded(model: str) -> None:
    before, (opened, _) = without(model), recomputed(model, 1.0)
    whole = sum(picoseconds(op, before.sample, USUAL_COSTS) for op in before.ops)
    done = [d for d in opened.context.log if d.what.startswith("recompute")]
    assert 0 < sum(int(d.figures["microseconds"]) for d in done) * 1_000_000 <= whole


@BOTH
def test_what_was_expected_to_be_held_is_what_is_held(model: str) -> None:
    opened, timeline = recomputed(model, 4.0)
    done = [d for d in opened.context.log if d.what.startswith("recompute")]
    assert "recompute in a loop" in {d.what for d in done}
    assert max(timeline.alive) == min(int(d.figures["peak_bytes_after"]) for d in done)


def test_a_source_that_is_held_no_longer_is_computed_again_before_the_second_loop() -> None:
    _, timeline = recomputed("lstms", 4.0)
    outside = [op for op in timeline.ops if recompute.MARK in op.attributes]
    assert any(map(is_product, outside))


def test_a_weight_that_is_updated_before_is_not_read_again() -> None:
    _, timeline = recomputed("updated early", 4.0)
    (pair,) = pairs_in(timeline.ops)
    number = timeline.number
    updates = {argument: value.op for value, argument in updates_of(timeline.function).items()}
    early = [
        a for a, op in updates.items() if op is not None and number[op] < number[pair.backward]
    ]
    assert set(early) & set(pair.forward.constants), "no weight of the loop is updated early"
    assert not set(early) & set(pair.backward.operands)


def test_no_bit_of_a_training_changes_whatever_the_lengths_are() -> None:
    text = (LSTMS + TRAIN).replace("[2, 16", "[2, T").replace("dlc 1\n", "dlc 1\ndim T = 2..16\n")
    settings = (Settings(recompute=0), Settings(recompute=4.0))
    plain, other = (
        make_trainer(CompileRequest("model.dlm", text=text, settings=each))[0] for each in settings
    )
    random = np.random.default_rng(0)
    for length in (2, 5, 16):
        x = random.standard_normal((2, length, 3), np.float32)
        label = random.integers(0, 4, (2, length), np.int32)
        assert plain.step(x=x, label=label) == other.step(x=x, label=label)
    for name, weight in plain.weights.items():
        assert np.array_equal(weight, other.weights[name]), name


def test_what_is_carried_last_is_no_stack_where_another_loop_walks_it() -> None:
    xs = np.random.default_rng(0).standard_normal((8, 8), np.float32)
    settings = (Settings(recompute=0), Settings(recompute=4.0))
    plain, other = (
        make_model(CompileRequest("m.dlm", CARRIED, settings=each))[0] for each in settings
    )
    assert np.array_equal(np.asarray(plain["f"](xs)), np.asarray(other["f"](xs)))


def limited(text: str, most: int) -> Artifact:
    """Compiled with as much computed again as is ever tried, at once and only so."""
    settings = Settings(max_memory=most, recompute=4.0)
    wanted = CompileRequest("model.dlm", text=text, to_train=True, settings=settings)
    return make_artifact(wanted).artifact


@pytest.mark.long
def test_a_limit_is_kept_that_nothing_else_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile, "MORE_RECOMPUTED", ())
    text, most = BLOCKS + TRAIN, 300_000
    promise = limited(text, most).manifest.promise
    assert promise is not None and promise.memory == most
    monkeypatch.setattr(recompute, "IN_LOOPS", float("inf"))
    with pytest.raises(Unsupported, match=f"the limit is {most:,} bytes"):
        limited(f"{text}# another text: what was compiled before is not recalled\n", most)
