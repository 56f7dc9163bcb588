"""`examples/imported`: networks of PyTorch as text, which give the same numbers and learn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from benchmarks.imported_examples.seeded_weights import weights_of
from dlc.text.model.fmt import format_source
from tests.suites import every

FOLDER = Path(__file__).parents[2] / "examples" / "imported"
Array = NDArray[np.floating]
Arrays = dict[str, NDArray[np.generic]]

SENTENCES = "input_ids: i64[batch, tokens], attention_mask: i64[batch, tokens]"
LOSSES = {
    "resnet50": (
        "(x: f32[batch, 3, 64, 64], y: i32[batch]) = mean(cross_entropy(run(x).scores, y))",
        ("x", "y"),
    ),
    "bert": (
        f"({SENTENCES}, y: i32[batch]) = mean(cross_entropy(run(input_ids, attention_mask).scores, y))",
        ("input_ids", "attention_mask", "y"),
    ),
    "llama": (
        f"({SENTENCES}) = "
        "mean(cross_entropy(run(input_ids, attention_mask).scores[:, :-1], i32(input_ids[:, 1:])))",
        ("input_ids", "attention_mask"),
    ),
    "yolo": (
        "(x: f32[batch, 3, 64, 64]) = mean((run(x).boxes / 64 - 0.5) ** 2) + mean(run(x).scores)",
        ("x",),
    ),
}
"""What each learns, of which its text says nothing, and the arrays that it takes."""


def recorded(name: str) -> tuple[Arrays, Arrays, Arrays]:
    """The inputs, what the network of PyTorch gave for them, and the weights of the text."""
    table = json.loads((FOLDER / "recorded" / f"{name}.json").read_text(encoding="utf-8"))
    with np.load(FOLDER / "recorded" / f"{name}.npz") as kept:
        parts: dict[str, Arrays] = {"in": {}, "out": {}, "state": weights_of(table)}
        for key in kept.files:
            kind, _, path = key.partition(".")
            parts[kind][path] = kept[key]
    return parts["in"], parts["out"], parts["state"]


@pytest.mark.parametrize(
    "name",
    every(4, ["llama", "yolo", "resnet50", "bert"]),
)
def test_the_text_of_a_network_gives_what_the_network_gives(name: str) -> None:
    inputs, wanted, weights = recorded(name)
    text = (FOLDER / f"{name}.dlm").read_text(encoding="utf-8")
    assert format_source(text, f"{name}.dlm") == text
    model = dlc.compile(FOLDER / f"{name}.dlm", weights=weights)
    found: object = model.run(**inputs)
    results = cast("tuple[Array, ...]", found if isinstance(found, tuple) else (found,))
    for got, expected in zip(results, cast("dict[str, Array]", wanted).values(), strict=True):
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.long) for n in ("llama", "bert", "resnet50", "yolo")],
)
def test_the_text_of_a_network_learns(name: str, tmp_path: Path) -> None:
    inputs, _, weights = recorded(name)
    loss, taken = LOSSES[name]
    root = name.capitalize()
    text = (FOLDER / f"{name}.dlm").read_text(encoding="utf-8")
    columns = ", ".join([f'{key}="{key}"' for key in taken])
    text += f"""
train {root} {{
  data = npz("data.npz", {columns})
  loss{loss}
  optimizer = adam(lr=1e-3)
  batch = 2
}}
"""
    known: Arrays = {**inputs, "y": np.array([0, 2], np.int32)}
    batch = {key: known[key] for key in taken}
    np.savez(tmp_path / "data.npz", allow_pickle=False, **batch)
    (tmp_path / f"{name}.dlm").write_text(text, encoding="utf-8")
    trainer = dlc.trainer(tmp_path / f"{name}.dlm", weights=weights)
    losses = [trainer.step(**batch) for _ in range(5)]
    assert losses[-1] < losses[0]
