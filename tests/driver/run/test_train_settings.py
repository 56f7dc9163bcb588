"""Settings of a step and of a training: accumulation, averages, parts of the loss, early stop, the best."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.cli import main
from dlc.errors import Diagnostic, ModelError
from dlc.frontend.elaborate import elaborate
from dlc.runtime.training.checkpoint import read_checkpoint
from dlc.runtime.training.history import Record

MODEL = """\
dlc 1
import nn (Linear, BatchNorm, Dropout)
dim B = 1..64
module Net(hidden = 8) {
  use first = Linear(4, hidden)
  use bn = BatchNorm(hidden)
  use drop = Dropout(0.3)
  use head = Linear(hidden, 1)
  fn call(x: f32[B, 4]) -> f32[B, 1] = x |> first |> CHAIN |> head
  export fn predict(x: f32[B, 4]) -> f32[B, 1] = call(x)
}
train Net {
  data = npz("data.npz", x="x", y="y", test=0.25)
  loss(x: f32[B, 4], y: f32[B, 1]) = LOSS
  metric near = mean(f32(abs(predict(x) - y) < 1))
  optimizer = adam(lr=0.01, clip_norm=1)
  batch = 8
  MORE
}
"""
SQUARED = "mean((call(x) - y) ** 2)"
RNG = np.random.default_rng(4)
X: NDArray[np.float32] = RNG.normal(size=(32, 4)).astype(np.float32)
Y: NDArray[np.float32] = X.sum(1, keepdims=True)


def text(more: str = "", chain: str = "tanh", loss: str = SQUARED) -> str:
    return MODEL.replace("MORE", more).replace("CHAIN", chain).replace("LOSS", loss)


def numbers(trainer: dlc.Trainer, name: str) -> NDArray[np.float64]:
    return trainer.weights.tensor(name).values().astype(np.float64)


def refused(more: str, loss: str = SQUARED) -> Diagnostic:
    with pytest.raises(ModelError) as caught:
        elaborate("net.dlm", text=text(more, loss=loss))
    return caught.value.diagnostics[0]


# Accumulation -------------------------------------------------------------------------------------


def test_accumulated_gradients_are_those_of_one_large_batch() -> None:
    large, small = dlc.trainer(text=text()), dlc.trainer(text=text("accumulate = 4"))
    for _ in range(10):
        assert small.step(x=X, y=Y) == pytest.approx(large.step(x=X, y=Y), rel=1e-5)
    for name in large.weights:
        np.testing.assert_allclose(numbers(small, name), numbers(large, name), atol=1e-6)


def test_each_microbatch_sets_the_states_that_the_next_one_begins_with() -> None:
    """As four steps with a learning rate of 0 do."""
    small = dlc.trainer(text=text("accumulate = 4", "bn"))
    small.step(x=X, y=Y)
    still = dlc.trainer(text=text("", "bn").replace("lr=0.01", "lr=0"))
    for first in range(0, 32, 8):
        still.step(x=X[first : first + 8], y=Y[first : first + 8])
    for name in ("bn.running_mean", "bn.running_var"):
        np.testing.assert_allclose(numbers(small, name), numbers(still, name), rtol=1e-5)


def test_each_microbatch_draws_its_own_random_numbers() -> None:
    same = np.repeat(X[:1], 4, axis=0), np.repeat(Y[:1], 4, axis=0)
    drawn = "mean(normal([4]) * 0 + normal([4])) + 0 * sum(head.w)"
    trainer = dlc.trainer(text=text("accumulate = 4", loss=drawn))
    one = dlc.trainer(text=text(loss=drawn))
    assert trainer.step(x=same[0], y=same[1]) != pytest.approx(one.step(x=same[0], y=same[1]))


def test_a_last_short_batch_is_cut_to_equal_microbatches() -> None:
    trainer = dlc.trainer(text=text("accumulate = 3").replace(", test=0.25", ""))
    trainer.fit({"x": X[:29], "y": Y[:29]}, epochs=2)
    assert trainer.steps == 4  # of 24 and of 3 of the 5 that are left
    assert trainer.total_steps == 4


# Averages -----------------------------------------------------------------------------------------


def test_averages_of_weights_follow_them_and_are_what_is_measured_and_exported() -> None:
    trainer = dlc.trainer(text=text("average = ema(decay=0.9)\n  freeze = first"))
    expected = numbers(trainer, "head.w")
    for step in range(100):
        trainer.step(x=X, y=Y)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * numbers(trainer, "head.w")
    np.testing.assert_allclose(np.float64(trainer.trained()["head.w"]), expected, rtol=1e-5)
    assert {name for name in trainer.weights if name.startswith("$average.")} == {
        "$average.head.w",
        "$average.head.b",
    }
    last = trainer.trained(average=False)
    np.testing.assert_array_equal(last["head.w"], numbers(trainer, "head.w").astype(np.float32))
    plain = dlc.trainer(text=text(), weights=trainer.trained())
    assert trainer.measure(x=X, y=Y) == plain.measure(x=X, y=Y)


def test_averages_go_on_from_a_checkpoint_to_the_same_bits(tmp_path: Path) -> None:
    made = [dlc.trainer(text=text("average = ema(decay=0.9)")) for _ in range(2)]
    for trainer in made:
        trainer.step(x=X, y=Y)
    made[0].save(tmp_path / "a.safetensors")
    again = dlc.trainer(text=text("average = ema(decay=0.9)"))
    again.resume(tmp_path / "a.safetensors")
    for trainer in (made[1], again):
        trainer.step(x=X, y=Y)
    np.testing.assert_array_equal(again.trained()["head.w"], made[1].trained()["head.w"])


def test_averages_of_weights_of_bf16_are_kept_in_f32() -> None:
    narrow = """\
