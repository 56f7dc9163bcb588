"""Sequences and optional values: known while importing, compared with onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from dlc.driver.source.importing import import_model
from dlc.errors import ModelError, Unsupported
from dlc.importers.onnx import import_graph
from dlc.importers.onnx.importing import IMPORTERS
from dlc.importers.onnx.reading import graph_of
from tests.importers.onnx.models import (
    Array,
    compiled,
    evaluated,
    expected,
    imported,
    meant,
    model_of,
    written,
)
from tests.suites import every

X = np.arange(12, dtype=np.float32).reshape(3, 4)
node = helper.make_node


def number(name: str, value: int) -> NodeProto:
    return node("Constant", [], [name], value_int=value)


PARTS = node("SplitToSequence", ["x"], ["s"], axis=1)
PROGRAMS: dict[str, Sequence[NodeProto]] = {
    "an element": [PARTS, number("k", -2), node("SequenceAt", ["s", "k"], ["y"])],
    "the length": [PARTS, node("SequenceLength", ["s"], ["y"])],
    "joined": [PARTS, node("ConcatFromSequence", ["s"], ["y"], axis=0)],
    "stacked": [PARTS, node("ConcatFromSequence", ["s"], ["y"], axis=-1, new_axis=1)],
    "inserted": [
        PARTS, number("k", 1), node("SequenceInsert", ["s", "x", "k"], ["t"]),
        node("ConcatFromSequence", ["t"], ["y"], axis=1),
    ],
    "erased": [
        PARTS, number("k", -4), node("SequenceErase", ["s", "k"], ["t"]),
        node("SequenceErase", ["t"], ["u"]), node("ConcatFromSequence", ["u"], ["y"], axis=1),
    ],
    "constructed": [
        node("SequenceConstruct", ["x", "x"], ["s"]), node("Identity", ["s"], ["t"]),
        node("ConcatFromSequence", ["t"], ["y"], axis=0),
    ],
    "without its axis": [
        node("SplitToSequence", ["x"], ["s"], axis=0, keepdims=0),
        number("k", 2), node("SequenceAt", ["s", "k"], ["y"]),
    ],
    "parts of two": [
        node("Constant", [], ["two"], value_int=2), node("SplitToSequence", ["x", "two"], ["s"]),
        number("k", 1), node("SequenceAt", ["s", "k"], ["y"]),
    ],
    "an optional value": [
        node("Optional", ["x"], ["o"]), node("OptionalGetElement", ["o"], ["v"]),
        node("OptionalHasElement", ["o"], ["y"]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", every(4, PROGRAMS))
def test_sequences_are_their_elements(name: str) -> None:
    model, inputs = model_of(PROGRAMS[name], {"x": X}, ["y"]), {"x": X}
    made = imported(model)
    (wanted,) = expected(model, inputs)
    for (found,) in (evaluated(made, inputs), meant(written(made), inputs)):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_array_equal(found, wanted)


def loop(rounds: int, carried: str = "s0") -> list[NodeProto]:
    """Collect `x * round` for each round, then join them."""
    value = helper.make_tensor_value_info
    tensors = helper.make_tensor_sequence_value_info
    body = helper.make_graph(
        [
            node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
            node("Mul", ["x", "f"], ["z"]),
            node("SequenceInsert", ["s", "z"], ["t"]),
            node("Identity", ["c"], ["d"]),
        ],
        "body",
        [
            value("i", TensorProto.INT64, []),
            value("c", TensorProto.BOOL, []),
            tensors("s", TensorProto.FLOAT, None),
        ],
        [value("d", TensorProto.BOOL, []), tensors("t", TensorProto.FLOAT, None)],
    )
    return [
        node("SequenceEmpty", [], ["s0"]),
        number("n", rounds),
        node("Loop", ["n", "", carried], ["all"], body=body),
        node("ConcatFromSequence", ["all"], ["y"], axis=0),
    ]


def test_a_loop_that_collects_a_sequence_is_written_out() -> None:
    model, inputs = model_of(loop(3), {"x": X}, ["y"]), {"x": X}
    (wanted,) = expected(model, inputs)
    for (found,) in (evaluated(imported(model), inputs), compiled(model, inputs)):
        np.testing.assert_array_equal(found, wanted)


def test_a_loop_of_many_rounds_is_not_written_out() -> None:
    with pytest.raises(Unsupported, match="Loop of more than 1024 rounds"):
        imported(model_of(loop(10_000), {"x": X}, ["y"]))


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([node("SequenceEmpty", [], ["s"]), node("ConcatFromSequence", ["s"], ["y"], axis=0)], "empty"),
        ([PARTS, number("k", 4), node("SequenceAt", ["s", "k"], ["y"])], "element 4 of a sequence of 4"),
        ([PARTS, node("Relu", ["s"], ["y"])], "takes a tensor as its input 0, found a sequence"),
        ([node("SequenceLength", ["x"], ["y"])], "takes a sequence as its input 0"),
        ([node("OptionalGetElement", [""], ["y"])], "that is not there"),
    ],
)  # fmt: skip
def test_a_sequence_without_a_meaning_is_an_error(nodes: list[NodeProto], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        imported(model_of(nodes, {"x": X}, ["y"]))


def of_a_sequence() -> ModelProto:
    """A model whose input and whose first result are sequences."""
    graph = helper.make_graph(
        [node("ConcatFromSequence", ["s"], ["y"], axis=0), node("Identity", ["s"], ["t"])],
        "g",
        [helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, ["N", 4])],
        [
            helper.make_tensor_sequence_value_info("t", TensorProto.FLOAT, ["N", 4]),
            helper.make_empty_tensor_value_info("y"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_the_shapes_of_its_elements_say_how_long_a_sequence_is() -> None:
    graph = graph_of(of_a_sequence(), "net.onnx", Path(), IMPORTERS)
    made = import_graph(graph, shapes={"s_0": (2, 4), "s_1": (3, 4)})
    inputs: dict[str, Array] = {"s_0": X[:2], "s_1": X}
    one, other, joined = evaluated(made, inputs)
    assert made.lengths == {"t": 2}
    np.testing.assert_array_equal(joined, np.concatenate([one, other]))
    with pytest.raises(Unsupported) as caught:
        import_graph(graph)
    assert "--shape s_0=SHAPE" in str(caught.value.diagnostics[0].help)


def test_a_sequence_goes_through_text(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(of_a_sequence().SerializeToString())
    import_model(path, tmp_path / "net.dlm", shapes={"s_0": "2,4", "s_1": "N,4"})
    assert "(t_0 = s_0, t_1 = s_1, y = concat(" in (tmp_path / "net.dlm").read_text()


def test_an_optional_input_may_be_left_out() -> None:
    nodes = [node("OptionalHasElement", ["o"], ["y"])]
    type = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [4]))
    inputs = [helper.make_value_info("o", type)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.BOOL, [])]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    opsets = [helper.make_opsetid("", 18)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    read = graph_of(model, "net.onnx", Path(), IMPORTERS)
    there, gone = import_graph(read), import_graph(read, fixed={"o": np.zeros(0)})
    assert evaluated(there, {"o": X[0]})[0].item() is True
    assert evaluated(gone, {})[0].item() is False


def test_each_round_counts_a_size_of_its_own() -> None:
    nodes = loop(2)
    (body,) = [one.g for one in nodes[2].attribute if one.name == "body"]
    # The elements of each round are those that are larger than its number.
    body.node[1].CopyFrom(node("Greater", ["x", "f"], ["b"]))
    body.node.insert(2, node("Compress", ["flat", "b1"], ["z"]))
    body.node.insert(2, node("Reshape", ["b", "all_of_it"], ["b1"]))
    body.node.insert(2, node("Reshape", ["x", "all_of_it"], ["flat"]))
    model, inputs = model_of(nodes, {"x": X}, ["y"], {"all_of_it": np.asarray([-1])}), {"x": X}
    (wanted,) = expected(model, inputs)
    for (found,) in (evaluated(imported(model), inputs), compiled(model, inputs)):
        np.testing.assert_array_equal(found, wanted)


def nested(depth: int) -> list[NodeProto]:
    """Loops in loops, each of which collects what its body gives: the last is called `y` and its depth."""
    if not depth:
        return [node("Neg", ["x"], ["y0"])]
    value, tensors = helper.make_tensor_value_info, helper.make_tensor_sequence_value_info
    inside = [
        *nested(depth - 1),
        node("SequenceInsert", [f"s{depth}", f"y{depth - 1}"], [f"t{depth}"]),
        node("Identity", [f"c{depth}"], [f"d{depth}"]),
    ]
    body = helper.make_graph(
        inside,
        "body",
        [
            value(f"i{depth}", TensorProto.INT64, []),
            value(f"c{depth}", TensorProto.BOOL, []),
            tensors(f"s{depth}", TensorProto.FLOAT, None),
        ],
        [value(f"d{depth}", TensorProto.BOOL, []), tensors(f"t{depth}", TensorProto.FLOAT, None)],
    )
    return [
        node("SequenceEmpty", [], [f"e{depth}"]),
        number(f"n{depth}", 1000),
        node("Loop", [f"n{depth}", "", f"e{depth}"], [f"all{depth}"], body=body),
        node("ConcatFromSequence", [f"all{depth}"], [f"y{depth}"], axis=0),
    ]


def test_loops_in_loops_are_not_written_out_without_end() -> None:
    with pytest.raises(Unsupported, match="more than 16384 nodes"):
        imported(model_of(nested(6), {"x": X}, ["y6"]))
