"""What an ONNX file calls its inputs, results and sizes, and what is said where it contradicts itself."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from dlc.cli import main
from dlc.driver.api import compile
from dlc.driver.source.importing import import_model
from dlc.errors import ModelError, Unsupported, UsageError
from dlc.importers.onnx import OnnxModel
from tests.importers.onnx.models import evaluated, imported, model_of
from tests.importers.test_solved_sizes import ONNX_VERBS

X = np.arange(12, dtype=np.float32).reshape(3, 4)
W = np.ones((4, 4), np.float32)


def product(given: str, made: str, rows: int | str = 3) -> ModelProto:
    node = helper.make_node("MatMul", [given, "w"], [made])
    return model_of([node], {given: X}, [made], {"w": W}, shapes={given: [rows, 4]})


def saved(model: ModelProto, folder: Path) -> Path:
    path = folder / "net.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("given", "made", "rows", "renamed"),
    [
        ("input_0", "output_0", "N", {}),
        ("input.1", "out/y:0", "N", {"input.1": "input_1", "out/y:0": "out_y_0"}),
        ("501", "502", "N", {"501": "x", "502": "y"}),
        ("let", "if", "for", {"let": "let_", "if": "if_", "for": "for_"}),
        ("sum", "relu", "batch size", {"sum": "sum_", "batch size": "batch_size"}),
        ("state", "train", "module", {}),
    ],
)
def test_a_file_and_its_text_have_the_same_names(
    tmp_path: Path, given: str, made: str, rows: str, renamed: dict[str, str]
) -> None:
    path = saved(product(given, made, rows), tmp_path)
    written = import_model(path, tmp_path / "net.dlm")
    assert written.renamed == renamed
    (one,), (other,) = [
        compile(model).entry_points.values() for model in (path, tmp_path / "net.dlm")
    ]
    assert other.name == one.name == "run"
    assert [item.name for item in other.inputs] == [item.name for item in one.inputs]
    assert [item.name for item in other.outputs] == [item.name for item in one.outputs]
    assert [dim.name for dim in other.dims] == [dim.name for dim in one.dims]
    np.testing.assert_array_equal(np.asarray(other(X)).reshape(3, 4), X @ W)


def test_the_command_says_what_it_renames(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(product("if", "y"), tmp_path)
    assert main(["import", str(path), "-o", str(tmp_path / "net.dlm")]) == 0
    assert "if is called if_ here" in capsys.readouterr().err


def test_everything_that_is_not_imported_is_listed_in_the_order_of_the_file() -> None:
    nodes = [
        helper.make_node("Zeta", ["x"], ["a"], name="first"),
        helper.make_node("Reshape", ["x", "size"], ["b"], name="second"),
        helper.make_node("Alpha", ["b"], ["c"], name="third"),
        helper.make_node("Zeta", ["c"], ["d"], name="fourth"),
        helper.make_node("Alpha", ["a"], ["e"], domain="com.example", name="fifth"),
        helper.make_node("Sum", ["d", "e"], ["y"]),
    ]
    model = model_of(nodes, {"x": X, "size": np.array([4, 3])}, ["y"])
    with pytest.raises(Unsupported) as caught:
        imported(model)
    said = [diagnostic.message for diagnostic in caught.value.diagnostics]
    assert said == [
        "Zeta of opset 18 is not imported: 2 nodes, first, fourth",
        "Reshape decides a shape by its input 1, which is computed when the model runs from its "
        "input size: one node, second",
        "Alpha of opset 18 is not imported: one node, third",
        "com.example.Alpha of opset 0 is not imported: one node, fifth",
    ]


@pytest.mark.parametrize("opset", [5, 99])
def test_operators_of_another_time_are_said_once(opset: int) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Abs", ["a"], ["y"])]
    with pytest.raises(Unsupported, match=f"version {opset} of the ONNX operators.*6 to 28"):
        imported(model_of(nodes, {"x": X}, ["y"], opset=opset))


def test_a_circle_is_shown_with_its_nodes() -> None:
    nodes = [
        helper.make_node("Add", ["x", "c"], ["a"], name="first"),
        helper.make_node("Neg", ["a"], ["b"]),
        helper.make_node("Abs", ["b"], ["c"], name="third"),
    ]
    with pytest.raises(ModelError, match="Abs third -> Neg that makes b -> Add first -> Abs third"):
        imported(model_of(nodes, {"x": X}, ["c"]))


def test_a_tensor_that_nothing_makes_is_told_with_its_reader() -> None:
    node = helper.make_node("Neg", ["gone"], ["y"], name="turn")
    with pytest.raises(ModelError, match="the tensor gone is read by Neg turn, and nothing makes"):
        imported(model_of([node], {"x": X}, ["y"]))
    with pytest.raises(ModelError, match="the tensor z is an output, and nothing makes"):
        imported(model_of([node], {"x": X}, ["z"]))


def declared(dtype: int, shape: list[int | str | None] | None) -> OnnxModel:
    model = model_of([helper.make_node("Neg", ["x"], ["y"])], {"x": X}, ["y"])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", dtype, shape))
    return imported(model)


@pytest.mark.parametrize(
    ("dtype", "shape", "said"),
    [
        (TensorProto.INT64, [3, 4], "declared as i64[3, 4], but its nodes make f32[3, 4]"),
        (TensorProto.FLOAT16, None, "declared as f16[3, 4], but its nodes make f32[3, 4]"),
    ],
)
def test_an_output_of_another_dtype_is_refused(
    dtype: int, shape: list[int | str | None] | None, said: str
) -> None:
    with pytest.raises(ModelError) as caught:
        declared(dtype, shape)
    assert said in caught.value.diagnostics[0].message


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ([3, 5], "declared as f32[3, 5], but its nodes make f32[3, 4]"),
        ([12], "declared as f32[12], but its nodes make f32[3, 4]"),
        ([], "declared as f32, but its nodes make f32[3, 4]"),
    ],
)
def test_an_output_that_is_declared_with_another_shape_is_as_its_nodes_make_it(
    shape: list[int | str | None], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (warning,) = declared(TensorProto.FLOAT, shape).warnings
    assert said in warning.message
    model = model_of([helper.make_node("Neg", ["x"], ["y"])], {"x": X}, ["y"])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, shape))
    path = saved(model, tmp_path)
    assert main(["import", str(path), "-o", str(tmp_path / "net.dlm")]) == 0
    assert said in capsys.readouterr().err
    assert main(["compile", str(path), "-o", str(tmp_path / "net.dlc")]) == 0
    assert said in capsys.readouterr().err


def test_nodes_behind_one_that_is_refused_are_counted_as_not_looked_at() -> None:
    row = np.ones((5, 1, 4), np.float32)
    weights = {
        "w": np.ones((1, 16, 4), np.float32),
        "b": np.ones((1, 32), np.float32),
        "none": np.asarray([5, 1, 4]),
    }
    nodes: list[NodeProto] = []
    for k in range(3):
        names = [f"x{k}", "w", "w", "b"]
        functions = ["Sigmoid", "Sinusoid", "Tanh"]
        nodes.append(
            helper.make_node("LSTM", names, [f"y{k}"], hidden_size=4, activations=functions)
        )
        nodes.append(helper.make_node("Reshape", [f"y{k}", "none"], [f"x{k + 1}"]))
    with pytest.raises(Unsupported, match=r"one node, .*, and perhaps 2 more LSTM behind"):
        imported(model_of(nodes, {"x0": row}, ["x3"], weights))


@pytest.mark.parametrize("shape", [[3, 4], ["B", 4], [None, None], None])
def test_an_output_may_leave_open_what_it_is(shape: list[int | str | None] | None) -> None:
    assert declared(TensorProto.FLOAT, shape).module is not None


def test_a_size_may_be_called_like_an_input_or_the_graph(tmp_path: Path) -> None:
    node = helper.make_node("Flatten", ["x"], ["y"])
    picture = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    model = model_of([node], {"x": picture}, ["y"], shapes={"x": ["h", "x", "net"]})
    model.graph.name = "net"
    path = saved(model, tmp_path)
    written = import_model(path, tmp_path / "other.dlm")
    assert written.renamed == {"the size x": "x2", "net": "net2"}
    for made in (path, written.text):
        entry = compile(made).entry_points["net"]
        assert [dim.name for dim in entry.dims] == ["h", "x2", "net2"]
        np.testing.assert_array_equal(np.asarray(entry(picture))[0], picture.reshape(2, 12))


def test_a_shape_of_the_user_takes_no_name_of_an_input(tmp_path: Path) -> None:
    path = saved(product("x", "y", "N"), tmp_path)
    with pytest.raises(UsageError, match="the shape of x has a size x, which is the name"):
        import_model(path, tmp_path / "net.dlm", shapes={"x": "x,4"})


def test_values_of_the_text_take_no_name_of_a_size(tmp_path: Path) -> None:
    """The larger picture and the doubled one are values that are used twice: they get names."""
    nodes = [
        helper.make_node("Resize", ["x", "", "scales"], ["run"], mode="nearest"),
        helper.make_node("Add", ["run", "run"], ["w"]),
        helper.make_node("Mul", ["w", "w"], ["y"]),
    ]
    picture = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    scales = {"scales": np.asarray([1, 1, 2, 2], np.float32)}
    model = model_of(nodes, {"x": picture}, ["y"], scales, shapes={"x": ["h2", 2, "h", "w"]})
    written = import_model(saved(model, tmp_path), tmp_path / "Run.dlm")
    lets = re.findall(r"let (\w+) =", written.text.read_text())
    assert lets and not {*lets} & {"h", "h2", "w", "run"}
    (wanted,) = evaluated(imported(model), {"x": picture}, {"h2": 1, "h": 3, "w": 4})
    found = np.asarray(compile(written.text)(picture))[0]
    np.testing.assert_array_equal(found, wanted)


def positions(folder: Path) -> str:
    """A file with a model that adds as many of 16 numbers as a row of x: f32[B, S] is long."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["length"]),
        helper.make_node("Slice", ["table", "zero", "length"], ["cut"]),
        helper.make_node("Add", ["x", "cut"], ["y"]),
    ]
    tensors = {
        "table": np.arange(16, dtype=np.float32),
        "zero": np.asarray([0]),
        "one": np.asarray([1]),
    }
    model = model_of(nodes, {"x": X}, ["y"], tensors, shapes={"x": ["B", "S"]})
    return str(saved(model, folder))


