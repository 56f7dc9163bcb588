"""The examples that train: from their files, with their data, to what they promise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dlc
from dlc.driver.run.request import CompileRequest
from dlc.driver.run.train import make_trainer
from tests.suites import every

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    ("name", "measure", "least", "most"),
    [
        pytest.param("digits_mlp", "test_accuracy", 0.95, 1, marks=pytest.mark.long),
        ("tumours", "test_accuracy", 0.96, 1),
        pytest.param("autoencoder", "test_rms", 0, 0.14, marks=pytest.mark.long),
        ("robust", "test_error", 0, 1),
        pytest.param("vae", "test_loss", 0, 26, marks=pytest.mark.long),
        pytest.param("contrastive", "test_found", 0.4, 1, marks=pytest.mark.long),
        pytest.param("digits_lion", "test_accuracy", 0.96, 1, marks=pytest.mark.long),
        pytest.param("vit", "test_accuracy", 0.95, 1, marks=pytest.mark.long),
        pytest.param("unet", "test_loss", 0, 0.27, marks=pytest.mark.long),
        pytest.param("diffusion", "test_loss", 0, 0.22, marks=pytest.mark.long),
        pytest.param("seq2seq", "test_letters_right", 0.95, 1, marks=pytest.mark.long),
        pytest.param("gcn", "test_accuracy", 0.93, 1, marks=pytest.mark.long),
        pytest.param("digits_ema", "test_accuracy", 0.95, 1, marks=pytest.mark.long),
        pytest.param("digits_cnn", "test_accuracy", 0.985, 1, marks=pytest.mark.long),
    ],
)
def test_the_examples_learn_what_they_promise(
    name: str, measure: str, least: float, most: float
) -> None:
    trainer = dlc.trainer(EXAMPLES / f"{name}.dlm")
    history = trainer.fit()
    assert least <= history[-1].values[measure] <= most
    assert history[-1].values["loss"] < history[0].values["loss"]


@pytest.mark.parametrize(
    ("name", "settings", "most"),
    [
        ("gcn", {"epochs": 30}, 1.5),
        pytest.param("diffusion", {"hidden": 64, "epochs": 10}, 0.6, marks=pytest.mark.long),
        pytest.param("vit", {"D": 16, "L": 1, "epochs": 4}, 0.8, marks=pytest.mark.long),
        pytest.param("digits_ema", {"C": 8, "epochs": 3}, 1.5, marks=pytest.mark.long),
        pytest.param("unet", {"C": 4, "epochs": 2}, 0.4, marks=pytest.mark.long),
        pytest.param("seq2seq", {"epochs": 1}, 2.9, marks=pytest.mark.long),
    ],
)
def test_examples_learn_at_a_small_size(name: str, settings: dict[str, int], most: float) -> None:
    """They begin at about 2.3, the U-Net at 0.8, diffusion at 1, letters at 4.9."""
    trainer, _ = make_trainer(CompileRequest(str(EXAMPLES / f"{name}.dlm"), parameters=settings))
    assert trainer.fit()[-1].values["test_loss"] < most


@pytest.mark.long
def test_a_gan_draws_with_the_mean_ink_of_digits() -> None:
    """Noise as it begins has half of the ink everywhere; digits have none at the border."""
    trainers = dlc.trainers(EXAMPLES / "digits_gan.dlm")
    discriminate, generate = trainers["discriminate"], trainers["generate"]
    for epoch in range(12):
        for batch in discriminate.data().batches(epoch=epoch, batch=64, seed=0):
            discriminate.step(**batch)
            generate.step(**batch)
    model = dlc.compile(EXAMPLES / "digits_gan.dlm", weights=generate.trained())
    drawn = np.asarray(model.draw(np.random.default_rng(0).standard_normal((64, 16), np.float32)))
    images = np.load(EXAMPLES / "data/digits.npz")["images"] / 16
    assert np.abs(drawn.mean(0) - images.mean(0)).mean() < 0.1


@pytest.mark.long
def test_the_same_seed_gives_the_same_checkpoint_for_one_and_two_threads(tmp_path: Path) -> None:
    for threads in (1, 2):
        trainer = dlc.trainer(EXAMPLES / "digits_cnn.dlm", threads=threads, batch=512)
        trainer.total_steps = 2
        for batch in trainer.data().batches(epoch=0, batch=512, seed=1):
            trainer.step(**batch)
        trainer.save(tmp_path / f"{threads}.safetensors")
    one, two = ((tmp_path / f"{k}.safetensors").read_bytes() for k in (1, 2))
    assert one == two


def pairs(text: bytes) -> set[bytes]:
    """Which bytes stand behind which."""
    return {text[k : k + 2] for k in range(len(text) - 1)}


SMALLER = {"byte_lm": {"E": 32, "H": 64}, "char_gpt": {"D": 32, "L": 1}}
"""Sizes of the language models with which they learn enough in seconds."""


@pytest.mark.parametrize("name", every(2, SMALLER))
def test_a_language_model_learns_a_part_of_shakespeare_and_writes_more(
    name: str, tmp_path: Path
) -> None:
    text = (EXAMPLES / "data/shakespeare.txt").read_bytes()[:48_000]
    (tmp_path / "part.txt").write_bytes(text)
    wanted = CompileRequest(
        str(EXAMPLES / f"{name}.dlm"), parameters={**SMALLER[name], "batch": 8, "epochs": 4}
    )
    trainer, _ = make_trainer(wanted)
    history = trainer.fit(tmp_path / "part.txt")
    assert history[-1].values["test_loss"] < 2.9, "3.3 comes of how often each byte occurs alone"
    model = dlc.compile(EXAMPLES / f"{name}.dlm", settings=SMALLER[name], weights=trainer.trained())
    known = pairs(text)
    begun = np.frombuffer(b"HAMLET. ", np.uint8)[None]
    written = bytes(np.asarray(model.write(begun, N=400, seed=1))[0])
    assert written == bytes(np.asarray(model.write(begun, N=400, seed=1))[0])
    assert np.mean([pair in known for pair in pairs(written)]) > 0.85