dlc 1
dim B = 1..64
module Net {
  param w: bf16[4, 1] = normal(0.1)
  fn call(x: f32[B, 4]) -> f32[B, 1] = f32(bf16(x) @ w)
  export fn predict(x: f32[B, 4]) -> f32[B, 1] = call(x)
}
train Net {
  data = npy("data")
  loss(x: f32[B, 4], y: f32[B, 1]) = mean((call(x) - y) ** 2)
  optimizer = sgd(lr=0.1)
  average = ema(decay=0.99)
}
"""
    trainer = dlc.trainer(text=narrow)
    for _ in range(3):
        trainer.step(x=X, y=Y)
    assert trainer.weights.tensor("$average.w").dtype == "f32"
    assert trainer.trained()["w"].dtype == trainer.trained(average=False)["w"].dtype
    assert np.isfinite(trainer.measure(x=X, y=Y)["loss"])


# Parts of the loss --------------------------------------------------------------------------------


def test_the_parts_of_a_loss_are_recorded_and_the_first_is_trained_on() -> None:
    parts = f"(loss = {SQUARED} + 0.1 * mean(first.w ** 2), fit = {SQUARED}, small = mean(first.w ** 2))"
    trainer = dlc.trainer(text=text(loss=parts))
    whole = dlc.trainer(text=text(loss=f"{SQUARED} + 0.1 * mean(first.w ** 2)"))
    history = trainer.fit({"x": X, "y": Y}, epochs=2)
    whole.fit({"x": X, "y": Y}, epochs=2)
    np.testing.assert_array_equal(trainer.trained()["first.w"], whole.trained()["first.w"])
    values = history[-1].values
    assert set(values) >= {
        "loss",
        "fit",
        "small",
        "test_loss",
        "test_fit",
        "test_small",
        "test_near",
    }
    assert values["loss"] == pytest.approx(values["fit"] + 0.1 * values["small"], rel=1e-5)
    assert set(trainer.parts) == {"fit", "small"}


def test_parts_of_a_loss_have_names() -> None:
    told = refused("", f"({SQUARED}, mean(x))")
    assert (told.code, told.message) == ("D0532", "a loss of several numbers names each of them")
    assert refused("metric fit = loss", f"(loss = {SQUARED}, fit = mean(x))").code == "D0530"


# When it ends, and which checkpoint is the best ----------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    np.savez(tmp_path / "data.npz", x=X, y=Y)
    monkeypatch.chdir(tmp_path)
    return tmp_path


KEEP = 'checkpoint = file("net.safetensors")\n  keep = best(loss)'


def test_a_training_that_gets_no_better_stops_and_the_best_checkpoint_is_kept(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = f"epochs = 50\n  {KEEP}\n  stop = early(loss, patience=2)"
    model = text(settings).replace("adam(lr=0.01, clip_norm=1)", "sgd(lr=1.2)")
    (folder / "net.dlm").write_text(model)
    assert main(["train", "net.dlm", "-o", "net.dlc", "--history", "net.json"]) == 0
    told = capsys.readouterr().err
    last = read_checkpoint("net.safetensors").facts
    kept = read_checkpoint("net.best.safetensors").facts
    losses = [record.values["test_loss"] for record in last.history]
    assert last.epoch < 50 and kept.epoch == 1 + int(np.argmin(losses)) == last.epoch - 2
    assert f"stopped early after epoch {last.epoch}: loss was best after epoch {kept.epoch}" in told
    found = dlc.load("net.dlc").weights.tensor("head.w").bits
    np.testing.assert_array_equal(
        found, read_checkpoint("net.best.safetensors").tensors["head.w"].bits
    )
    assert len(json.loads(Path("net.json").read_text())) == last.epoch
    assert main(["train", "net.dlm", "--resume", "net.safetensors"]) == 0
    assert read_checkpoint("net.safetensors").facts.epoch == last.epoch


def test_the_greatest_measure_is_the_best_where_that_is_said(folder: Path) -> None:
    more = 'checkpoint = file("net.safetensors")\n  keep = best(near, mode="max")\n  epochs = 6'
    path = folder / "net.dlm"
    path.write_text(text(more))
    history = dlc.trainer(path).fit()
    best: Record = max(history, key=lambda record: record.values["test_near"])
    assert read_checkpoint("net.best.safetensors").facts.epoch == best.epoch


@pytest.mark.long
def test_after_fit_the_trained_weights_are_those_of_the_best_checkpoint(folder: Path) -> None:
    more = f"epochs = 9\n  {KEEP}\n  stop = early(loss, patience=2)\n  average = ema(decay=0.9)"
    model = text(more).replace("adam(lr=0.01, clip_norm=1)", "sgd(lr=1.2)")
    (folder / "net.dlm").write_text(model)
    trainer = dlc.trainer("net.dlm")
    begins = trainer.trained()
    trainer.fit()
    kept = read_checkpoint("net.best.safetensors")
    assert kept.facts.epoch < trainer.epoch
    found, last = trainer.trained(average=False), trainer.trained(average=False, best=False)
    assert set(found) == set(begins)
    for name in found:
        np.testing.assert_array_equal(found[name], kept.tensors[name].bits)
    assert not np.array_equal(found["head.w"], last["head.w"])
    np.testing.assert_array_equal(last["head.w"], trainer.weights["head.w"])
    average = kept.tensors["$average.head.w"].bits
    np.testing.assert_array_equal(trainer.trained()["head.w"], average)
    # Further steps, and another checkpoint, are what was asked for last.
    trainer.step(x=X[:8], y=Y[:8])
    now = trainer.trained(average=False)["head.w"]
    np.testing.assert_array_equal(now, trainer.weights["head.w"])
    trainer.resume("net.safetensors")
    np.testing.assert_array_equal(trainer.trained(average=False)["head.w"], last["head.w"])


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        ("accumulate = 0", "D0534", "accumulate is a whole number from 1"),
        ("average = ema(decay=1)", "D0534", "above 0 and below 1"),
        ("average = ema()", "D0534", "ema takes its decay"),
        ("average = mean(decay=0.9)", "D0530", "average is none of ema"),
        ("stop = early(los, patience=2)", "D0534", "one of loss, near"),
        ("stop = early(near, patience=2)", "D0534", "does not say which near is the best"),
        ("stop = early(loss, patience=0)", "D0534", "patience is a number of epochs"),
        ("stop = late(loss)", "D0530", "stop is none of early"),
        ("keep = best(loss)", "D0531", "kept beside the last one"),
        ('keep = best(loss, mode="more")', "D0534", "does not say which loss is the best"),
    ],
)
def test_settings_that_make_no_sense_are_told_at_their_place(
    more: str, code: str, message: str
) -> None:
    told = refused(more)
    assert (told.code, message in told.message) == (code, True), told
    assert told.place is not None and told.place.line == 18 and told.help


def test_a_metric_that_decides_needs_examples_for_the_test() -> None:
    plain = text('stop = early(near, mode="max", patience=2)').replace(", test=0.25", "")
    with pytest.raises(ModelError, match="there are none") as caught:
        elaborate("net.dlm", text=plain)
    assert caught.value.diagnostics[0].code == "D0549"
