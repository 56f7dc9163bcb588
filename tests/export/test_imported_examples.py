"""`examples/imported`: networks of PyTorch as text, which give the same numbers and learn."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from benchmarks.seeded_weights import weights_of
from dlc.text.model.fmt import format_source

FOLDER = Path(__file__).parents[2] / "examples" / "imported"
NAMES = ("resnet50", "bert", "llama", "yolo")
Arrays = dict[str, NDArray[np.generic]]

TRAIN = {
    "resnet50": """
train Resnet50 {
  loss(x: f32[batch, 3, 64, 64], y: i32[batch]) = mean(cross_entropy(run(x), y))
  optimizer = adam(lr=1e-3)
  batch = 2
}
""",
    "bert": """
train Bert {
  loss(input_ids: i64[batch, tokens], attention_mask: i64[batch, tokens], y: i32[batch]) =
    mean(cross_entropy(run(input_ids, attention_mask), y))
  optimizer = adam(lr=1e-3)
  batch = 2
}
""",
    "llama": """
train Llama {
  loss(input_ids: i64[batch, tokens], attention_mask: i64[batch, tokens]) =
    mean(cross_entropy(run(input_ids, attention_mask)[:, :-1], input_ids[:, 1:]))
  optimizer = adam(lr=1e-3)
  batch = 2
}
""",
    "yolo": """
train Yolo {
  loss(x: f32[batch, 3, 64, 64]) = {
    let (boxes, scores) = run(x)
    return mse(boxes, 32 * ones_like(boxes)) / 1024 + mean(scores)
  }
  optimizer = adam(lr=1e-3)
  batch = 2
}
""",
}
"""How each is trained, in place of what its text leaves open."""


def recorded(name: str) -> tuple[Arrays, Arrays, Arrays]:
    """The inputs, what the network of PyTorch gave for them, and the weights of the text."""
    table = json.loads((FOLDER / "recorded" / f"{name}.json").read_text(encoding="utf-8"))
    with np.load(FOLDER / "recorded" / f"{name}.npz") as kept:
        parts: dict[str, Arrays] = {"in": {}, "out": {}, "state": weights_of(table)}
        for key in kept.files:
            kind, _, path = key.partition(".")
            parts[kind][path] = kept[key]
    return parts["in"], parts["out"], parts["state"]


@pytest.mark.parametrize("name", NAMES)
def test_the_text_of_a_network_gives_what_the_network_gives(name: str) -> None:
    inputs, wanted, weights = recorded(name)
    text = (FOLDER / f"{name}.dlm").read_text(encoding="utf-8")
    assert format_source(text, f"{name}.dlm") == text
    model = dlc.compile(FOLDER / f"{name}.dlm", weights=weights)
    found = model.run(**inputs)
    results = found if isinstance(found, tuple) else (found,)
    for got, expected in zip(results, wanted.values(), strict=True):
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
