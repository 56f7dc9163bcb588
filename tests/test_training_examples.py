"""The examples that train: from their files, with their data, to what they promise."""

from __future__ import annotations

from pathlib import Path

import pytest

import dlc

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    ("name", "measure", "least", "most"),
    [
        ("digits_mlp", "test_accuracy", 0.95, 1),
        ("tumours", "test_accuracy", 0.96, 1),
        ("autoencoder", "test_rms", 0, 0.14),
        ("robust", "test_error", 0, 1),
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


def test_the_same_seed_gives_the_same_checkpoint_for_one_and_two_threads(tmp_path: Path) -> None:
    for threads in (1, 2):
        trainer = dlc.trainer(EXAMPLES / "digits_cnn.dlm", threads=threads, epochs=1, batch=512)
        trainer.fit()
        trainer.save(tmp_path / f"{threads}.safetensors")
    one, two = ((tmp_path / f"{k}.safetensors").read_bytes() for k in (1, 2))
    assert one == two
