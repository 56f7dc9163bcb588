"""Trainers of several `train` blocks with common weights, and checkpoints that have the progress of all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.cli import main
from dlc.errors import UsageError
from dlc.runtime.training.checkpoint import read_checkpoint

GAN = """\
dlc 1
import nn (Linear)
dim B = 1..256

module Gan(noise = 4, hidden = 16) {
  use generator = chain(Linear(noise, hidden), relu, Linear(hidden, 2))
  use discriminator = chain(Linear(2, hidden), relu, Linear(hidden, 1))
  fn scored(x: f32[B, 2]) -> f32[B] = reshape(discriminator(x), [B])
  export fn sample(z: f32[B, noise]) -> f32[B, 2] = generator(z)
}
train discriminate for Gan {
  data = npz("points.npz", x="x", z="z")
  loss(x: f32[B, 2], z: f32[B, noise]) = mean(softplus(-scored(x)) + softplus(scored(sample(z))))
  freeze = generator
  optimizer = adam(lr=1e-3)
}
train generate for Gan {
  data = npz("points.npz", z="z")
  loss(z: f32[B, noise]) = mean(softplus(-scored(sample(z))))
  freeze = discriminator
  optimizer = momentum(lr=1e-3)
}
"""
RNG = np.random.default_rng(1)
POINTS: NDArray[np.float32] = (RNG.normal(size=(32, 2)) * 0.3 + [2, -1]).astype(np.float32)
NOISE: NDArray[np.float32] = RNG.normal(size=(32, 4)).astype(np.float32)


@pytest.fixture
def gan(tmp_path: Path) -> Path:
    """The text beside its data."""
    np.savez(tmp_path / "points.npz", x=POINTS, z=NOISE)
    path = tmp_path / "gan.dlm"
    path.write_text(GAN)
    return path


def alternated(trainers: dict[str, dlc.Trainer], steps: int) -> None:
    for _ in range(steps):
        trainers["discriminate"].step(x=POINTS, z=NOISE)
        trainers["generate"].step(z=NOISE)


def weights(trainer: dlc.Trainer) -> dict[str, bytes]:
    return {name: trainer.weights.tensor(name).bits.tobytes() for name in trainer.weights}


@pytest.mark.long
def test_the_two_sides_of_a_gan_change_common_weights_in_turn(gan: Path) -> None:
    trainers = dlc.trainers(gan)
    assert list(trainers) == ["discriminate", "generate"]
    one, two = trainers.values()
    start = weights(one)
    one.step(x=POINTS, z=NOISE)
    after = weights(two)
    changed = {name for name in start if start[name] != after[name]}
    assert {name.split(".")[0] for name in changed} == {"discriminator", "$optimizer"}
    assert not [name for name in changed if name.startswith("$optimizer.generate:")]
    alternated(trainers, 20)
    assert (one.steps, two.steps) == (21, 20)
    assert weights(one) == weights(two)


def test_alternating_is_what_two_trainers_do_that_hand_their_weights_over(gan: Path) -> None:
    trainers = dlc.trainers(gan)
    alternated(trainers, 2)
    apart = {name: dlc.trainer(gan, block=name) for name in trainers}
    for _ in range(2):
        for name, batch in (
            ("discriminate", {"x": POINTS, "z": NOISE}),
            ("generate", {"z": NOISE}),
        ):
            apart[name].step(**batch)
            (other,) = [trainer for key, trainer in apart.items() if key != name]
            for path, value in apart[name].trained().items():
                other._weights.tensors[path].bits[...] = value  # pyright: ignore[reportPrivateUsage]
    for path, value in apart["generate"].trained().items():
        np.testing.assert_array_equal(trainers["generate"].trained()[path], value)


def test_a_checkpoint_has_the_progress_of_all_blocks(gan: Path) -> None:
    trainers = dlc.trainers(gan)
    alternated(trainers, 5)
    path = gan.with_name("gan.safetensors")
    trainers["generate"].save(path)
    alternated(trainers, 5)
    progress = read_checkpoint(path).progress
    assert {name: facts.step for name, facts in progress.items()} == dict.fromkeys(trainers, 5)
    again = dlc.trainers(gan)
    again["discriminate"].resume(path)
    alternated(again, 5)
    assert weights(again["generate"]) == weights(trainers["generate"])


def test_one_block_goes_on_from_the_weights_of_another_and_keeps_what_that_needs(gan: Path) -> None:
    """As `dlc train --block a`, then `--block b --resume`, then `--block a --resume` does."""
    path = gan.with_name("gan.safetensors")
    first = dlc.trainer(gan, block="discriminate")
    first.step(x=POINTS, z=NOISE)
    first.save(path)
    second = dlc.trainer(gan, block="generate")
    second.resume(path)
    assert second.steps == 0
    second.step(z=NOISE)
    second.save(path)
    third = dlc.trainer(gan, block="discriminate")
    third.resume(path)
    assert third.steps == 1
    third.step(x=POINTS, z=NOISE)
    together = dlc.trainers(gan)
    alternated(together, 1)
    together["discriminate"].step(x=POINTS, z=NOISE)
    assert {n: b.tobytes() for n, b in together["generate"].trained().items()} == {
        n: b.tobytes() for n, b in third.trained().items()
    }


def test_the_command_line_trains_one_block_after_the_other(
    gan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(gan.parent)
    assert main(["train", "gan.dlm", "-o", "out.dlc"]) == 2
    assert "say which one is meant: --block discriminate" in capsys.readouterr().err
    assert main(["train", "gan.dlm", "--block", "discriminate", "-o", "one.safetensors"]) == 0
    more = ["--resume", "one.safetensors", "-o", "both.safetensors"]
    assert main(["train", "gan.dlm", "--block", "generate", *more]) == 0
    assert set(read_checkpoint("both.safetensors").progress) == {"discriminate", "generate"}
    assert main(["check", "gan.dlm"]) == 0
    told = capsys.readouterr().out
    assert "train generate for Gan\n    trains 114 parameters: generator.0.w" in told
    assert "freezes 65 parameters: discriminator.0.w" in told


def test_a_saved_trainer_of_a_block_goes_on_by_itself(gan: Path) -> None:
    trainers = dlc.trainers(gan)
    alternated(trainers, 3)
    path = gan.with_name("generate.dlc")
    trainers["generate"].save(path)
    again = dlc.trainer(path)
    assert (again.steps, again.facts.block) == (3, "generate")
    assert again.step(z=NOISE) == trainers["generate"].step(z=NOISE)


def test_only_model_text_has_several_blocks(gan: Path) -> None:
    path = gan.with_name("generate.dlc")
    dlc.trainer(gan, block="generate").save(path)
    with pytest.raises(UsageError, match="is not model text"):
        dlc.trainers(path)
    with pytest.raises(UsageError, match="trains by the block generate"):
        dlc.trainer(path, block="discriminate")


def test_the_best_checkpoint_of_one_trainer_is_what_all_have_trained_until_one_goes_on(
    gan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(gan.parent)
    # The first epoch has the largest loss.
    keep = 'epochs = 3\n  checkpoint = file("gan.safetensors")\n  keep = best(loss, mode="max")'
    gan.write_text(GAN.replace("momentum(lr=1e-3)", f"momentum(lr=1e-3)\n  batch = 8\n  {keep}"))
    trainers = dlc.trainers(gan)
    one, two = trainers["discriminate"], trainers["generate"]
    two.fit()
    kept, name = read_checkpoint("gan.best.safetensors").tensors, "generator.2.w"
    assert not np.array_equal(kept[name].bits, two.weights[name])
    for trainer in (one, two):
        np.testing.assert_array_equal(trainer.trained()[name], kept[name].bits)
        np.testing.assert_array_equal(trainer.trained(best=False)[name], two.weights[name])
    one.step(x=POINTS, z=NOISE)
    for trainer in (one, two):
        np.testing.assert_array_equal(trainer.trained()[name], two.weights[name])
    two.fit()
    one.resume("gan.safetensors")
    np.testing.assert_array_equal(two.trained()[name], two.weights[name])
