"""Tensors whose sizes are computed in a call, against onnxruntime: evaluated, as text, as machine code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from dlc.dialects import flow
from dlc.errors import CallError, Unsupported
from tests.importers.onnx.models import (
    Array,
    compiled,
    evaluated,
    expected,
    imported,
    machine_code,
    meant,
    model_of,
    node,
    results,
    written,
)
from tests.suites import every

INTS, FLOATS, BOOLS = TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL
STREAM = np.random.default_rng(7)
X = STREAM.standard_normal((6, 5)).astype(np.float32)
HELD = {
    "zero": np.asarray(0),
    "one": np.asarray(1),
    "two": np.asarray(2),
    "zeros": np.asarray([0]),
    "ones": np.asarray([1]),
    "both": np.asarray([0, 0]),
    "four": np.asarray([4, 4]),
    "flat": np.asarray([-1]),
    "far": np.asarray([2**63 - 1]),
    "none": np.zeros((4, 4), np.float32),
}
"""Constants of the models."""


def check(model: ModelProto, *many: Mapping[str, Array]) -> None:
    """The import, its code and its text: all compute what onnxruntime does, for each of the inputs."""
    made = imported(model)
    text, code = written(made), machine_code(model)
    for inputs in many:
        wanted = expected(model, inputs)
        ran = results(code, list(inputs.values()))
        for found in (meant(text, inputs), evaluated(made, inputs), ran):
            for got, right in zip(found, wanted, strict=True):
                assert (got.dtype, got.shape) == (right.dtype, right.shape)
                np.testing.assert_allclose(got, right, rtol=1e-5, atol=2e-5)


def sizes(*numbers: int) -> Array:
    return np.asarray(numbers, np.int64)


def resize(**attributes: str) -> NodeProto:
    """`wide` from `x`, to sizes that a call brings."""
    made = helper.make_node("Resize", ["x", "", "", "size"], ["wide"])
    made.attribute.extend([helper.make_attribute(*each) for each in attributes.items()])
    return made


CUT = [
    node("Slice", "wide both four", "part"),
    node("Add", "part none", "y"),
]
"""Four times four elements of what is at least as large, as adding says."""

MODES = [
    {"mode": mode, "coordinate_transformation_mode": coordinates}
    for mode in ("linear", "cubic", "nearest")
    for coordinates in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
]


@pytest.mark.parametrize("attributes", every(5, MODES), ids=str)
def test_a_picture_is_resized_to_sizes_that_a_call_brings(attributes: dict[str, str]) -> None:
    model = model_of([resize(**attributes), *CUT], {"x": X, "size": sizes(9, 8)}, ["y"], HELD)
    check(model, *[{"x": X, "size": sizes(*size)} for size in ((9, 8), (4, 30), (6, 5))])


def a_paste(height: int, width: int) -> list[NodeProto]:
    """Each of `masks`, stretched to its one of `boxes` in a picture of zeros, as torchvision writes it."""

    def cut(given: str, axis: str, low: str, high: str, made: str) -> list[NodeProto]:
        return [
            node("Unsqueeze", f"{low} zeros", f"from_{made}"),
            node("Unsqueeze", f"{high} zeros", f"to_{made}"),
            node("Slice", f"{given} from_{made} to_{made} {axis}", made),
        ]

    def ends(axis: str, first: str, last: str, size: int) -> list[NodeProto]:
        """The extent of a box along an axis, and the part of it that lies in the picture."""
        return [
            node("Constant", "", f"size_{axis}", value_int=size),
            node("Gather", f"box {first}", f"low_{axis}", axis=0),
            node("Gather", f"box {last}", f"high_{axis}", axis=0),
            node("Sub", f"high_{axis} low_{axis}", f"length_{axis}"),
            node("Add", f"length_{axis} one", f"longer_{axis}"),
            node("Max", f"longer_{axis} one", f"extent_{axis}"),
            node("Max", f"low_{axis} zero", f"begin_{axis}"),
            node("Add", f"high_{axis} one", f"behind_{axis}"),
            node("Min", f"behind_{axis} size_{axis}", f"end_{axis}"),
            node("Sub", f"begin_{axis} low_{axis}", f"first_{axis}"),
            node("Sub", f"end_{axis} low_{axis}", f"last_{axis}"),
            node("Sub", f"size_{axis} end_{axis}", f"rest_{axis}"),
        ]

    def padded(axis: int, given: str, shape: Sequence[str], made: str) -> list[NodeProto]:
        """Zeros before and behind; `shape` has the sizes of these, along `axis` with a `?`."""
        name, nodes = "yx"[axis], list[NodeProto]()
        for k, length in enumerate((f"begin_{name}", f"rest_{name}")):
            parts = [length if part == "?" else part for part in shape]
            rows = [f"{made}_{k}_{part}" for part in parts]
            nodes += [
                node("Unsqueeze", f"{part} zeros", row)
                for part, row in zip(parts, rows, strict=True)
            ]
            nodes.append(node("Concat", " ".join(rows), f"{made}_shape_{k}", axis=0))
            nodes.append(node("ConstantOfShape", f"{made}_shape_{k}", f"{made}_none_{k}"))
        joined = f"{made}_none_0 {given} {made}_none_1"
        return [*nodes, node("Concat", joined, made, axis=axis)]

    body = [
        node("Gather", "masks i", "mask", axis=0),
        node("Gather", "boxes i", "box", axis=0),
        *ends("x", "zero", "two", width),
        *ends("y", "one", "three", height),
        node("Unsqueeze", "mask both_axes", "picture"),
        node("Unsqueeze", "extent_y zeros", "rows"),
        node("Unsqueeze", "extent_x zeros", "columns"),
        node("Concat", "ones ones rows columns", "size", axis=0),
        helper.make_node("Resize", ["picture", "", "", "size"], ["wide"], mode="linear"),
        node("Gather", "wide zero", "channels", axis=0),
        node("Gather", "channels zero", "whole", axis=0),
        *cut("whole", "zeros", "first_y", "last_y", "cut_y"),
        *cut("cut_y", "ones", "first_x", "last_x", "seen"),
        node("Shape", "seen", "seen_shape"),
        node("Gather", "seen_shape one", "seen_x"),
        *padded(0, "seen", ("?", "seen_x"), "tall"),
        node("Shape", "tall", "tall_shape"),
        node("Gather", "tall_shape zero", "tall_y"),
        *padded(1, "tall", ("tall_y", "?"), "pasted"),
        node("Unsqueeze", "pasted zeros", "item"),
        node("Concat", "so_far item", "longer", axis=0),
    ]
    inputs = [("i", INTS, ()), ("goes_on", BOOLS, ()), ("so_far", FLOATS, None)]
    graph = helper.make_graph(
        body,
        "paste",
        [helper.make_tensor_value_info(*each) for each in inputs],
        [helper.make_empty_tensor_value_info(name) for name in ("always", "longer")],
        [numpy_helper.from_array(np.asarray([0, 1]), "both_axes")],
    )
    graph.node.insert(0, node("Identity", "true", "always"))
    return [
        helper.make_node("Constant", [], ["start"], value=numpy_helper.from_array(
            np.zeros((0, height, width), np.float32)
        )),
        node("Shape", "boxes", "shape"),
        node("Gather", "shape zero", "count"),
        node("Loop", "count true start", "y", body=graph),
    ]  # fmt: skip


PASTING = {**HELD, "true": np.asarray(True), "three": np.asarray(3)}
BOXES = np.asarray([[2, 3, 11, 9], [-4, -2, 5, 30], [7, 8, 7, 8], [9, 1, 40, 6]])


def test_masks_are_pasted_into_a_picture_each_at_the_size_of_its_box() -> None:
    inputs = {"masks": STREAM.random((4, 6, 6)).astype(np.float32), "boxes": BOXES}
    model = model_of(a_paste(12, 16), inputs, ["y"], PASTING)
    assert expected(model, inputs)[0].shape == (4, 12, 16)
    check(model, inputs)


def test_the_best_place_of_a_stretched_map_is_found_however_large_it_is() -> None:
    nodes = [
        node("Concat", "front size_of_box", "size", axis=0),
        resize(mode="cubic"),
        node("Gather", "wide zero", "maps", axis=0),
        node("Shape", "maps", "shape"),
        node("Gather", "shape two", "width"),
        node("Reshape", "maps rows", "lines"),
        node("ArgMax", "lines", "best", axis=1, keepdims=0),
        node("ArgMin", "lines", "worst", axis=1),
        node("Mod", "best width", "column"),
        node("Sub", "best column", "rest"),
        node("Div", "rest width", "row"),
        node("Gather", "maps row", "of_row", axis=1),
        node("Gather", "of_row column", "of_both", axis=2),
        node("Reshape", "of_both flat", "values"),
    ]
    x = STREAM.standard_normal((1, 3, 6, 5)).astype(np.float32)
    held = {**HELD, "rows": np.asarray([3, -1]), "front": sizes(1, 3)}
    given = {"x": x, "size_of_box": sizes(2, 2)}
    model = model_of(nodes, given, ["best", "worst", "column", "row", "values"], held)
    boxes = ((1, 1), (7, 4), (40, 50), (32, 64))
    check(model, *[{"x": x, "size_of_box": sizes(*box)} for box in boxes])


PLACES: dict[str, list[NodeProto]] = {
    "transposed": [node("Transpose", "wide", "turned"), node("Slice", "turned both four", "part")],
    "with an axis more, and less": [
        node("Unsqueeze", "wide ones", "apart"),
        node("Squeeze", "apart ones", "together"),
        node("Slice", "together both four", "part"),
    ],
    "from the end": [node("Slice", "wide last end", "part")],
    "every second": [
        node("Slice", "wide both far_both axes steps", "thin"),
        node("Slice", "thin both four", "part"),
    ],
    "gathered": [
        node("Gather", "wide index", "rows", axis=0),
        node("Gather", "rows fixed", "part", axis=1),
    ],
    "joined": [
        node("Concat", "wide wide", "twice", axis=0),
        node("Slice", "twice three nine", "part"),
    ],
    "computed": [
        node("Sigmoid", "wide", "s"),
        node("Mul", "s wide", "product"),
        node("Sub", "product factor", "less"),
        node("Greater", "less none_1", "above"),
        node("Where", "above less wide", "chosen"),
        node("Clip", "chosen low", "clipped"),
        node("Slice", "clipped both four", "part"),
    ],
    "in other rows": [
        node("Reshape", "wide flat", "line"),
        node("Reshape", "line size", "again"),
        node("Slice", "again both four", "part"),
    ],
}
"""What is done with a picture of 8 rows and 9 columns before it is cut."""


@pytest.mark.parametrize("way", every(3, [*PLACES]))
def test_what_is_resized_is(way: str) -> None:
    held = {
        **HELD,
        "last": sizes(-5, -4),
        "end": sizes(-1, 100),
        "far_both": sizes(2**31, 2**31),
        "axes": sizes(0, 1),
        "steps": sizes(2, 2),
        "fixed": sizes(3, -1, 0, 2),
        "three": sizes(6, 2),
        "nine": sizes(10, 6),
        "factor": STREAM.random((1, 1)).astype(np.float32),
        "none_1": np.zeros(1, np.float32),
        "low": np.asarray(-0.3, np.float32),
    }
    nodes = [resize(mode="linear"), *PLACES[way], CUT[1]]
    inputs = {"x": X, "size": sizes(8, 9), "index": sizes(7, -8, 0, -1)}
    check(model_of(nodes, inputs, ["y"], held), inputs)


def test_a_slice_begins_and_ends_where_a_call_says() -> None:
    ends = ((1, 5), (-5, -1), (0, 4), (-100, 4), (2, 100))
    many = [{"x": X, "start": sizes(start), "end": sizes(end)} for start, end in ends]
    nodes = [node("Slice", "x start end zeros", "part"), node("Add", "part k", "y")]
    held = {**HELD, "k": np.ones((4, 5), np.float32)}
    check(model_of(nodes, many[0], ["y"], held), *many)


def refused_call(model: ModelProto, inputs: Mapping[str, Array]) -> None:
    """Both ways fail with the place of the node."""
    for run in (lambda: evaluated(imported(model), inputs), lambda: compiled(model, inputs)):
        with pytest.raises(CallError, match="out of range") as caught:
            run()
        assert caught.value.diagnostics[0].code == "D0807"


def test_a_call_whose_sizes_do_not_agree_fails() -> None:
    given = {"x": X, "size": sizes(9, 8)}
    model = model_of([resize(), *CUT], given, ["y"], HELD)
    for size in ((3, 8), (9, 2)):
        refused_call(model, {"x": X, "size": sizes(*size)})


def test_a_call_with_an_index_outside_of_a_computed_size_fails() -> None:
    nodes = [resize(), *PLACES["gathered"], CUT[1]]
    given = {"x": X, "size": sizes(8, 9), "index": sizes(0, 0, 0, 0)}
    model = model_of(nodes, given, ["y"], {**HELD, "fixed": sizes(0, 1, 2, 3)})
    for index in (8, -9):
        refused_call(model, {**given, "index": sizes(0, index, 0, 0)})


def test_a_call_that_makes_zeros_of_a_negative_size_fails() -> None:
    nodes = [
        node("ConstantOfShape", "size", "zeros_of"),
        node("Concat", "zeros_of x", "longer", axis=0),
        node("Slice", "longer both four", "part"),
        node("Add", "part none", "y"),
    ]
    model = model_of(nodes, {"x": X, "size": sizes(3, 5)}, ["y"], HELD)
    check(model, *[{"x": X, "size": sizes(count, 5)} for count in (3, 0)])
    refused_call(model, {"x": X, "size": sizes(-1, 5)})


REFUSED: dict[str, list[NodeProto]] = {
    "handed over": [node("Identity", "wide", "y")],
    "multiplied": [node("MatMul", "wide none", "y")],
    "turned around": [node("Slice", "wide far minus axis step", "part"), CUT[1]],
    "of a last maximum": [node("ArgMax", "wide", "y", axis=0, select_last_index=1)],
    "of two computed axes": [node("ArgMax", "wide", "y", axis=0)],
}


@pytest.mark.parametrize("way", REFUSED)
def test_the_node_that_computes_a_size_is_refused_where_the_whole_is_needed(way: str) -> None:
    held = {**HELD, "minus": sizes(-100), "axis": sizes(0), "step": sizes(-1)}
    model = model_of([resize(), *REFUSED[way]], {"x": X, "size": sizes(8, 9)}, ["y"], held)
    with pytest.raises(Unsupported, match=r"one node, ") as caught:
        imported(model)
    (problem,) = caught.value.diagnostics
    assert problem.code == "D0711"
    assert problem.message.startswith("Resize decides a shape by its input 3")
    assert "--fix size=VALUE" in str(problem.help)


MUCH = {
    "a long chain": [node("Sin", f"x_{k}", f"x_{k + 1}") for k in range(500)],
    "a sum of sums": [node("Add", f"x_{k} x_{k}", f"x_{k + 1}") for k in range(500)],
    "a whole of wholes": [node("Concat", f"x_{k} x_{k}", f"x_{k + 1}", axis=0) for k in range(500)],
}


@pytest.mark.parametrize("kind", MUCH)
def test_formulas_of_formulas_without_end_are_refused(kind: str) -> None:
    for count in (20, 500):
        chain = MUCH[kind][:count]
        nodes = [resize(), node("Identity", "wide", "x_0"), *chain]
        nodes += [node("Slice", f"x_{count} both four", "part"), CUT[1]]
        model = model_of(nodes, {"x": X, "size": sizes(8, 9)}, ["y"], HELD)
        if count == 20 and kind != "a whole of wholes":
            check(model, {"x": X / 1e6, "size": sizes(8, 9)})
            continue
        with pytest.raises(Unsupported, match="Resize decides a shape"):
            imported(model)


# Appending ----------------------------------------------------------------------------------------


def appending(axis: int, *more: NodeProto, result: str = "longer") -> NodeProto:
    """`y = concat(y, [x + i])` along an axis of a matrix."""
    body = [
        node("Identity", "c", "c2"),
        node("Cast", "i", "f", to=FLOATS),
        node("Add", "x f", "item"),
        node("Identity", "so_far", "same"),
        node("Concat", "same item", "longer", axis=axis),
        *more,
    ]
    inputs = [("i", INTS, ()), ("c", BOOLS, ()), ("so_far", FLOATS, None)]
    graph = helper.make_graph(
        body,
        "append",
        [helper.make_tensor_value_info(*each) for each in inputs],
        [helper.make_empty_tensor_value_info(name) for name in ("c2", result)],
    )
    return helper.make_node("Loop", ["rounds", "", "start"], ["y"], body=graph)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("first", [0, 2])
def test_a_loop_appends_items_to_what_it_begins_with(axis: int, first: int) -> None:
    start = np.ones((first, 5) if axis == 0 else (6, first), np.float32)
    inputs = {"x": X, "start": start}
    model = model_of([appending(axis)], inputs, ["y"], {"rounds": np.asarray(3)})
    made = imported(model)
    (scan,) = [op for op in made.module.walk() if isinstance(op, flow.Scan)]
    assert not scan.initial
    check(model, inputs)


def test_a_loop_that_does_more_with_what_it_appends_to_is_written_out() -> None:
    more = [
        node("ReduceSum", "so_far", "sum", keepdims=0),
        node("Add", "longer sum", "moved"),
    ]
    inputs = {"x": X, "start": X[:2]}
    loop = appending(0, *more, result="moved")
    model = model_of([loop], inputs, ["y"], {"rounds": np.asarray(3)})
    assert not any(isinstance(op, flow.Scan) for op in imported(model).module.walk())
    check(model, inputs)


def test_a_loop_appends_in_rounds_that_are_calculated_from_a_count() -> None:
    """Exporters write so of at most three boxes that are left."""
    nodes = [
        node("NonZero", "flags", "places"),
        node("Shape", "places", "shape"),
        node("Concat", "shape at_most", "all", axis=0),
        node("Gather", "all some", "two_of_them"),
        node("ReduceMin", "two_of_them", "rounds", keepdims=0),
        appending(0),
    ]
    held = {"at_most": sizes(3), "some": sizes(1, 2)}
    given = {"x": X, "start": np.zeros((0, 5), np.float32)}
    many = [{**given, "flags": np.arange(6) < count} for count in (0, 2, 5)]
    model = model_of(nodes, many[0], ["y"], held)
    assert any(isinstance(op, flow.While) for op in imported(model).module.walk())
    check(model, *many)
