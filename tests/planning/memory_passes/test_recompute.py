"""Values computed again instead of kept: what is held falls, no bit changes, and the log says why."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from dlc.dialects import func, kernel
from dlc.dialects.kernel.products import Product
from dlc.driver.compile import compile
from dlc.driver.compile.checks.verify_each import EachPass
from dlc.driver.compile.compile import lower
from dlc.driver.compile.entries import find_function
from dlc.driver.compile.settings import Settings
from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.driver.run.train import make_trainer
from dlc.driver.source.open import open_training
from dlc.driver.source.source_model import SourceModel
from dlc.errors import Unsupported
from dlc.ir.passes import PASSES
from dlc.ir.verify import verify
from dlc.planning.liveness import Timeline
from dlc.planning.memory_passes.recompute import MARK
from dlc.runtime.artifact.contents import Artifact
from dlc.target.cpu_costs import USUAL_COSTS
from dlc.target.estimates import is_product, picoseconds

pytestmark = pytest.mark.usefixtures("avx2")
"""What computing again costs, and so what is computed again, depends on the width of vectors."""

NETWORK = """\
dlc 1
import nn (BatchNorm, Conv2d, Linear)

module Small(C = 16) {
  use layers = chain(Conv2d(3, C, kernel=3, padding=1, bias=false), BatchNorm(C), sigmoid,
                     Conv2d(C, C, kernel=3, padding=1, bias=false), BatchNorm(C), sigmoid,
                     Conv2d(C, C, kernel=3, padding=1, bias=false), BatchNorm(C), sigmoid)
  use head = Linear(C, 4)
  fn call(x: f32[8, 12, 12, 3]) -> f32[8, 4] = head(mean(layers(x), axis=(1, 2)))
}

