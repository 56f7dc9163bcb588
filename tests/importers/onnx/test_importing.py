"""Whole graphs: dims by name, computations with shapes, names, and what is refused."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, defs, helper
from onnx.reference import ReferenceEvaluator

from dlc.dialects import func, weight
from dlc.errors import ArtifactError, DlcError, ModelError, Unsupported, UsageError
from dlc.errors.catalog import PAGES
from dlc.importers.onnx import read_onnx
from dlc.importers.onnx.importing import IMPORTERS
from dlc.importers.onnx.versions import OPSETS, UNCHANGED
from dlc.ir.dims import symbol
from dlc.ir.types import F32, TensorType
from tests.importers.onnx.models import Array, evaluated, expected, imported, model_of
from tests.suites import together

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def entry(model: ModelProto) -> func.Func:
    (found,) = [op for op in imported(model).module.body if isinstance(op, func.Func)]
    return found


def test_dims_keep_their_names_and_names_become_identifiers() -> None:
    node = helper.make_node("Relu", ["in.put:0"], ["7"])
    found = entry(model_of([node], {"in.put:0": X}, ["7"], shapes={"in.put:0": ["batch", 4]}))
    assert found.input_names == ("in_put_0",)
    assert found.result_names == ("y",)
    assert found.bounds == {"batch": (1, None)}


def test_shapes_are_followed_through_symbolic_sizes() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["batch"]),
        helper.make_node("Mul", ["batch", "two"], ["double"]),
        helper.make_node("Concat", ["double", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    tensors = {
        "zero": np.asarray([0], np.int64),
        "two": np.asarray([2], np.int64),
        "rest": np.asarray([-1], np.int64),
    }
    model = model_of(nodes, {"x": X}, ["y"], tensors, shapes={"x": ["N", 4]})
    assert entry(model).function_type.results[0].text == "f32[2*N, 2]"  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    (found,) = evaluated(imported(model), {"x": X}, {"N": 3})
    np.testing.assert_array_equal(found, expected(model, {"x": X})[0])


@pytest.mark.parametrize("size", [1, 2, 7, 10])
@pytest.mark.parametrize("scale", [0.7, 1.5])
def test_a_size_that_has_a_name_is_scaled_and_rounded_down(size: int, scale: float) -> None:
    rows = np.arange(size * 2, dtype=np.float32).reshape(1, 1, size, 2)
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")
    scales = {"scales": np.asarray([1, 1, scale, 1], np.float32)}
    model = model_of([node], {"x": rows}, ["y"], scales, shapes={"x": [1, 1, "H", 2]})
    (found,) = evaluated(imported(model), {"x": rows}, {"H": size})
    (wanted,) = expected(model, {"x": rows})
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


WINDOWS = [(2, 2, 0), (3, 2, 1), (2, 3, 0), (3, 3, 1), (2, 3, 1), (2, 2, 1)]


@together(
    ("kind", "window", "stride", "pads", "size"),
    [
        (kind, *window, size)
        for kind in ("MaxPool", "AveragePool")
        for window in WINDOWS
        for size in range(4, 12)
    ],
)
def test_windows_that_begin_are_counted_for_sizes_that_have_names(
    kind: str, window: int, stride: int, pads: int, size: int
) -> None:
    row = np.arange(size, dtype=np.float32).reshape(1, 1, size)
    settings = {"kernel_shape": [window], "strides": [stride], "pads": [pads, pads]}
    node = helper.make_node(kind, ["x"], ["y"], ceil_mode=1, **settings)  # pyright: ignore[reportArgumentType]
    model = model_of([node], {"x": row}, ["y"], shapes={"x": [1, 1, "L"]})
    (found,), (wanted,) = (
        evaluated(imported(model), {"x": row}, {"L": size}),
        expected(model, {"x": row}),
    )
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_corners_of_no_whole_size_lie_where_onnx_says(mode: str) -> None:
    """onnxruntime has them elsewhere: at the corners of the size that is rounded."""
    coordinates = "align_corners"
    node = helper.make_node(
        "Resize", ["x", "", "scales"], ["y"], mode=mode, coordinate_transformation_mode=coordinates
    )
    scales = {"scales": np.asarray([1, 0.6], np.float32)}
    model = model_of([node], {"x": X}, ["y"], scales)
    run = cast("Callable[..., list[Array]]", ReferenceEvaluator(model).run)
    (wanted,) = run(None, {"x": X})
    np.testing.assert_allclose(evaluated(imported(model), {"x": X})[0], wanted, rtol=1e-5)


@pytest.mark.parametrize("scale", [0, -1, np.inf, np.nan, 1e-30, 1e30])
def test_a_scale_without_a_meaning_is_an_error(scale: float) -> None:
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"])
    scales = {"scales": np.asarray([1, scale], np.float32)}
    with pytest.raises(ModelError, match=r"has the scales \[1.0, .*\] for 2 axes"):
        imported(model_of([node], {"x": X}, ["y"], scales))


@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose"])
def test_a_kernel_whose_size_has_a_name_is_refused(kind: str) -> None:
    picture = np.ones((1, 1, 8, 8), np.float32)
    inputs = {"x": picture, "k": picture}
    node = helper.make_node(kind, ["x", "k"], ["y"])
    model = model_of([node], inputs, ["y"], shapes={"k": [1, 1, "K", 3]})
    said = rf"{kind} with a kernel of \[K, 3\], whose sizes are not all numbers, is not imported: one node"
    with pytest.raises(Unsupported, match=said):
        imported(model)
    flat = model_of([node], inputs | {"k": picture[0]}, ["y"])
    with pytest.raises(ModelError, match="a kernel of 1 spatial axes for a picture of 2"):
        imported(flat)


@pytest.mark.parametrize("kind", ["InstanceNormalization", "GroupNormalization"])
def test_channels_whose_number_has_a_name_are_refused(kind: str) -> None:
    row, picture = np.ones(4, np.float32), np.ones((1, 4, 8), np.float32)
    node = helper.make_node(kind, ["x", "row", "row"], ["y"])
    if kind == "GroupNormalization":
        node.attribute.append(helper.make_attribute("num_groups", 2))
    shapes = {"x": [1, "C", 8], "row": ["C"]}
    model = model_of([node], {"x": picture, "row": row}, ["y"], shapes=shapes, opset=21)
    said = f"{kind} takes pictures whose number of channels is a number"
    with pytest.raises(Unsupported, match=said):
        imported(model)


def sized(nodes: list[NodeProto], **tensors: Array) -> ModelProto:
    """A model of x: f32[N, 4] with the sizes of x in `shape`, and the number of its rows in `rows`."""
    front = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "first"], ["rows"]),
    ]
    held = {"first": np.asarray([0]), "one": np.asarray([1]), **tensors}
    return model_of([*front, *nodes], {"x": X}, ["y"], held, shapes={"x": ["N", 4]})


SIZED = {
    "a constant cut to a size": sized(
        [helper.make_node("Slice", ["table", "first", "rows"], ["y"])],
        table=np.arange(32, dtype=np.float32).reshape(16, 2),
    ),
    "a constant at a size": sized(
        [
            helper.make_node("Sub", ["rows", "one"], ["last"]),
            helper.make_node("Gather", ["table", "last"], ["y"]),
        ],
        table=np.arange(16),
    ),
    "a size in place of -1": sized(
        [
            helper.make_node("Equal", ["shape", "minus"], ["open"]),
            helper.make_node("Where", ["open", "one", "shape"], ["whole"]),
            helper.make_node("Expand", ["row", "whole"], ["y"]),
        ],
        minus=np.asarray([-1, -1]),
        row=np.asarray([7], np.float32),
    ),
    "counting in floats": sized(
        [
            helper.make_node("Squeeze", ["rows"], ["count"]),
            helper.make_node("Cast", ["count"], ["end"], to=TensorProto.FLOAT),
            helper.make_node("Range", ["nought", "end", "step"], ["y"]),
        ],
        nought=np.asarray(0, np.float32),
        step=np.asarray(1, np.float32),
    ),
    "sizes through floats": sized(
        [
            helper.make_node("Cast", ["rows"], ["wide"], to=TensorProto.DOUBLE),
            helper.make_node("Cast", ["wide"], ["back"], to=TensorProto.INT64),
            helper.make_node("Expand", ["row", "back"], ["y"]),
        ],
        row=np.asarray([7], np.float32),
    ),
    "one row": sized([helper.make_node("Slice", ["x", "first", "one"], ["y"])]),
    "at least one": sized(
        [
            helper.make_node("Min", ["rows", "one"], ["few"]),
            helper.make_node("Expand", ["row", "few"], ["y"]),
        ],
        row=np.asarray([7], np.float32),
    ),
    "the largest of three": sized(
        [
            helper.make_node("Max", ["rows", "one", "nine"], ["most"]),
            helper.make_node("Add", ["most", "one"], ["y"]),
        ],
        nine=np.asarray([9]),
    ),
    "a division of what is negative": sized(
        [
            helper.make_node("Concat", ["rows", "seven"], ["both"], axis=0),
            helper.make_node("Div", ["both", "two"], ["halves"]),
            helper.make_node("Gather", ["halves", "one"], ["start"]),
            helper.make_node("Slice", ["x", "start", "far", "one"], ["y"]),
        ],
        seven=np.asarray([-7]),
        two=np.asarray([2]),
        far=np.asarray([99]),
    ),
}


@pytest.mark.parametrize("name", SIZED)
def test_sizes_are_computed_with(name: str) -> None:
    made = imported(SIZED[name])
    (found,), (wanted,) = evaluated(made, {"x": X}, {"N": 3}), expected(SIZED[name], {"x": X})
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("name", "shape"), [("one row", (1, 4)), ("at least one", (1,))])
def test_a_size_of_an_input_is_at_least_one(name: str, shape: tuple[int, ...]) -> None:
    assert entry(SIZED[name]).function_type.results == (TensorType(F32, shape),)


def test_what_is_counted_in_a_constant_is_a_number() -> None:
    nodes = [
        helper.make_node("Compress", ["x", "mask"], ["kept"], axis=1),
        helper.make_node("MatMul", ["kept", "w"], ["product"]),
        helper.make_node("NonZero", ["grid"], ["places"]),
        helper.make_node("Slice", ["places", "one", "two"], ["columns"]),
        helper.make_node("Reshape", ["columns", "pair"], ["index"]),
        helper.make_node("Gather", ["product", "index"], ["y"], axis=1),
    ]
    tensors = {
        "mask": np.asarray([True, False, True, True]),
        "w": np.arange(12, dtype=np.float32).reshape(3, 4),
        "grid": np.eye(4, dtype=np.float32)[::-1].copy(),
        "one": np.asarray([1]),
        "two": np.asarray([2]),
        "pair": np.asarray([2, 2]),
    }
    model = model_of(nodes, {"x": X}, ["y"], tensors)
    assert entry(model).function_type.results == (TensorType(F32, (3, 2, 2)),)
    (found,), (wanted,) = evaluated(imported(model), {"x": X}), expected(model, {"x": X})
    np.testing.assert_array_equal(found, wanted)


def test_only_large_initialisers_become_weights() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "large"], ["m"]),
        helper.make_node("Add", ["m", "small"], ["y"]),
    ]
    large, small = np.ones((4, 100), np.float32), np.ones(100, np.float32)
    made = imported(model_of(nodes, {"x": X}, ["y"], {"large": large, "small": small}))
    sources = [op for op in made.module.body if isinstance(op, weight.Source)]
    assert [source.key for source in sources] == ["large"]
    np.testing.assert_array_equal(made.arrays["large"], large)


def test_every_operator_that_is_unknown_is_listed_at_once() -> None:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="first"),
        helper.make_node("Frobnicate", ["a"], ["b"], name="second"),
        helper.make_node("NonMaximumThing", ["b"], ["y"], name="third"),
    ]
    with pytest.raises(Unsupported) as caught:
        imported(model_of(nodes, {"x": X}, ["y"]))
    texts = [problem.message for problem in caught.value.diagnostics]
    assert texts == [
        "Frobnicate of opset 18 is not imported: 2 nodes, first, second",
        "NonMaximumThing of opset 18 is not imported: one node, third",
    ]


def test_a_shape_computed_from_an_input_is_refused() -> None:
    node = helper.make_node("Reshape", ["x", "s"], ["y"])
    with pytest.raises(Unsupported, match="decides a shape by its input 1"):
        imported(model_of([node], {"x": X, "s": np.asarray([4, 3], np.int64)}, ["y"]))


def test_nodes_may_stand_in_any_order() -> None:
    nodes = [
        helper.make_node("Exp", ["a"], ["y"]),
        helper.make_node("Neg", ["x"], ["a"]),
    ]
    (found,) = evaluated(imported(model_of(nodes, {"x": X}, ["y"])), {"x": X})
    np.testing.assert_allclose(found, np.exp(-X), rtol=1e-6)


def test_a_cycle_is_refused() -> None:
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"]),
    ]
    with pytest.raises(ModelError, match="depends on itself"):
        imported(model_of(nodes, {"x": X}, ["b"]))


def test_a_graph_without_outputs_is_refused() -> None:
    with pytest.raises(ModelError, match="it has no outputs"):
        imported(model_of([helper.make_node("Neg", ["x"], ["y"])], {"x": X}, []))


def test_a_tensor_that_nothing_makes_is_refused() -> None:
    with pytest.raises(ModelError, match="gone is read by"):
        imported(model_of([helper.make_node("Neg", ["gone"], ["y"])], {"x": X}, ["y"]))


def test_shapes_that_do_not_fit_name_the_node() -> None:
    node = helper.make_node("Add", ["x", "k"], ["y"], name="sum")
    with pytest.raises(ModelError, match=r"(?s)sum: .*sizes 4 and 5.*test.onnx:1:1"):
        imported(model_of([node], {"x": X}, ["y"], {"k": np.ones(5, np.float32)}))


def test_other_shapes_of_inputs_can_be_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(
        model_of([helper.make_node("Neg", ["x"], ["y"])], {"x": X}, ["y"]).SerializeToString()
    )
    made = read_onnx(path, shapes={"x": (symbol("H"), 8)})
    assert made.module.symbol("run") is not None
    (found,) = evaluated(made, {"x": np.ones((2, 8), np.float32)}, {"H": 2})
    assert found.shape == (2, 8)


def external(**entries: str) -> ModelProto:
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], {"x": X}, ["y"])
    tensor = model.graph.initializer.add()
    tensor.name, tensor.data_type = "w", TensorProto.FLOAT
    tensor.dims.extend([3, 4])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return model


def test_external_data_is_read_from_the_folder(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(8) + X.tobytes())
    made = imported(external(location="w.bin", offset="8", length="48"), tmp_path)
    np.testing.assert_array_equal(evaluated(made, {"x": X})[0], X + X)


@pytest.mark.parametrize(
    ("entries", "error"),
    [
        ({"location": "../w.bin"}, UsageError),
        ({"location": "a/../w.bin"}, UsageError),
        ({"location": "/etc/passwd"}, UsageError),
        ({"location": "w.bin", "offset": "-8"}, ArtifactError),
        ({"location": "w.bin", "offset": "16"}, ArtifactError),
        ({"location": "w.bin", "length": "4"}, ArtifactError),
        ({"location": "w.bin", "offset": "9" * 30}, ArtifactError),
        ({"location": "w.bin", "basepath": "/"}, ArtifactError),
        ({"offset": "0"}, ArtifactError),
    ],
)
def test_external_data_elsewhere_is_refused(
    entries: dict[str, str], error: type[DlcError], tmp_path: Path
) -> None:
    (tmp_path / "w.bin").write_bytes(X.tobytes())
    with pytest.raises(error):
        imported(external(**entries), tmp_path)


def test_an_axis_of_minus_one_may_have_any_size() -> None:
    node = helper.make_node("Neg", ["x"], ["y"])
    model = model_of([node], {"x": X}, ["y"], shapes={"x": [-1, 4]})
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [-1, 4]))
    assert entry(model).bounds == {"x_0": (1, None)}
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -2
    with pytest.raises(ModelError, match="absurd shape"):
        imported(model)


def test_absurd_shapes_are_refused() -> None:
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], {"x": X}, ["y"])
    model.graph.initializer.add(
        name="w", data_type=TensorProto.FLOAT, dims=[1 << 40, 1 << 40], raw_data=b"abcd"
    )
    with pytest.raises(ModelError, match="absurd shape"):
        imported(model)


def test_damaged_files_give_typed_errors(tmp_path: Path) -> None:
    node = helper.make_node("Gemm", ["x", "w"], ["y"], alpha=0.5)
    whole = model_of(
        [node], {"x": X}, ["y"], {"w": np.ones((4, 3), np.float32)}
    ).SerializeToString()
    stream = np.random.default_rng(0)
    path = tmp_path / "net.onnx"
    refused = 0
    for number in range(800):
        data = bytearray(whole[: stream.integers(len(whole))] if number % 3 == 0 else whole)
        for place in stream.integers(0, max(len(data), 1), 2 if data else 0):
            data[place] = stream.integers(256)
        path.write_bytes(data)
        start = time.process_time()
        try:
            read_onnx(path)
        except DlcError:
            refused += 1
        assert time.process_time() - start < 2
    assert refused > 100


def test_the_pages_say_which_versions_of_the_operators_are_known() -> None:
    known = f"{OPSETS[0]} to {OPSETS[-1]}"
    page = (Path(__file__).parents[3] / "docs" / "onnx.md").read_text(encoding="utf-8")
    assert f"Versions {known} of the operators" in page
    assert f"({known} are known)" in PAGES["D0710"].why


def test_old_versions_of_unchanged_operators_are_known() -> None:
    since = {kind: defs.get_schema(kind, OPSETS[0]).since_version for kind in UNCHANGED}
    assert {*since.values()} == {1}


def test_the_page_about_onnx_lists_every_operator() -> None:
    page = (Path(__file__).parents[3] / "docs" / "onnx.md").read_text(encoding="utf-8")
    _, _, table = page.partition("| | operators |")
    listed = [("", name) for name in re.findall(r"`(\w+)`", table.partition("\n\n")[0])]
    _, _, others = page.partition("| other domains | operators |\n|---|---|\n")
    for row in others.partition("\n\n")[0].splitlines():
        domain, *names = re.findall(r"`([\w.]+)`", row)
        listed += [(domain, name) for name in names]
    assert sorted(listed) == sorted(IMPORTERS)
