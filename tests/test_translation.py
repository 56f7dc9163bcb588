"""GNMT against a reference in NumPy that reads one sentence at a time, without anything behind its end."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TypeAlias, cast

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.dialects import weight
from dlc.driver.source.open import open_model
from dlc.runtime.model import Model
from tests.documents import ROOT

Numbers: TypeAlias = NDArray[np.float64]
Words: TypeAlias = NDArray[np.int32]
Weights: TypeAlias = Mapping[str, Numbers]

PATH = ROOT / "examples/networks/gnmt.dlm"
SIZES = {"V": 30, "D": 12, "L": 4}


@cache
def translator() -> tuple[Model, Weights]:
    """A small network, and its weights in f64: larger than those it begins with, so that all counts."""
    random = np.random.default_rng(5)
    weights = {
        op.sym_name: random.normal(0, 0.5, cast("tuple[int, ...]", op.type.shape)).astype(
            np.float32
        )
        for op in open_model(PATH, settings=SIZES).module.body
        if isinstance(op, weight.Source)
    }
    model = dlc.compile(PATH, weights=weights, settings=SIZES)
    return model, {name: value.astype(np.float64) for name, value in weights.items()}


def scores(source: Words, target: Words) -> NDArray[np.float32]:
    """What the compiled network gives."""
    return cast("NDArray[np.float32]", translator()[0].score(source, target))


# The reference --------------------------------------------------------------------------------------


def sigmoid(x: Numbers) -> Numbers:
    return 1 / (1 + np.exp(-x))


def lstm(w: Weights, x: Numbers) -> Numbers:
    """The states of every step."""
    width = len(w["wh"])
    h, c = np.zeros(width), np.zeros(width)
    found: list[Numbers] = []
    for entering in x:
        i, f, o, g = np.split(entering @ w["wx"] + h @ w["wh"] + w["b"], 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        found.append(h)
    return np.array(found)


def part(w: Weights, path: str, number: int | None = None) -> Weights:
    """The weights under a path, those of one layer of a stack."""
    found = {k.removeprefix(path): v for k, v in w.items() if k.startswith(path)}
    return found if number is None else {k: v[number] for k, v in found.items()}


def read(w: Weights, words: Words) -> Numbers:
    """A sentence, in both directions and then by the further layers."""
    x = w["source_words.w"][words]
    backward = lstm(part(w, "encoder.backward."), x[::-1])[::-1]
    h = lstm(
        part(w, "encoder.second."),
        np.concatenate([lstm(part(w, "encoder.forward."), x), backward], axis=1),
    )
    for number in range(SIZES["L"] - 2):
        h = h + lstm(part(w, "encoder.rest.rnn.", number), h)
    return h


def told(w: Weights, memory: Numbers, words: Words) -> Numbers:
    """The logarithms of the probabilities of the word behind each of these."""
    asked = h = lstm(part(w, "decoder.first."), w["target_words.w"][words])
    answers: list[Numbers] = []
    for query in asked @ w["decoder.query.w"]:
        suits = np.exp(memory @ query)
        answers.append(suits @ memory / suits.sum())
    for number in range(SIZES["L"] - 1):
        beside = np.concatenate([h, np.array(answers)], axis=1)
        h = h + lstm(part(w, "decoder.rest.rnn.", number), beside)
    y = h @ w["head.w"] + w["head.b"]
    return y - np.log(np.exp(y).sum(axis=1, keepdims=True))


def score(source: Words, target: Words) -> float:
    """Of one sentence and its translation, as they are without what stands behind their ends."""
    weights = translator()[1]
    source, target = source[source != 0], target[target != 0]
    found = told(weights, read(weights, source), target[:-1])
    return float(found[np.arange(len(found)), target[1:]].sum())


# Tests ----------------------------------------------------------------------------------------------


def sentences(lengths: list[int], room: int, seed: int) -> Words:
    """Sentences of these lengths, with zeros behind their ends."""
    random = np.random.default_rng(seed)
    words = random.integers(1, SIZES["V"], (len(lengths), room), dtype=np.int32)
    return np.where(np.arange(room) < np.array(lengths)[:, None], words, 0).astype(np.int32)


@pytest.mark.parametrize(
    ("source", "target"), [([5, 5, 5], [4, 4, 4]), ([6, 1, 3], [2, 7, 4]), ([1, 2, 1], [7, 7, 2])]
)
def test_a_score_is_that_of_the_sentences_alone(source: list[int], target: list[int]) -> None:
    read, written = sentences(source, 6, 1), sentences(target, 7, 2)
    expected = [score(one, two) for one, two in zip(read, written, strict=True)]
    assert scores(read, written) == pytest.approx(expected, rel=1e-4)


def test_what_stands_behind_the_ends_changes_no_score() -> None:
    read, written = sentences([4, 2], 4, 3), sentences([3, 5], 5, 4)
    more = np.zeros((2, 3), np.int32)
    longer = scores(np.concatenate([read, more], axis=1), np.concatenate([written, more], axis=1))
    assert longer == pytest.approx(scores(read, written), rel=1e-5)


def test_the_order_of_the_words_counts_in_both_languages() -> None:
    read, written = sentences([4], 4, 3), sentences([5], 5, 4)
    plain = scores(read, written)
    assert scores(read[:, ::-1].copy(), written) != pytest.approx(plain, rel=1e-4)
    turned = np.concatenate([written[:, :1], written[:, :0:-1]], axis=1)
    assert scores(read, turned) != pytest.approx(plain, rel=1e-4)