train Small {
  data = npz("data.npz", x="x", label="label")
  loss(x: f32[8, 12, 12, 3], label: i32[8]) = mean(cross_entropy(call(x), label))
  optimizer = momentum(lr=0.1)
}
"""


def lowered(effort: float, conv: str = "direct") -> SourceModel:
    """The step of training as kernels, with at most so much more time for computing again."""
    opened = open_training("model.dlm", text=NETWORK, purpose="train")
    lower(opened, Settings(disabled=frozenset({"recompute"}), conv=conv), "kernel")
    opened.context.options = Settings(recompute=effort, conv=conv).options()
    return opened


def step_of(opened: SourceModel) -> func.Func:
    return find_function(opened.module, "train_step")


@cache
def without() -> Timeline:
    """The step that keeps everything."""
    return Timeline(step_of(lowered(0)))


@cache
def recomputed(effort: float, conv: str = "direct") -> tuple[SourceModel, Timeline]:
    """The step behind the pass."""
    opened = lowered(effort, conv)
    opened.context.log.current_pass = "recompute"
    PASSES["recompute"].run(opened.module, opened.context)
    verify(opened.module)
    return opened, Timeline(step_of(opened))


def again(timeline: Timeline) -> list[kernel.Kernel]:
    """The kernels that compute a value again."""
    return [op for op in timeline.ops if isinstance(op, kernel.Kernel) and MARK in op.attributes]


@pytest.mark.parametrize("effort", [0.5, 2.0])
def test_less_is_held_at_the_peak(effort: float) -> None:
    _, timeline = recomputed(effort)
    assert again(timeline)
    assert max(timeline.alive) < 0.95 * max(without().alive)


def test_nothing_is_computed_again_without_time_for_it() -> None:
    _, timeline = recomputed(0)
    assert not again(timeline)


def test_the_time_that_may_be_spent_is_not_exceeded() -> None:
    before = without()
    _, timeline = recomputed(0.5)
    spent = sum(picoseconds(op, timeline.sample, USUAL_COSTS) for op in again(timeline))
    assert 0 < spent <= 0.5 * sum(picoseconds(op, before.sample, USUAL_COSTS) for op in before.ops)


def test_products_are_computed_again_only_where_that_is_forced() -> None:
    assert not any(is_product(op) for op in again(recomputed(0.9)[1]))
    assert any(isinstance(op, Product) for op in again(recomputed(2.0)[1]))


@pytest.mark.parametrize("conv", ["direct", "auto"])
def test_what_was_expected_to_be_held_is_what_is_held(conv: str) -> None:
    opened, timeline = recomputed(0.5, conv)
    made = [d for d in opened.context.log if d.pass_name == "recompute" and d.kind == "did"]
    assert len(made) >= 2
    assert {d.what for d in made} == {"recompute"}
    assert max(timeline.alive) == min(int(d.figures["peak_bytes_after"]) for d in made)
    assert any(d.place.startswith("<layers/normalisation.dlm>") for d in made)


def test_what_is_held_counts_at_the_batch_that_the_text_names() -> None:
    named = NETWORK.replace("[8, 12", "[B, 12").replace("[8, 4]", "[B, 4]").replace("[8])", "[B])")
    text = named.replace("dlc 1\n", "dlc 1\ndim B = 1..4096\n").replace(
        "(lr=0.1)", "(lr=0.1)\n  batch = 8"
    )
    peaks: list[int] = []
    ways = Settings(recompute=0.5), Settings(disabled=frozenset({"recompute"}))
    for settings in (replace(way, conv="direct") for way in ways):
        opened = open_training("model.dlm", text=text, purpose="train")
        lower(opened, settings, "kernel")
        done = [d for d in opened.context.log if d.what == "recompute"]
        peaks += [int(d.figures["peak_bytes_before"]) for d in done[:1]]
    assert len(peaks) == 1
    assert max(without().alive) <= peaks[0] < 1.1 * max(without().alive)


def test_the_kernels_say_what_is_saved_and_what_it_costs() -> None:
    said = {op.attributes[MARK] for op in again(recomputed(0.5)[1])}
    assert any(str(text).startswith("saves 73,728 bytes, costs ") for text in said)


def test_every_value_that_is_computed_again_is_used() -> None:
    _, timeline = recomputed(2.0)
    assert all(op.results[0].uses for op in again(timeline))


@pytest.mark.long
@pytest.mark.parametrize("effort", [2.0, 0.5])
def test_no_bit_of_a_training_changes(effort: float) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((8, 12, 12, 3), np.float32)
    label = random.integers(0, 4, 8, np.int32)
    found: list[dict[str, bytes]] = []
    for settings in (Settings(recompute=0), Settings(recompute=effort)):
        trainer, _ = make_trainer(CompileRequest("model.dlm", text=NETWORK, settings=settings))
        for _ in range(3):
            trainer.step(x=x, label=label)
        found.append({name: np.array(w).tobytes() for name, w in trainer.weights.items()})
    assert found[0] == found[1]


def test_the_meaning_is_the_same_behind_the_pass() -> None:
    opened, check = lowered(2.0), EachPass()
    check.before("recompute", opened.module)
    PASSES["recompute"].run(opened.module, opened.context)
    check.after("recompute", opened.module)
    assert again(Timeline(step_of(opened)))


# A limit of the memory ------------------------------------------------------------------------------


def limited(most: int, *disabled: str, effort: float | None = None) -> Artifact:
    settings = Settings(max_memory=most, disabled=frozenset(disabled), conv="direct")
    if effort is not None:
        settings = replace(settings, recompute=effort)
    wanted = CompileRequest("model.dlm", text=NETWORK, to_train=True, settings=settings)
    return make_artifact(wanted).artifact


@pytest.mark.long
def test_a_limit_makes_it_compute_more_again_until_it_is_kept() -> None:
    most = 1_250_000
    promise = limited(most).manifest.promise
    assert promise is not None and promise.memory == most
    with pytest.raises(Unsupported, match=f"the limit is {most:,} bytes"):
        limited(most, "recompute")


def test_a_limit_that_no_recomputation_keeps_is_refused_with_what_holds_the_peak(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With as much computed again as is ever tried, at once: the steps are those of the test before."""
    *_, most = compile.MORE_RECOMPUTED
    monkeypatch.setattr(compile, "MORE_RECOMPUTED", ())
    with pytest.raises(Unsupported) as caught:
        limited(1_000_000, effort=most)
    (found,) = [d for d in caught.value.diagnostics if "train_step" in d.message]
    assert "values on the way" in found.message
    assert found.labels
