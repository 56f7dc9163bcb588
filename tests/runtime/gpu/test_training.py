"""Training, running and timing on a GPU, from Python and the command line; the GPU is the evaluator."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np
import pytest

import dlc
from dlc.cli import main
from dlc.errors import CallError, Unsupported
from dlc.runtime.training.trainer import Trainer
from tests.runtime.gpu.fake_gpu import FakeGpu, fake_gpu

TEXT = Path(__file__).parents[2] / "gpu/line.dlm"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model beside its data."""
    folder = tmp_path_factory.mktemp("line")
    random = np.random.default_rng(0)
    x = random.standard_normal((12, 3)).astype(np.float32)
    np.savez(folder / "points.npz", x=x, y=np.tanh(x.sum(axis=1)))
    (folder / "line.dlm").write_text(TEXT.read_text("utf-8"), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeGpu]:
    with fake_gpu() as found:
        yield found


@pytest.fixture(scope="module")
def trained(folder: Path, fake: FakeGpu) -> Trainer:
    """A trainer on the GPU after all its epochs."""
    trainer = dlc.trainer(folder / "line.dlm", target="cuda")
    trainer.fit()
    return trainer


def test_it_learns_what_it_learns_on_a_processor(folder: Path, trained: Trainer) -> None:
    wanted = dlc.trainer(folder / "line.dlm")
    wanted.fit()
    for one, other in zip(trained.history, wanted.history, strict=True):
        assert one.values == pytest.approx(other.values, rel=1e-4)
    for name, value in wanted.trained().items():
        found = np.asarray(trained.trained()[name], np.float64)
        np.testing.assert_allclose(found, np.asarray(value, np.float64), rtol=1e-3, atol=1e-5)


LAYERS = """\
dlc 1
import nn (Linear)
dim B = 1..8
module Net() {
  use hidden = Linear(3, 4)
  use out = Linear(4, 1)
  fn guess(x: f32[B, 3]) -> f32[B] = out(tanh(hidden(x)))[:, 0]
}
train Net {
  data = npz("points.npz", x="x", y="y")
  loss(x: f32[B, 3], y: f32[B]) = mean(square(guess(x) - y))
  optimizer = adam(lr=0.01)
  batch = 3
  epochs = 1
}
"""


WORDS = """\
dlc 1
dim B = 1..8
module Words {
  param table: f32[4, 2] = normal(1)
  fn at(ids: i32[B]) -> f32[B, 2] = table[ids]
}
train Words {
  data = npz("words.npz", ids="ids")
  loss(ids: i32[B]) = mean(at(ids) ** 2)
  optimizer = sgd(lr=0.01)
  batch = 2
  epochs = 1
}
"""


def test_weights_that_are_updated_by_one_launch_are_the_same(folder: Path, fake: FakeGpu) -> None:
    (folder / "layers.dlm").write_text(LAYERS, encoding="utf-8")
    batch = {"x": np.eye(3, dtype=np.float32), "y": np.ones(3, np.float32)}
    found, wanted = (
        dlc.trainer(folder / "layers.dlm", target=target) for target in ("cuda", "cpu")
    )
    for _ in range(2):
        assert float(found.step(**batch)) == pytest.approx(float(wanted.step(**batch)), rel=1e-5)
    for name, value in wanted.trained().items():
        one, other = (np.asarray(x, np.float64) for x in (found.trained()[name], value))
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_weights_stay_on_the_device_between_steps(
    folder: Path, fake: FakeGpu, trained: Trainer
) -> None:
    batch = {"x": np.ones((3, 3), np.float32), "y": np.ones(3, np.float32)}
    trainer = dlc.trainer(folder / "line.dlm", target="cuda")
    before = np.array(trainer.weights["w"])
    trainer.step(**batch)
    fake.transfers.clear()
    trainer.step(**batch)
    ups = [count for way, count in fake.transfers if way == "up"]
    assert len([count for count in ups if count]) == 1, "the batch and the step's numbers, together"
    assert len(trainer.weights) > 3
    after = np.array(trainer.weights["w"])
    assert not np.array_equal(before, after)
    np.testing.assert_array_equal(after, np.array(trainer.weights["w"]))


def test_steps_can_be_started_before_those_before_are_over(folder: Path, fake: FakeGpu) -> None:
    batch = {"x": np.eye(3, dtype=np.float32), "y": np.ones(3, np.float32)}
    one, other = (dlc.trainer(folder / "line.dlm", target="cuda") for _ in range(2))
    for trainer in (one, other):
        for _ in range(3):
            trainer.step(**batch)
    fake.done.clear()
    started = [one.step(wait=False, **batch) for _ in range(3)]
    assert not fake.done
    assert [each.loss() for each in started] == [other.step(**batch) for _ in range(3)]
    one.step(wait=False, **batch)
    other.step(**batch)
    np.testing.assert_array_equal(np.array(one.weights["w"]), np.array(other.weights["w"]))
    assert one.steps == other.steps == 7