def test_bounds_and_sizes_of_a_command_decide_what_follows_from_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = positions(tmp_path), ["-o", str(tmp_path / "net.dlc")]
    for choice in ([], ["--dim", "S=1..16"], ["--dim", "S=3"], ["--shape", "x=B,4"]):
        assert main(["compile", path, *out, *choice]) == 0
    call = ["run", path, "--input", "x=[[1,1,1]]", "--dim", "S=3"]
    capsys.readouterr()
    for further in ([], ["--interpret"], ["--dim", "B=1"]):
        assert main([*call, *further]) == 0
        assert "[[1. 2. 3.]]" in capsys.readouterr().out
    model = compile(path, dims={"S": (2, 16)})
    np.testing.assert_array_equal(np.asarray(model["run"](X))[0], X + np.arange(4))


@pytest.mark.parametrize(
    ("choice", "code"),
    [("Q=8", "D0906"), ("S=0..8", "D0930"), ("S=9..8", "D0930"), ("S=0", "D0930")],
)
def test_bounds_that_a_file_does_not_have_are_refused(
    choice: str, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", positions(tmp_path), "--dim", choice]) != 0
    assert f"error[{code}]" in capsys.readouterr().err


def test_every_verb_that_compiles_takes_the_only_value_of_an_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    model = model_of([node], {"x": X, "axes": np.asarray([1])}, ["y"], shapes={"x": ["B", "S"]})
    path, fix = str(saved(model, tmp_path)), ["--fix", "axes=[1]"]
    assert main(["run", path, "--input", "x=[[1,2]]"]) != 0
    assert "= help: --fix axes=VALUE takes one value for good" in capsys.readouterr().err
    assert main(["run", path, *fix, "--input", "x=[[1,2]]"]) == 0
    assert "[3.]" in capsys.readouterr().out
    for verb, further in ONNX_VERBS.items():
        command = [verb, path, *[each.format(tmp_path) for each in further]]
        assert main([*command, *fix, "--dim", "B=8", "--dim", "S=4"]) == 0
        assert main([*command, *fix, "--shape", "x=B,4", "--dim", "B=8"]) == 0
    capsys.readouterr()
    assert main(["run", str(tmp_path / "net.dlc"), *fix]) != 0
    assert "error[D0919]: --fix is for an .onnx file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("graph", "entry"), [("net", "net"), ("main_graph", "run"), ("ONNX(Pipeline)", "run")]
)
def test_the_entry_point_has_the_name_of_a_graph_that_has_one(
    tmp_path: Path, graph: str, entry: str
) -> None:
    model = product("x", "y")
    model.graph.name = graph
    assert list(compile(saved(model, tmp_path)).entry_points) == [entry]
