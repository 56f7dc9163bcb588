"""Training through the Python API: what a trainer does to weights, checkpoints, and data."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.errors import CallError, ModelError, UsageError
from dlc.runtime.arrays import safetensors
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.data.opening import open_data
from dlc.runtime.training.checkpoint import read_checkpoint
from dlc.runtime.training.progress import Progress
from dlc.runtime.training.trainer import Trainer

ROOT = Path(__file__).parents[3]
DIGITS = """\
dlc 1
import nn (Linear)
dim B = 1..2048

module Digits(hidden = 32) {
  use net = chain(flatten, Linear(64, hidden), relu, Linear(hidden, 10))
  fn logits(image: u8[B, 8, 8, 1]) -> f32[B, 10] = net(f32(image) / 16)
  export fn predict(image: u8[B, 8, 8, 1]) -> i32[B] = argmax(logits(image), axis=-1)
}

train Digits {
  data = npz("digits.npz", image="images", label="labels", test=0.2)
  loss(image: u8[B, 8, 8, 1], label: i32[B]) = mean(cross_entropy(logits(image), label))
  metric accuracy = mean(f32(predict(image) == label))
  optimizer = adam(lr=3e-3)
  batch = 32
  epochs = 6
  seed = 1
}
"""
NOISY = """\
dlc 1
import nn (Linear, Dropout)
dim B = 1..64

module Noisy() {
  use a = Linear(4, 8)
  use drop = Dropout(0.5)
  use b = Linear(8, 1)
  state steps: i32 = 0
  fn call(x: f32[B, 4]) -> f32[B, 1] {
    set steps = steps + 1
    return b(drop(a(x)))
  }
}