def test_a_trainer_that_is_dropped_has_done_the_steps_that_were_started(
    folder: Path, fake: FakeGpu
) -> None:
    batch = {"x": np.eye(3, dtype=np.float32), "y": np.ones(3, np.float32)}
    trainer = dlc.trainer(folder / "line.dlm", target="cuda")
    for _ in range(3):
        trainer.step(**batch)
    fake.done.clear()
    trainer.step(wait=False, **batch)
    assert not fake.done
    del trainer
    gc.collect()
    assert "wait" in fake.done
    assert not fake.is_busy


def test_a_step_that_fails_in_flight_is_told_where_it_is_waited_for(
    folder: Path, fake: FakeGpu
) -> None:
    (folder / "words.dlm").write_text(WORDS, encoding="utf-8")
    trainer = dlc.trainer(folder / "words.dlm", target="cuda")
    good, bad = {"ids": np.array([1, 2], np.int32)}, {"ids": np.array([1, 9], np.int32)}
    for _ in range(3):
        trainer.step(**good)
    first, second, third = (trainer.step(wait=False, **each) for each in (good, bad, good))
    assert np.isfinite(float(first))
    for each in (second, third):
        with pytest.raises(CallError, match="D0807"):
            each.loss()
    assert np.isfinite(trainer.step(**good))


def test_on_a_processor_a_started_step_is_over(folder: Path) -> None:
    processor = dlc.trainer(folder / "line.dlm")
    batch = {"x": np.eye(3, dtype=np.float32), "y": np.ones(3, np.float32)}
    started = processor.step(wait=False, **batch)
    assert started.loss() == float(started) == dlc.trainer(folder / "line.dlm").step(**batch)


@pytest.mark.long
def test_a_checkpoint_goes_on_where_it_was(folder: Path, fake: FakeGpu, tmp_path: Path) -> None:
    batch = {"x": np.ones((3, 3), np.float32), "y": np.ones(3, np.float32)}
    one, other = (dlc.trainer(folder / "line.dlm", target="cuda") for _ in range(2))
    one.step(**batch)
    one.save(tmp_path / "one.safetensors")
    other.resume(tmp_path / "one.safetensors")
    assert one.step(**batch) == other.step(**batch)
    assert one.measure(**batch) == other.measure(**batch)


def test_a_training_can_be_saved_and_loaded_whole(
    folder: Path, fake: FakeGpu, trained: Trainer, tmp_path: Path
) -> None:
    trained.save(tmp_path / "line.dlc")
    again = Trainer(dlc.load(tmp_path / "line.dlc").artifact, folder=folder)
    batch = {"x": np.ones((3, 3), np.float32), "y": np.ones(3, np.float32)}
    assert again.measure(**batch) == trained.measure(**batch)


def said(capsys: pytest.CaptureFixture[str], *words: object) -> object:
    """What a command gives as JSON."""
    assert main([str(word) for word in words]) == 0, capsys.readouterr()
    return json.loads(capsys.readouterr().out)


def test_dlc_train_makes_an_artifact_for_the_device(
    folder: Path, fake: FakeGpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "line.dlc"
    command = ["train", folder / "line.dlm", "--target", "cuda", "--set", "epochs=1", "-o", out]
    (row,) = cast("list[dict[str, object]]", said(capsys, *command, "--json"))
    assert row["epoch"] == 1
    (target,) = dlc.load(out).artifact.manifest.targets
    assert target.name == "cuda:sm_80"


def test_dlc_run_gives_what_it_gives_on_a_processor(
    folder: Path, fake: FakeGpu, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", folder / "line.dlm", "--weights", "init:0", "--random-inputs", "0", "--json"]
    before = len(fake.launched)
    found = said(capsys, *command, "--target", "cuda")
    assert len(fake.launched) > before
    wanted = said(capsys, *command)
    results = [
        cast("dict[str, dict[str, dict[str, object]]]", one)["results"] for one in (found, wanted)
    ]
    values = [np.asarray(one["guess"]["values"], np.float64) for one in results]
    np.testing.assert_allclose(*values, rtol=1e-5)


def test_dlc_bench_shows_transfers_apart(
    folder: Path, fake: FakeGpu, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["bench", folder / "line.dlm", "--weights", "init:0", "--seconds", "0"]
    found = cast("dict[str, object]", said(capsys, *command, "--target", "cuda", "--json"))
    assert found["device"] == "cuda:0"
    for part in ("upload_ms", "compute_ms", "download_ms", "weights_ms"):
        time = found[part]
        assert isinstance(time, float)
        assert time > 0
    assert main([str(word) for word in [*command, "--target", "cuda"]]) == 0
    assert "on cuda:0: " in capsys.readouterr().out
    found = cast("dict[str, object]", said(capsys, *command, "--json"))
    assert found["device"] == "cpu"
    assert found["upload_ms"] is None


def test_a_gpu_that_is_too_old_is_said_before_work_begins(folder: Path, fake: FakeGpu) -> None:
    with pytest.raises(
        Unsupported, match="cuda:sm_90a needs a GPU of the kind sm_90a, cuda:0 is sm_80"
    ):
        dlc.compile(folder / "line.dlm", target="cuda:sm_90a")
    with pytest.raises(Unsupported, match="D0714"):
        dlc.trainer(folder / "line.dlm", target="cuda:sm_90a")
