"""`dlc import`: imported models as text, which means the same."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from _pytest.mark import ParameterSet
from onnx import ModelProto, NodeProto, TensorProto, helper

from dlc.cli import main
from dlc.dialects import array
from dlc.driver.api import compile
from dlc.driver.source.importing import import_model
from dlc.errors import Unsupported, UsageError
from dlc.export.model_text.spelling import SPELLINGS
from dlc.importers.onnx import OnnxModel, import_graph
from dlc.importers.onnx.reading import graph_of
from dlc.runtime.arrays import safetensors
from dlc.runtime.arrays.tensor import Tensor
from dlc.text.model.fmt import format_source
from tests.importers.onnx.cases import Case, ids, model_and_inputs
from tests.importers.onnx.models import (
    Array,
    evaluated,
    expected,
    imported,
    meant,
    model_of,
    results,
    written,
)
from tests.importers.onnx.operators.test_each import CASES
from tests.importers.onnx.operators.test_pictures import CASES as PICTURES
from tests.importers.onnx.operators.test_signals import CASES as MORE
from tests.suites import together

X = np.arange(12, dtype=np.float32).reshape(3, 4)
ALL = (*CASES, *PICTURES, *MORE)


def with_marks() -> Iterator[ParameterSet]:
    """All cases; of each operator the quick suite has the first and every fifth of the others."""
    count = Counter[str]()
    for one, name in zip(ALL, ids(ALL), strict=True):
        marks = pytest.mark.long if count[one.kind] % 5 else ()
        count[one.kind] += 1
        yield pytest.param(one, id=name, marks=marks)


@together("one", with_marks())
def test_the_text_of_an_operator_means_the_same(one: Case) -> None:
    inputs, made = imported_case(one)
    text = written(made)
    assert format_source(text.text, "net.dlm") == text.text
    for got, wanted in zip(meant(text, inputs), evaluated(made, inputs), strict=True):
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)


def imported_case(one: Case) -> tuple[dict[str, Array], OnnxModel]:
    model, inputs = model_and_inputs(one)
    return inputs, imported(model)


def test_layers_are_chained_and_residuals_become_modules() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a0"], kernel_shape=[1, 1]),
        *[node for k in range(3) for node in residual(k)],
    ]
    weights = {
        f"w{k}": np.random.default_rng(k).standard_normal((4, 4, 1, 1)).astype(np.float32)
        for k in range(7)
    }
    picture = np.ones((1, 4, 5, 5), np.float32)
    made = imported(model_of(nodes, {"x": picture}, ["a3"], weights))
    text = written(made)
    assert "module Residual {" in text.text
    assert text.text.count("= Residual()") == 3
    assert "x |> conv1 |> residual1 |> residual2 |> residual3" in text.text
    (got,), (wanted,) = meant(text, {"x": picture}), evaluated(made, {"x": picture})
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_modules_take_no_name_of_a_size() -> None:
    nodes = [node for k in range(3) for node in residual(k)]
    weights = {f"w{k}": np.full((4, 4, 1, 1), k / 8, np.float32) for k in range(1, 7)}
    picture = np.ones((1, 4, 5, 6), np.float32)
    shapes = {"a0": ["conv1", 4, "x", "Residual"]}
    made = imported(model_of(nodes, {"a0": picture}, ["a3"], weights, shapes=shapes))
    text = written(made)
    assert "module Residual2 {" in text.text and "fn call(x2)" in text.text
    dims = {"conv1": 1, "x": 5, "Residual": 6}
    (got,), (wanted,) = (
        meant(text, {"a0": picture}, dims),
        evaluated(made, {"a0": picture}, dims),
    )
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def residual(k: int) -> list[NodeProto]:
    return [
        helper.make_node("Conv", [f"a{k}", f"w{2 * k + 1}"], [f"b{k}"], kernel_shape=[1, 1]),
        helper.make_node("Relu", [f"b{k}"], [f"c{k}"]),
        helper.make_node("Conv", [f"c{k}", f"w{2 * k + 2}"], [f"d{k}"], kernel_shape=[1, 1]),
        helper.make_node("Add", [f"a{k}", f"d{k}"], [f"a{k + 1}"]),
    ]


def test_sizes_stay_symbols() -> None:
    node = helper.make_node("Flatten", ["x"], ["y"])
    model = model_of(
        [node], {"x": np.ones((2, 3, 4), np.float32)}, ["y"], shapes={"x": ["N", 3, "W"]}
    )
    made = imported(model)
    text = written(made)
    assert "(x: f32[N, 3, W]) -> (y: f32[N, 3 * W]) = flatten(x)" in text.text
    inputs = {"x": np.ones((2, 3, 4), np.float32)}
    (got,) = meant(text, inputs, {"N": 2, "W": 4})
    assert got.shape == (2, 12)


def test_rows_of_a_weight_from_a_size_on_are_read_by_the_call() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["end"], start=0, end=1),
        helper.make_node("Sub", ["end", "one"], ["begin"]),
        helper.make_node("Slice", ["w", "begin", "end", "axis"], ["row"]),
        helper.make_node("Exp", ["row"], ["y"]),
    ]
    x, w = np.ones((3, 4), np.float32), np.linspace(-1, 1, 64, dtype=np.float32).reshape(16, 4)
    more = {"w": w, "one": np.asarray([1]), "axis": np.asarray([0])}
    model = model_of(nodes, {"x": x}, ["y"], more, shapes={"x": ["S", 4]})
    made = import_graph(graph_of(model, "test.onnx", Path()), bounds={"S": (1, 16)})
    (found,) = meant(written(made), {"x": x}, {"S": 3})
    np.testing.assert_array_equal(found, np.exp(w[2:3]))


@pytest.mark.parametrize("parts", [[2, 3, 2], [4, 1, 3], [1, 4, 3], [2, 2, 3]])
def test_rows_that_are_scaled_and_shifted_in_another_shape_are_no_group_norm(
    parts: list[int],
) -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["wide"]),
        helper.make_node("Reshape", ["wide", "shape"], ["flat"]),
        helper.make_node("Mul", ["flat", "row"], ["scaled"]),
        helper.make_node("Add", ["scaled", "row"], ["y"]),
    ]
    x = np.arange(12, dtype=np.float32).reshape(parts)
    tensors = {"shape": np.asarray([4, 3]), "row": np.asarray([1, 2, 3], np.float32)}
    model = model_of(nodes, {"x": x}, ["y"], tensors)
    (found,) = meant(written(imported(model)), {"x": x})
    np.testing.assert_allclose(found, expected(model, {"x": x})[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("index", "axis", "written_as"),
    [
        (np.asarray(2), 0, "x[2]"),
        (np.asarray(-1), 1, "x[:, N - 1]"),
        (np.asarray([1]), 2, "x[:, :, 1:2]"),
        (np.asarray(0), 2, "x[:, :, 0]"),
        (np.asarray([[1]]), 0, "reshape(x[1:2], [1, 1, N, 4])"),
    ],
)
def test_one_constant_index_is_written_as_a_number(
    index: Array, axis: int, written_as: str
) -> None:
    x = np.arange(36, dtype=np.float32).reshape(3, 3, 4)
    node = helper.make_node("Gather", ["x", "index"], ["y"], axis=axis)
    model = model_of([node], {"x": x}, ["y"], {"index": index}, shapes={"x": [3, "N", 4]})
    text = written(imported(model))
    assert f"= {written_as}\n" in text.text
    (found,), (wanted,) = meant(text, {"x": x}, {"N": 3}), expected(model, {"x": x})
    assert found.shape == wanted.shape
    np.testing.assert_array_equal(found, wanted)


def test_what_is_not_written_is_listed_by_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    for op in (array.NonZero, array.Negate):
        monkeypatch.delitem(SPELLINGS, op)
    sides = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(kind, ["b"], [name])],
            name,
            [],
            [helper.make_empty_tensor_value_info(name)],
        )
        for name, kind in (("then", "Neg"), ("else", "Abs"))
    }
    nodes = [
        helper.make_node("NonZero", ["x"], ["a"], name="places"),
        helper.make_node("Tanh", ["x"], ["b"]),
        helper.make_node("If", ["c"], ["d"], name="choice", **sides),  # pyright: ignore[reportArgumentType]
        helper.make_node("NonZero", ["d"], ["e"]),
    ]
    made = imported(model_of(nodes, {"x": X, "c": np.asarray(True)}, ["a", "e"]))
    with pytest.raises(Unsupported) as caught:
        written(made)
    assert [one.message for one in caught.value.diagnostics] == [
        "dlc import does not write NonZero as model text: 2 nodes, places, the node that makes e",
        "dlc import does not write If as model text: one node, choice",
    ]


def test_bits_are_read_as_another_dtype() -> None:
    node = helper.make_node("BitCast", ["x"], ["y"], to=TensorProto.INT32)
    made = imported(model_of([node], {"x": X}, ["y"], opset=26))
    text = written(made)
    assert "= bitcast(x, i32)" in text.text
    np.testing.assert_array_equal(meant(text, {"x": X})[0], X.view(np.int32))


def test_a_size_that_is_counted_has_a_name_of_its_own() -> None:
    """Also where only the size is used, and where an input has the name that it would have."""
    nodes = [
        helper.make_node("NonZero", ["n_1"], ["places"]),
        helper.make_node("Shape", ["places"], ["shape"]),
        helper.make_node("ReduceProd", ["shape"], ["count"], keepdims=0),
    ]
    values = np.asarray([1, 0, 3], np.float32)
    model = model_of(nodes, {"n_1": values}, ["count"], opset=18)
    text = written(imported(model))
    assert "let (_, n_1_1) = nonzero(n_1)" in text.text
    (got,) = meant(text, {"n_1": values})
    assert got == 2


def in_one_program() -> ModelProto:
    """Places, a scatter, a choice, a loop and a recurrent layer, one after the other."""
    then, otherwise = [
        helper.make_graph(
            [helper.make_node(kind, ["g"], [name])], name, [],
            [helper.make_empty_tensor_value_info(name)],
        )
        for name, kind in (("then", "Neg"), ("else", "Exp"))
    ]  # fmt: skip
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go2"]),
            helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["s", "f"], ["s2"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, ()),
            helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, None),
        ],
        [helper.make_empty_tensor_value_info(name) for name in ("go2", "s2")],
    )
    nodes = [
        helper.make_node("ScatterND", ["x", "at", "put"], ["p"], reduction="add"),
        helper.make_node("GRU", ["p", "w", "r"], ["", "g"], hidden_size=2),
        helper.make_node("If", ["c"], ["h"], then_branch=then, else_branch=otherwise),
        helper.make_node("Loop", ["n", "", "h"], ["y"], body=body),
        helper.make_node("NonZero", ["y"], ["places"]),
    ]
    stream = np.random.default_rng(0)
    tensors = {
        "w": stream.standard_normal((1, 6, 4)).astype(np.float32),
        "r": stream.standard_normal((1, 6, 2)).astype(np.float32),
        "n": np.asarray(3),
        "at": np.asarray([[0], [0]]),
        "put": np.ones((2, 1, 4), np.float32),
    }
    inputs = {"x": X[:, np.newaxis], "c": np.asarray(True)}
    return model_of(nodes, inputs, ["y", "places"], tensors)


@pytest.mark.parametrize("condition", [True, False])
def test_a_text_with_choices_and_loops_computes_what_its_model_does(
    condition: bool, tmp_path: Path
) -> None:
    source, inputs = tmp_path / "net.onnx", {"x": X[:, np.newaxis], "c": np.asarray(condition)}
    source.write_bytes(in_one_program().SerializeToString())
    texts = import_model(source, tmp_path / "net.dlm").text
    wanted = expected(in_one_program(), inputs)
    for model in (compile(texts), compile(source)):
        for got, right in zip(results(model, list(inputs.values())), wanted, strict=True):
            assert (got.dtype, got.shape) == (right.dtype, right.shape)
            np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-5)


def test_an_imported_file_lies_beside_its_weights(tmp_path: Path) -> None:
    source = tmp_path / "net.onnx"
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    weights = {"w": np.arange(8, dtype=np.float32).reshape(4, 2)}
    source.write_bytes(
        model_of(nodes, {"x": X}, ["y"], weights, shapes={"x": ["N", 4]}).SerializeToString()
    )
    made = import_model(source, tmp_path / "other.dlm", dims={"N": (3, 3)})
    assert made.weights == tmp_path / "other.safetensors"
    assert made.parameters == 8
    assert "x: f32[3, 4]" in made.text.read_text()
    (got,) = cast("tuple[Array]", compile(made.text)(X))
    np.testing.assert_array_equal(got, X @ weights["w"])


def test_an_import_replaces_the_weights_of_an_import_and_no_others(tmp_path: Path) -> None:
    source = tmp_path / "net.onnx"
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    weights = {"w": np.arange(8, dtype=np.float32).reshape(4, 2)}
    source.write_bytes(model_of(nodes, {"x": X}, ["y"], weights).SerializeToString())
    import_model(source, tmp_path / "net.dlm")
    import_model(source, tmp_path / "net.dlm")
    other = tmp_path / "other.safetensors"
    safetensors.write(other, {"w": Tensor([1.0], "f32")})
    kept = other.read_bytes()
    with pytest.raises(UsageError, match=r"(?s)D0924.*not written by an import.*new-other\.dlm"):
        import_model(source, tmp_path / "other.dlm")
    assert other.read_bytes() == kept
    assert not (tmp_path / "other.dlm").exists()


@pytest.mark.parametrize(
    ("dims", "shapes", "message"),
    [
        ({"M": (3, 3)}, {}, "no size M"),
        ({}, {"z": "3,4"}, "no input z"),
        ({}, {"x": "3,,4"}, "--shape x=3,,4"),
    ],
)
def test_sizes_that_are_not_there_are_refused(
    dims: dict[str, tuple[int, int]], shapes: dict[str, str], message: str, tmp_path: Path
) -> None:
    source = tmp_path / "net.onnx"
    node = helper.make_node("Neg", ["x"], ["y"])
    source.write_bytes(
        model_of([node], {"x": X}, ["y"], shapes={"x": ["N", 4]}).SerializeToString()
    )
    with pytest.raises(UsageError, match=message):
        import_model(source, tmp_path / "net.dlm", dims=dims, shapes=shapes)
    assert not (tmp_path / "net.dlm").exists()


def test_the_command_writes_a_text_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    weights = {"w": np.ones((4, 2), np.float32)}
    model = model_of(nodes, {"x": X}, ["y"], weights, shapes={"x": ["N", 4]})
    Path("net.onnx").write_bytes(model.SerializeToString())
    assert main(["import", "net.onnx", "--dim", "N=1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"text": "net.dlm", "weights": "net.safetensors", "parameters": 8, "renamed": {}}
    assert main(["run", "net.dlm", "--input", "x=[[1, 2, 3, 4]]"]) == 0
    assert "[[10. 10.]]" in capsys.readouterr().out


def test_the_command_lists_what_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"]),
        helper.make_node("Grommet", ["a"], ["y"]),
    ]
    Path("net.onnx").write_bytes(model_of(nodes, {"x": X}, ["y"]).SerializeToString())
    assert main(["import", "net.onnx", "-o", "net.dlm"]) == 4
    told = capsys.readouterr().err
    assert "Frobnicate" in told and "Grommet" in told
    assert not list(tmp_path.glob("*.dlm"))


def test_sizes_that_differ_become_parameters_and_weights_belong_to_the_module() -> None:
    sizes = (4, 6, 8, 10)
    stream = np.random.default_rng(0)
    weights: dict[str, Array] = {}
    nodes: list[NodeProto] = []
    for k, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        weights[f"w{k}"] = stream.standard_normal((outputs, inputs, 1, 1)).astype(np.float32)
        weights[f"s{k}"] = stream.standard_normal((outputs, 1, 1)).astype(np.float32)
        weights[f"v{k}"] = stream.standard_normal((outputs, outputs, 1, 1)).astype(np.float32)
        nodes += [
            helper.make_node("Conv", [f"a{k}", f"w{k}"], [f"b{k}"], kernel_shape=[1, 1]),
            helper.make_node("Mul", [f"b{k}", f"s{k}"], [f"c{k}"]),
            helper.make_node("Conv", [f"c{k}", f"v{k}"], [f"d{k}"], kernel_shape=[1, 1]),
            helper.make_node("Tanh", [f"d{k}"], [f"a{k + 1}"]),
        ]
    picture = np.ones((1, 4, 5, 5), np.float32)
    made = imported(model_of(nodes, {"a0": picture}, ["a3"], weights))
    text = written(made)
    assert "module Block(inputs, outputs) {" in text.text
    assert "param w: f32[outputs, 1, 1]" in text.text
    assert "use block3 = Block(8, 10)" in text.text
    assert text.weights["block3.w"].origin == "s2"
    (got,), (wanted,) = meant(text, {"a0": picture}), evaluated(made, {"a0": picture})
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_modules_nest_as_the_names_of_nodes_say() -> None:
    nodes = [node for k in range(3) for node in perceptron(k)]
    stream = np.random.default_rng(0)
    weights = {f"w{k}": stream.standard_normal((4, 4)).astype(np.float32) for k in range(6)}
    made = imported(model_of(nodes, {"a0": X}, ["a3"], weights))
    text = written(made)
    assert "module Mlp {" in text.text
    assert "use up = Linear(4, 4, bias=false)" in text.text
    assert "use layers = 3 * Layers()" in text.text
    assert text.weights["layers.mlp.up.w"].parts == ("w0", "w2", "w4")
    (got,), (wanted,) = meant(text, {"a0": X}), evaluated(made, {"a0": X})
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def perceptron(k: int) -> list[NodeProto]:
    place = f"/net/layers.{k}"
    return [
        helper.make_node(kind, inputs, [output], name=f"{place}/{name}")
        for kind, inputs, output, name in (
            ("MatMul", [f"a{k}", f"w{2 * k}"], f"b{k}", "mlp/up/MatMul"),
            ("Tanh", [f"b{k}"], f"c{k}", "mlp/Tanh"),
            ("MatMul", [f"c{k}", f"w{2 * k + 1}"], f"d{k}", "mlp/down/MatMul"),
            ("Add", [f"a{k}", f"d{k}"], f"a{k + 1}", "Add"),
        )
    ]


def test_what_modules_share_is_computed_in_the_module_around_them() -> None:
    """A mask that the first module makes, and the second uses as well, is an argument of both."""
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["m"], name="/net/a/Greater"),
        helper.make_node("MatMul", ["x", "w0"], ["b"], name="/net/a/MatMul"),
        helper.make_node("Where", ["m", "b", "x"], ["c"], name="/net/a/Where"),
        helper.make_node("MatMul", ["c", "w1"], ["d"], name="/net/b/MatMul"),
        helper.make_node("Where", ["m", "d", "c"], ["y"], name="/net/b/Where"),
    ]
    stream = np.random.default_rng(0)
    weights = {f"w{k}": stream.standard_normal((4, 4)).astype(np.float32) for k in range(2)}
    weights["zero"] = np.array(5, np.float32)
    made = imported(model_of(nodes, {"x": X}, ["y"], weights))
    text = written(made)
    assert "x |> a(mask) |> b(mask)" in text.text
    (got,), (wanted,) = meant(text, {"x": X}), evaluated(made, {"x": X})
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_what_an_exporter_leaves_behind_is_not_written() -> None:
    """Indices that are never negative, and gathers of everything in its place."""
    nodes = [
        helper.make_node("Range", ["zero", "three", "one"], ["r"]),
        helper.make_node("Less", ["r", "zero"], ["low"]),
        helper.make_node("Add", ["r", "three"], ["turned"]),
        helper.make_node("Where", ["low", "turned", "r"], ["places"]),
        helper.make_node("Gather", ["x", "places"], ["y"]),
    ]
    whole = {"zero": np.int64(0), "one": np.int64(1), "three": np.int64(3)}
    constants = {name: np.asarray(value) for name, value in whole.items()}
    made = imported(model_of(nodes, {"x": X}, ["y"], constants))
    assert "(y: f32[3, 4]) = x" in written(made).text
