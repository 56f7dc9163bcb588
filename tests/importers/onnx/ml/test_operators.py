"""Operators of ai.onnx.ml, against onnxruntime, and refusals of what is damaged or has texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from dlc.errors import DlcError
from tests.importers.onnx.models import Array, imported
from tests.importers.onnx.node_cases import NodeCase, check, check_compiled


def floats(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def numbers(*shape: int) -> list[float]:
    """The same as a list."""
    return floats(*shape).ravel().tolist()


def case(kind: str, *operands: Array, outputs: tuple[str, ...] = ("y",), **a: object) -> NodeCase:
    return NodeCase("ai.onnx.ml", kind, operands, 1, a, outputs)


X = floats(6, 4)
HOLES = np.where(X > 0.5, np.float32(np.nan), X)
BOTH = ("label", "scores")


def machine(**a: object) -> NodeCase:
    """A support vector machine with five vectors."""
    settings = {
        "coefficients": numbers(5),
        "rho": [0.25],
        "support_vectors": numbers(5, 4),
        "n_supports": 5,
        "kernel_params": [0.3, 0.1, 2.0],
    }
    return NodeCase("ai.onnx.ml", "SVMRegressor", (X,), 1, {**settings, **a})


def classifying_machine(*sizes: int, **a: object) -> NodeCase:
    """One with so many vectors of each class."""
    classes, count = len(sizes), sum(sizes)
    settings = {
        "classlabels_ints": [3 * k + 1 for k in range(classes)],
        "vectors_per_class": list(sizes),
        "support_vectors": numbers(count, 4),
        "coefficients": numbers(classes - 1, count),
        "rho": numbers(classes * (classes - 1) // 2),
        "kernel_type": "RBF",
        "kernel_params": [0.3, 0.1, 2.0],
    }
    return NodeCase("ai.onnx.ml", "SVMClassifier", (X,), 1, {**settings, **a}, BOTH)


FEATURES = [
    case("ArrayFeatureExtractor", X, np.asarray([[2, 0]])),
    case("ArrayFeatureExtractor", X[0], np.asarray([3, 1])),
    case("Binarizer", X, threshold=0.25),
    case("FeatureVectorizer", X, floats(6, 2), inputdimensions=[4, 2]),
    case("Imputer", HOLES, imputed_value_floats=[9.0], replaced_value_float=float("nan")),
    case("Imputer", HOLES, imputed_value_floats=numbers(4), replaced_value_float=float("nan")),
    case("Imputer", np.arange(8).reshape(2, 4), imputed_value_int64s=[1, 2, 3, 4], replaced_value_int64=6),
    case("LabelEncoder", np.asarray([3, 5, 8]), keys_int64s=[5, 3], values_floats=[0.5, 1.5]),
    case(
        "LabelEncoder", np.asarray([3, 5, 8]), keys_int64s=[5, 3], values_int64s=[7, 9], default_int64=2,
    ),
    *[
        replace(
            case(
                "LabelEncoder", np.asarray([[np.nan, 1, 2]], np.float32),
                keys_floats=[1.0, float("nan")], values_int64s=[4, 5],
            ),
            version=version,
        )
        for version in (2, 4)
    ],
    *[case("Normalizer", np.concatenate([X, 0 * X[:1]]), norm=norm) for norm in ("L1", "L2")],
    case("Normalizer", abs(X), norm="MAX"),
    case("OneHotEncoder", np.asarray([[1, 3], [2, 1]]), cats_int64s=[3, 1]),
    case("OneHotEncoder", np.asarray([[1, 3], [2, 1]], np.float32), cats_int64s=[3, 1]),
    case("Scaler", X, offset=numbers(4), scale=numbers(4)),
    case("Scaler", X, offset=[0.25], scale=[0.5]),
]  # fmt: skip
LINEAR = [
    case("LinearRegressor", X, coefficients=numbers(4), intercepts=[0.5]),
    case("LinearRegressor", X, coefficients=numbers(2, 4), targets=2, post_transform="SOFTMAX"),
    *[
        case(
            "LinearClassifier", X, outputs=BOTH, coefficients=numbers(3, 4), intercepts=numbers(3),
            classlabels_ints=[7, 5, 2], post_transform=transform, multi_class=1,
        )
        for transform in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
    ],
    *[
        machine(kernel_type=kind)
        for kind in ("LINEAR", "POLY", "RBF", "SIGMOID")
    ],
    machine(kernel_type="RBF", one_class=1),
    classifying_machine(2, 3),
    classifying_machine(2, 3, 1),
    classifying_machine(2, 3, 1, 2, kernel_type="LINEAR"),
    case("SVMRegressor", X, coefficients=numbers(4), rho=[0.5], kernel_params=[0.0, 0.0, 0.0]),
]  # fmt: skip


def nodes(depth: int, trees: int, *, modes: tuple[str, ...] = ("BRANCH_LEQ",)) -> dict[str, Any]:
    """The nodes of full trees, numbered as in a heap: k is followed by 2k + 1 and 2k + 2."""
    stream = np.random.default_rng(depth)
    inner, count = 2**depth - 1, 2 ** (depth + 1) - 1
    lists: dict[str, list[Any]] = {
        name: []
        for name in (
            "treeids",
            "nodeids",
            "featureids",
            "values",
            "modes",
            "truenodeids",
            "falsenodeids",
        )
    }
    for tree in range(trees):
        for node in range(count):
            is_leaf = node >= inner
            entry = {
                "treeids": tree,
                "nodeids": node,
                "featureids": 0 if is_leaf else int(stream.integers(4)),
                "values": 0.0 if is_leaf else float(np.float32(stream.standard_normal())),
                "modes": "LEAF" if is_leaf else modes[node % len(modes)],
                "truenodeids": 0 if is_leaf else 2 * node + 1,
                "falsenodeids": 0 if is_leaf else 2 * node + 2,
            }
            for name, value in entry.items():
                lists[name].append(value)
    return {f"nodes_{name}": values for name, values in lists.items()}


def leaves(
    prefix: str, depth: int, trees: int, targets: int, *, positive: bool = False
) -> dict[str, Any]:
    """What the leaves of full trees give, to every target."""
    stream = np.random.default_rng(targets)
    ends = range(2**depth - 1, 2 ** (depth + 1) - 1)
    ids = [(tree, node) for tree in range(trees) for node in ends for _ in range(targets)]
    weights = stream.standard_normal(len(ids)) / trees
    return {
        f"{prefix}_treeids": [tree for tree, _ in ids],
        f"{prefix}_nodeids": [node for _, node in ids],
        f"{prefix}_ids": [k % targets for k in range(len(ids))],
        f"{prefix}_weights": (abs(weights) if positive else weights).astype(np.float32).tolist(),
    }


def regressor(x: Array, depth: int, trees: int, targets: int = 1, **a: object) -> NodeCase:
    made = {**nodes(depth, trees), **leaves("target", depth, trees, targets), "n_targets": targets}
    return NodeCase("ai.onnx.ml", "TreeEnsembleRegressor", (x,), 1, {**made, **a})


def classifier(labels: int, targets: int, *, positive: bool = False, **a: object) -> NodeCase:
    made = {**nodes(3, 5), **leaves("class", 3, 5, targets, positive=positive)}
    names = list(range(10, 10 + labels))
    made["classlabels_int64s"] = names
    return NodeCase("ai.onnx.ml", "TreeEnsembleClassifier", (X,), 1, {**made, **a}, BOTH)


TRACKED: dict[str, Any] = {"nodes_missing_value_tracks_true": [k % 2 for k in range(2 * 15)]}
TREES = [
    regressor(X, 3, 5),
    regressor(X, 0, 2),
    regressor(X, 2, 1, 3, base_values=[0.5, 0.25, 1.0]),
    *[regressor(X, 2, 4, aggregate_function=name) for name in ("AVERAGE", "MIN", "MAX")],
    regressor(X, 2, 4, 2, post_transform="LOGISTIC", base_values=[0.5, 1.0]),
    regressor(HOLES, 3, 2, **TRACKED),
    regressor(np.round(X), 3, 2, **nodes(3, 2, modes=("BRANCH_LT", "BRANCH_EQ", "BRANCH_GTE"))),
    classifier(3, 3),
    classifier(3, 3, post_transform="SOFTMAX", base_values=numbers(3)),
    classifier(2, 1),
    classifier(2, 1, positive=True),
    classifier(2, 1, post_transform="LOGISTIC", base_values=[0.25]),
]
CASES = [*FEATURES, *LINEAR, *TREES]
IDS = [f"{one}-{number}" for number, one in enumerate(CASES)]


@pytest.mark.parametrize("one", CASES, ids=IDS)
def test_an_operator_of_classical_learning_means_what_onnxruntime_computes(one: NodeCase) -> None:
    check(one)


@pytest.mark.parametrize("one", [FEATURES[7], LINEAR[3], TREES[0], TREES[12]], ids=str)
def test_an_operator_of_classical_learning_compiles(one: NodeCase) -> None:
    check_compiled(one)


@pytest.mark.long
@pytest.mark.parametrize("one", CASES, ids=IDS)
def test_every_operator_of_classical_learning_compiles(one: NodeCase) -> None:
    check_compiled(one)


def refusal(one: NodeCase) -> tuple[str, str]:
    """The error for a node, and its way out."""
    with pytest.raises(DlcError) as caught:
        imported(one.model)
    (told,) = caught.value.diagnostics
    return told.message, str(told.help)


CIRCLE = {"nodes_truenodeids": [0, 0, 0], "nodes_falsenodeids": [0, 0, 0]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (CIRCLE, "deeper than 4096, or whose nodes follow in a circle"),
        ({"nodes_truenodeids": [9, 0, 0]}, "names a node that is not there"),
        ({"nodes_featureids": [4, 0, 0]}, "speaks of the feature 4 of 4"),
        ({"nodes_values": [0.5]}, "lists about its nodes that are not equally long"),
        ({"target_ids": [0, 1]}, "a target that is none of 1"),
        ({"target_nodeids": [1, 7]}, "names a node that is not there"),
        ({"nodes_modes": ["BRANCH_MAYBE", "LEAF", "LEAF"]}, "the mode BRANCH_MAYBE"),
    ],
)
def test_a_damaged_tree_is_refused(changes: Mapping[str, Any], said: str) -> None:
    assert said in refusal(regressor(X, 1, 1, **changes))[0]


def test_dictionaries_and_texts_are_refused_with_a_way_out() -> None:
    texts = case("OneHotEncoder", X, cats_strings=["a"])
    message, way_out = refusal(texts)
    assert "dlc has no tensors of texts" in message
    assert "LabelEncoder" in way_out
    message, way_out = refusal(case("ZipMap", X, classlabels_int64s=[0, 1, 2, 3]))
    assert "ai.onnx.ml.ZipMap of opset 3 is not imported" in message
    assert "options={'zipmap': False}" in way_out


def test_a_tensor_holds_the_lists_of_a_tree_in_f64() -> None:
    """Version 3 has thresholds and weights in f64 for inputs in f64."""
    made = {**nodes(2, 2), **leaves("target", 2, 2, 1), "n_targets": 1}
    for name in ("nodes_values", "target_weights"):
        values = np.asarray(made.pop(name), np.float64) * (1 + 1e-12)
        made[f"{name}_as_tensor"] = numpy_helper.from_array(values)
    check(NodeCase("ai.onnx.ml", "TreeEnsembleRegressor", (X.astype(np.float64),), 1, made))
