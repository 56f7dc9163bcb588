"""Operators on sequences of steps, signals and selections, compared with onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from onnx import helper

from tests.importers.onnx.cases import (
    Array,
    Case,
    case,
    check_compiled,
    check_evaluated,
    check_sized,
    extended,
    floats,
    ids,
    ints,
)
from tests.importers.onnx.models import compiled, model_of
from tests.suites import every

STEPS, BATCH, WIDTH, CELLS = 4, 3, 2, 5
LENGTHS = np.asarray([4, 2, 3], np.int32)
DIRECTIONS = ((1, "forward"), (1, "reverse"), (2, "bidirectional"))


def recurrent(
    kind: str,
    way: tuple[int, str],
    *more: Array,
    lengths: Array = LENGTHS,
    functions: tuple[str, ...] = (),
    settings: Mapping[str, object] = {},
) -> Case:
    """A layer of three sequences with several lengths; `more` are its cells and peepholes."""
    ways, direction = way
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind] * CELLS
    weights = floats(ways, gates, WIDTH), floats(ways, gates, CELLS), floats(ways, 2 * gates)
    named = {"activations": list(functions * ways)} if functions else {}
    layer = case(
        kind, 2 * floats(STEPS, BATCH, WIDTH),
        k=(*weights, lengths, floats(ways, BATCH, CELLS), *more), hidden_size=CELLS,
        direction=direction, outputs=3 if kind == "LSTM" else 2, opset=14,
    )  # fmt: skip
    return extended(layer, {**named, **settings})


def cells(ways: int) -> tuple[Array, Array]:
    return floats(ways, BATCH, CELLS), floats(ways, 3 * CELLS)


RECURRENT = [
    *[
        recurrent(kind, way, settings=settings)
        for way in DIRECTIONS
        for kind, settings in (
            ("GRU", {}), ("GRU", {"clip": 0.5, "linear_before_reset": 1}), ("RNN", {"clip": 0.3}),
            ("LSTM", {}),
        )
    ],
    *[recurrent("LSTM", way, *cells(way[0]), settings=settings)
        for way in DIRECTIONS
        for settings in ({}, {"clip": 0.5}, {"input_forget": 1})
    ],
    recurrent("LSTM", (1, "forward"), *cells(1), lengths=np.full(3, 4, np.int32)),
    recurrent(
        "LSTM", (1, "reverse"), cells(1)[0], functions=("HardSigmoid", "ScaledTanh", "LeakyRelu"),
        settings={"activation_alpha": [0.3, 0.7, 0.1], "activation_beta": [0.4, 0.8]},
    ),
    recurrent("GRU", (2, "bidirectional"), functions=("HardSigmoid", "Softsign")),
    *[
        recurrent("RNN", (1, "forward"), functions=(name,), settings=settings)
        for name, settings in (
            ("Affine", {"activation_alpha": [0.3], "activation_beta": [0.4]}), ("Elu", {}),
            ("ThresholdedRelu", {"activation_alpha": [0.3]}), ("Relu", {}),
        )
    ],
]  # fmt: skip


def boxes(*shape: int) -> Array:
    """Boxes of which many overlap."""
    corners = np.random.default_rng(3).integers(0, 6, (*shape, 2)).astype(np.float32)
    sizes = np.random.default_rng(4).integers(-4, 5, (*shape, 2)).astype(np.float32)
    return np.concatenate([corners, corners + sizes], -1)


def number(value: float) -> Array:
    return np.asarray([value], np.float32)


EQUALS = np.asarray([[2, 1, 2], [0, 1, 1], [2, 1, 2], [0, 0, 1]], np.float32)

SELECTIONS = [
    case("NonMaxSuppression", boxes(2, 9), np.round(floats(2, 3, 9), 1), k=(ints(4), number(0.2))),
    case(
        "NonMaxSuppression", abs(boxes(1, 8)), floats(1, 2, 8),
        k=(ints(9), number(0.4), number(-0.5)), center_point_box=1,
    ),
    case("NonMaxSuppression", boxes(2, 9), floats(2, 3, 9)),
    *[
        extended(case("Unique", EQUALS, sorted=order, outputs=4), axis)
        for order in (0, 1)
        for axis in ({}, {"axis": 0}, {"axis": -1})
        # Of unsorted slices onnxruntime gives those of the first axis only.
        if order or axis != {"axis": -1}
    ],
    case("Unique", ints(3, 1, 3, 3, 2), outputs=4),
    case("Unique", np.zeros((0,), np.float32), outputs=4),
]  # fmt: skip
OTHERS = [
    case("DFT", floats(2, 5, 6, 1), axis=1, opset=17),
    case("DFT", floats(2, 5, 6, 2), axis=2, inverse=1, opset=17),
    case("DFT", floats(2, 5, 6, 1), k=(np.asarray(4),), axis=2, onesided=1, opset=17),
    case("DFT", floats(2, 5, 2), k=(np.asarray(8),), opset=17),
    case("STFT", floats(2, 20, 1), k=(np.asarray(3), abs(floats(6)))),
    case("STFT", floats(2, 20, 1), k=(np.asarray(3), abs(floats(6)), np.asarray(6)), onesided=0),
    case(
        "MelWeightMatrix",
        k=(*[np.asarray(n) for n in (6, 32, 8000)], *[np.asarray(n, np.float32) for n in (100, 3800)]),
    ),
    case("ReverseSequence", floats(4, 3, 2), k=(ints(1, 4, 2),)),
    case("ReverseSequence", floats(3, 4), k=(ints(1, 4, 2),), batch_axis=0, time_axis=1),
    *[case("Det", floats(2, n, n)) for n in (1, 2, 3, 5)],
    case("Det", np.asarray([[0, 1, 2], [0, 3, 4], [5, 6, 7]], np.float32)),
    case("Det", np.zeros((2, 3, 3), np.float32)),
    case("Hardmax", floats(2, 3, 4), opset=11),
    *[
        extended(case(
            "TfIdfVectorizer", np.asarray([[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8]], np.int32), mode=mode,
            min_gram_length=shortest, max_gram_length=2, max_skip_count=skips, ngram_counts=[0, 4],
            ngram_indexes=list(range(7)), pool_int64s=[2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
        ), more)
        for mode, more in (("TF", {}), ("IDF", {}), ("TFIDF", {"weights": [0.5 * n for n in range(7)]}))
        for shortest, skips in ((1, 5), (2, 0))
    ],
]  # fmt: skip
CASES = [*RECURRENT, *SELECTIONS, *OTHERS]


@pytest.mark.parametrize("one", CASES, ids=ids(CASES))
def test_an_operator_means_what_onnxruntime_computes(one: Case) -> None:
    check_evaluated(one)


QUICK = [SELECTIONS[0], SELECTIONS[3], RECURRENT[1], OTHERS[0]]


@pytest.mark.parametrize("one", every(2, QUICK), ids=ids(QUICK))
def test_an_operator_of_several_steps_compiles(one: Case) -> None:
    check_compiled(one)


SIZED = [
    (SELECTIONS[0], {"x0": ["N", "M", 4], "x1": ["N", 3, "M"]}),
    (case("Unique", ints(3, 1, 3, 3, 2), outputs=4), {"x0": ["N"]}),
    (recurrent("GRU", (1, "reverse")), {"x0": ["T", BATCH, WIDTH]}),
]


@pytest.mark.parametrize(("one", "shapes"), every(3, SIZED), ids=ids([one for one, _ in SIZED]))
def test_sizes_may_have_names(one: Case, shapes: Mapping[str, list[int | str]]) -> None:
    check_sized(one, shapes)


@pytest.mark.long
@pytest.mark.parametrize("one", CASES, ids=ids(CASES))
def test_an_operator_compiles(one: Case) -> None:
    check_compiled(one)


@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("parts", every(2, [1, 2]))
def test_an_axis_whose_size_a_call_has_is_transformed(parts: int, inverse: int) -> None:
    shape = ["N", "S", 3, parts]
    nodes = [helper.make_node("DFT", ["x", "", "axis"], ["y"], inverse=inverse)]
    inputs = {"x": np.random.default_rng(0).standard_normal((2, 7, 3, parts)).astype(np.float32)}
    model = model_of(nodes, inputs, ["y"], {"axis": np.asarray(1)}, opset=20, shapes={"x": shape})
    numbers = np.pad(inputs["x"], [(0, 0)] * 3 + [(0, 2 - parts)]).astype(np.float64)
    transform = np.fft.ifft if inverse else np.fft.fft
    wanted = transform(numbers[..., 0] + 1j * numbers[..., 1], axis=1)
    (found,) = compiled(model, inputs)
    np.testing.assert_allclose(found, np.stack([wanted.real, wanted.imag], -1), atol=1e-6)