train Noisy {
  data = npz("data.npz", x="x", y="y")
  loss(x: f32[B, 4], y: f32[B, 1]) = mean((call(x) - y) ** 2)
  optimizer = momentum(lr=0.05)
  batch = 8
  epochs = 2
}
"""


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """The digits model in a folder of its own, beside its data."""
    (tmp_path / "digits.npz").write_bytes((ROOT / "examples/data/digits.npz").read_bytes())
    path = tmp_path / "digits.dlm"
    path.write_text(DIGITS)
    return path


def batch(count: int = 8) -> dict[str, NDArray[np.float32]]:
    random = np.random.default_rng(0)
    x = random.normal(size=(count, 4)).astype(np.float32)
    return {"x": x, "y": x.sum(1, keepdims=True)}


def save(path: Path, count: int) -> None:
    made = batch(count)
    np.savez(path, x=made["x"], y=made["y"])


def noisy(epochs: int = 2, batch: int = 8, seed: int = 0) -> Trainer:
    return dlc.trainer(text=NOISY, epochs=epochs, batch=batch, seed=seed)


def test_digits_are_learned_from_the_data_that_the_model_names(digits: Path) -> None:
    trainer = dlc.trainer(digits)
    history = trainer.fit()
    assert [record.epoch for record in history] == [1, 2, 3, 4, 5, 6]
    assert history[-1].values["test_accuracy"] > 0.9
    assert history[-1].values["test_loss"] < history[0].values["test_loss"]
    assert trainer.evaluate()["accuracy"] == history[-1].values["test_accuracy"]


def test_the_trained_weights_serve_the_entry_points(digits: Path) -> None:
    trainer = dlc.trainer(digits)
    trainer.fit()
    model = dlc.compile(digits, weights=trainer.trained())
    data = np.load(digits.with_name("digits.npz"))
    found = np.asarray(model.predict(data["images"]))
    assert np.mean(found == data["labels"]) > 0.9


def test_one_and_two_threads_write_the_same_checkpoint(tmp_path: Path) -> None:
    for threads in (1, 2):
        trainer = dlc.trainer(text=NOISY, threads=threads)
        trainer.fit(batch(40))
        trainer.save(tmp_path / f"{threads}.safetensors")
    one, two = ((tmp_path / f"{k}.safetensors").read_bytes() for k in (1, 2))
    assert one == two


def test_a_resumed_training_ends_with_the_bits_of_one_that_never_stopped(tmp_path: Path) -> None:
    whole = noisy(epochs=3)
    whole.fit(batch(20))

    class Stop(Exception):
        pass

    def stop(progress: Progress) -> None:
        if progress.step == 4:
            raise Stop

    first = noisy(epochs=3)
    with pytest.raises(Stop):
        first.fit(batch(20), report=stop)
    first.save(tmp_path / "half.safetensors")
    second = noisy(epochs=3)
    second.resume(tmp_path / "half.safetensors")
    assert (second.epoch, second.steps, second.position) == (1, 4, 8)
    second.fit(batch(20))
    for name, value in whole.weights.items():
        np.testing.assert_array_equal(np.asarray(second.weights[name]), np.asarray(value))
    assert second.weights["steps"] == 9
    for trainer, name in ((whole, "whole"), (second, "resumed")):
        trainer.save(tmp_path / f"{name}.safetensors")
    one, two = ((tmp_path / f"{k}.safetensors").read_bytes() for k in ("whole", "resumed"))
    assert one == two, "with the history"


def test_batches_may_come_from_anything_that_can_be_gone_through_twice() -> None:
    data = batch(24)
    parts = [{name: array[k : k + 8] for name, array in data.items()} for k in (0, 8, 16)]
    named, unnamed = noisy(epochs=2), noisy(epochs=2)
    assert [record.step for record in named.fit(parts)] == [3, 6]
    unnamed.fit([(part["x"], part["y"]) for part in parts])
    assert named.trained()["a.w"].tobytes() == unnamed.trained()["a.w"].tobytes()
    with pytest.raises(ModelError, match="gives its batches only once"):
        noisy(epochs=2).fit(part for part in parts)


def test_data_that_was_opened_before_is_not_opened_again(tmp_path: Path) -> None:
    save(tmp_path / "data.npz", 24)
    trainer = noisy(epochs=1)
    data = trainer.data(tmp_path / "data.npz")
    (tmp_path / "data.npz").unlink()
    assert trainer.fit(data)[0].step == 3
    assert trainer.evaluate(data).keys() == {"loss"}


MEASURED = NOISY.replace(
    "  optimizer",
    "  metric weighed(x: f32[B, 4], w: f32[B]) = mean(w * call(x)[:, 0])\n  optimizer",
).replace('y="y")', 'y="y", w="w")')


def test_a_metric_may_take_what_the_loss_does_not() -> None:
    trainer = dlc.trainer(text=MEASURED)
    data = {**batch(24), "w": np.ones(24, np.float32)}
    trainer.fit(data)
    assert trainer.evaluate(data).keys() == {"loss", "weighed"}
    assert trainer.step(**batch()) > 0
    assert trainer.measure(**data).keys() == {"loss", "weighed"}


SCHEDULED = NOISY.replace("momentum(lr=0.05)", "sgd(lr=slope(peak=0.1))")


def test_a_schedule_without_steps_ends_with_the_training() -> None:
    trainer = dlc.trainer(text=SCHEDULED, epochs=2)
    trainer.fit(batch(20))
    assert trainer.total_steps == 6
    fixed = dlc.trainer(text=SCHEDULED.replace("peak=0.1", "peak=0.1, steps=6"), epochs=2)
    fixed.fit(batch(20))
    assert fixed.trained()["a.w"].tobytes() == trainer.trained()["a.w"].tobytes()


def test_where_the_length_is_unknown_a_schedule_asks_for_it() -> None:
    trainer = dlc.trainer(text=SCHEDULED)
    with pytest.raises(CallError, match="how many steps that has is not known") as caught:
        trainer.step(**batch())
    assert caught.value.diagnostics[0].code == "D0816"
    for steps in (10, 1 << 40):
        trainer.total_steps = steps
        assert trainer.step(**batch()) > 0


def test_every_step_draws_anew_and_the_same_seed_draws_the_same() -> None:
    data = batch()
    losses = [[t.step(**data) for _ in range(3)] for t in (noisy(), noisy(), noisy(seed=7))]
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]
    assert len(set(losses[0])) == 3


def test_a_checkpoint_is_not_written_under_the_name_of_another_kind_of_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.dlm").write_text(NOISY)
    trainer = dlc.trainer("model.dlm")
    batch = {"x": np.ones((2, 4), np.float32), "y": np.ones((2, 1), np.float32)}
    for name in ("model.dlm", "model.npz", "model"):
        with pytest.raises(UsageError, match=r"D09(01|24)"):
            trainer.save(name)
        with pytest.raises(UsageError, match=r"D09(01|24)"):
            trainer.fit([batch], epochs=1, checkpoint=name)
    with pytest.raises(UsageError, match="D09"):
        trainer.fit([batch], epochs=1, checkpoint="model.dlc")
    for epochs in (-1, "3", 1.5):
        with pytest.raises(UsageError, match="epochs is a whole number from 0 on, found"):
            trainer.fit([batch], epochs=epochs)  # pyright: ignore[reportArgumentType]
    assert Path("model.dlm").read_text() == NOISY
    assert trainer.steps == 0


def test_a_saved_trainer_goes_on_without_the_compiler(tmp_path: Path) -> None:
    trainer = noisy(seed=3)
    trainer.step(**batch())
    trainer.save(tmp_path / "trainer.dlc")
    save(tmp_path / "batch.npz", 8)
    with np.load(tmp_path / "batch.npz") as arrays:
        given: dict[str, object] = dict(arrays)
        loss = trainer.step(**given)
    script = (
        "import sys, numpy as np, dlc\n"
        "from dlc.runtime.artifact.contents import Artifact\n"
        "t = dlc.Trainer(Artifact.read('trainer.dlc'))\n"
        "print(t.step(**np.load('batch.npz')), float(t.weights['steps']), t.steps, t.seed)\n"
        "bad = [m for m in sys.modules if m.startswith(('llvmlite', 'dlc.driver', 'dlc.ir'))]\n"
        "assert not bad, bad\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert told == [repr(loss), "2.0", "2", "3"]


def test_a_saved_trainer_ends_as_if_it_had_not_been_interrupted(digits: Path) -> None:
    whole = dlc.trainer(digits, epochs=3)
    whole.fit()
    trainer = dlc.trainer(digits, epochs=3)

    def stop(now: Progress) -> None:
        if now.step == 70:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer.fit(report=stop)
    trainer.save(digits.parent / "trainer.dlc")
    again = dlc.trainer(digits.parent / "trainer.dlc")
    assert (again.steps, again.epoch, again.position) == (70, 1, 25 * 32)
    assert again.fit() == whole.history
    for path, each in (("whole.safetensors", whole), ("again.safetensors", again)):
        each.save(digits.parent / path)
    one, other = (digits.parent / f"{name}.safetensors" for name in ("whole", "again"))
    assert one.read_bytes() == other.read_bytes()
    again.save(digits.parent / "trainer.dlc")
    assert dlc.trainer(digits.parent / "trainer.dlc", epochs=4).epoch == 3


def test_the_seed_of_a_training_that_has_begun_cannot_be_set(digits: Path) -> None:
    trainer = dlc.trainer(digits)
    path = digits.parent / "trainer.dlc"
    trainer.save(path)
    assert dlc.trainer(path, seed=7).seed == 7
    with np.load(digits.parent / "digits.npz") as arrays:
        trainer.step(image=arrays["images"][:8], label=arrays["labels"][:8])
    trainer.save(path)
    with pytest.raises(UsageError, match="brings the seed 1, which --set makes 7") as caught:
        dlc.trainer(path, seed=7)
    assert caught.value.diagnostics[0].code == "D0925"
    assert dlc.trainer(path, epochs=1).seed == 1


def test_weights_given_at_the_start_leave_the_optimizer_as_it_begins() -> None:
    first = noisy()
    first.step(**batch())
    second = dlc.trainer(text=NOISY, weights=first.trained())
    np.testing.assert_array_equal(np.asarray(second.weights["a.w"]), first.trained()["a.w"])
    assert not np.any(np.asarray(second.weights["$optimizer.a.w.v"]))


def test_the_views_of_the_weights_follow_them_and_cannot_be_written() -> None:
    trainer = noisy()
    view = np.asarray(trainer.weights["a.w"])
    before = view.copy()
    trainer.step(**batch())
    assert not np.array_equal(view, before)
    with pytest.raises(ValueError, match="read-only"):
        view[...] = 0


def test_a_second_thread_is_refused_while_a_step_runs() -> None:
    trainer = noisy(epochs=1)
    inside, done = threading.Event(), threading.Event()

    def report(progress: Progress) -> None:
        inside.set()
        done.wait(10)

    worker = threading.Thread(target=lambda: trainer.fit(batch(8), report=report))
    worker.start()
    inside.wait(10)
    try:
        with pytest.raises(CallError) as caught:
            trainer.step(**batch())
    finally:
        done.set()
        worker.join()
    assert caught.value.diagnostics[0].code == "D0813"


def test_a_loss_that_is_no_number_ends_the_training() -> None:
    text = NOISY.replace("lr=0.05", "lr=1e30")
    with pytest.raises(CallError, match="the loss is") as caught:
        dlc.trainer(text=text, epochs=9).fit(batch(40))
    assert caught.value.diagnostics[0].code == "D0815"


def test_a_last_checkpoint_that_could_not_be_written_is_written_by_the_next_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    trainer = noisy(epochs=1)
    path = tmp_path / "c.safetensors"
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", refuse)
        with pytest.raises(UsageError, match="no space left"):
            trainer.fit(batch(20), checkpoint=path)
    assert not path.exists()
    trainer.fit(batch(20), checkpoint=path)
    facts = read_checkpoint(path).facts
    assert (facts.epoch, facts.step) == (1, trainer.steps)


def test_a_checkpoint_of_another_model_changes_nothing(tmp_path: Path) -> None:
    trainer = noisy()
    trainer.save(tmp_path / "a.safetensors")
    other = dlc.trainer(
        text=NOISY.replace("Linear(4, 8)", "Linear(4, 9)").replace("(8, 1)", "(9, 1)")
    )
    before = other.trained()
    with pytest.raises(UsageError, match="is of another training"):
        other.resume(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(other.trained()["a.w"], before["a.w"])


def test_batches_that_do_not_fit_are_refused_by_name() -> None:
    trainer = noisy()
    with pytest.raises(CallError, match="the input y is missing"):
        trainer.step(x=batch()["x"])
    with pytest.raises(CallError, match="there is no input z"):
        trainer.step(**batch(), z=1)
    with pytest.raises(CallError, match="f64"):
        trainer.step(x=batch()["x"].astype(np.float64), y=batch()["y"])


def test_a_model_that_only_runs_is_refused_as_a_trainer(tmp_path: Path) -> None:
    model = dlc.compile(text="dlc 1\nexport fn f(x: f32) -> f32 = x + 1")
    model.save(tmp_path / "f.dlc")
    with pytest.raises(UsageError, match="does not train"):
        Trainer(Artifact.read(tmp_path / "f.dlc"))
    with pytest.raises(ModelError, match="no train block"):
        dlc.trainer(text="dlc 1\nexport fn f(x: f32) -> f32 = x + 1")


def test_advice_about_training_holds_on_the_command_line_and_in_python(tmp_path: Path) -> None:
    dlc.compile(text="dlc 1\nexport fn f(x: f32) -> f32 = x + 1").save(tmp_path / "f.dlc")
    safetensors.write(tmp_path / "w.safetensors", {"w": dlc.Tensor([1.0], "f32")})
    wrong: list[Callable[[], object]] = [
        lambda: Trainer(Artifact.read(tmp_path / "f.dlc")),
        lambda: read_checkpoint(tmp_path / "w.safetensors"),
        lambda: open_data(None, (), tmp_path, seed=0),
    ]
    for attempt in wrong:
        with pytest.raises(UsageError) as caught:
            attempt()
        help = caught.value.diagnostics[0].help
        assert help is not None
        assert "--" not in help
        assert "dlc." not in help


def test_without_test_data_evaluate_says_how_to_get_some(tmp_path: Path) -> None:
    path = tmp_path / "noisy.dlm"
    path.write_text(NOISY)
    save(tmp_path / "data.npz", 24)
    trainer = dlc.trainer(path)
    with pytest.raises(UsageError, match="no examples that are kept for the test"):
        trainer.evaluate()
    assert trainer.evaluate(batch(10)).keys() == {"loss"}


def test_epochs_batch_and_seed_may_be_set_from_outside() -> None:
    trainer = noisy(epochs=1, batch=5, seed=9)
    assert (trainer.facts.epochs, trainer.facts.batch, trainer.seed) == (1, 5, 9)
    with pytest.raises(UsageError, match="batch is a whole number from 1 to"):
        noisy(batch=0)
