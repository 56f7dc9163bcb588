"""benchmarks/zoo: what dlc says is grouped, options are filled in, and a network becomes a row."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.zoo import children, running
from benchmarks.zoo.children import GIB, Limits
from benchmarks.zoo.contender import onnxruntime_in_f32
from benchmarks.zoo.refusals import Option, Refusal, named_sizes, options_named, refusal
from benchmarks.zoo.row_order import in_order_of
from benchmarks.zoo.running import Row, Setting

onnx: Any = importlib.import_module("onnx")  # its types are partial
helper = onnx.helper
Proto: TypeAlias = Any

LIMITS = Limits(60, 16 * GIB)
SETTING = Setting(sys.executable, LIMITS, threads=1, rounds=0)


def node(kind: str, inputs: list[str], outputs: list[str], **attributes: int) -> Proto:
    return helper.make_node(kind, inputs, outputs, **attributes)


def write(path: Path, shape: list[str | int], nodes: list[Proto], *more: Proto) -> None:
    given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "net", [given, *more], [result])
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)


def inputs(path: Path, *sizes: int, **more: Any) -> None:  # noqa: ANN401 - arrays
    stream = np.random.default_rng(0)
    for k, size in enumerate(sizes):
        x = stream.standard_normal((size, 4)).astype(np.float32)
        np.savez(path.with_name(f"{path.stem}.{k}.npz"), x=x, **more)


def test_a_refusal_has_a_code_or_says_how_the_process_ended() -> None:
    said = (
        "compiling net.onnx\nerror[D0711]: Pad decides a shape by its input 1\n  --> net.onnx:3:1\n"
    )
    assert refusal(said, 4).code == "D0711"
    assert refusal("", -11) == Refusal("crash", "signal 11", "")
    assert refusal("", None).code == "time"
    assert refusal("Traceback\nMemoryError\n", 1).code == "memory"


def test_refusals_of_other_nodes_and_numbers_are_of_one_kind() -> None:
    one, other = (
        Refusal("D0710", f"{count} nodes, {name}, are not imported")
        for count, name in ((2, "/layer.0/Pad"), (13, "/encoder/layer.1/Pad_1"))
    )
    assert one.kind == other.kind == "N nodes, …, are not imported"


def test_options_are_filled_in_for_each_size() -> None:
    named = options_named("help: --fix axes=VALUE, or --dim batch=64 --dim samples=64 lets it in")
    assert [each.name for each in named] == ["axes", "batch", "samples"]
    given, sizes = {"axes": np.array([1, 2])}, {"samples": 400}
    assert [each.at(given, sizes) for each in named] == [
        "--fix=axes=[1,2]",
        "--dim=batch=64",
        "--dim=samples=400",
    ]
    assert Option("dim", "samples", "1..8").at(given, sizes) == "--dim=samples=1..8"


def test_the_numbers_of_named_sizes_are_those_of_the_inputs(tmp_path: Path) -> None:
    write(tmp_path / "net.onnx", ["rows", 4], [node("Relu", ["x"], ["y"])])
    assert named_sizes(tmp_path / "net.onnx", {"x": np.zeros((3, 4))})["rows"] == 3
    assert named_sizes(tmp_path / "net.pt2", {"x": np.zeros((3, 4))}) == {}


def test_errors_are_relative_to_the_largest_element() -> None:
    peer = np.array([4.0, np.inf, np.nan])
    assert running.relative_error(np.array([5.0, np.inf, np.nan]), peer) == 0.25
    assert running.relative_error(np.array([4.0, 1.0, np.nan]), peer) > 1


def test_a_child_that_hangs_or_takes_too_much_memory_is_ended(tmp_path: Path) -> None:
    ended = children.run([sys.executable, "-c", "while True: pass"], Limits(0.3, GIB), tmp_path)
    assert (ended.status, ended.said) == (None, "")
    ended = children.run([sys.executable, "-c", "bytes(1 << 34)"], Limits(60, GIB), tmp_path)
    assert refusal(ended.said, ended.status).code == "memory"


@pytest.mark.long
def test_a_network_is_compiled_run_at_every_size_and_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "net.onnx"
    write(path, ["rows", 4], [node("Softmax", ["x"], ["y"], axis=-1)])
    inputs(path, 1, 3, 5)
    (row,) = running.run(tmp_path, "n*", SETTING, 1)
    assert (row.taken, row.wrong, row.message) == ("yes", "", "")
    assert row.error is not None
    assert row.error < running.TOLERANCE
    assert "net " in capsys.readouterr().out


@pytest.mark.long
def test_a_network_with_an_option_is_compiled_with_what_the_message_names(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    axes = helper.make_tensor_value_info("axes", onnx.TensorProto.INT64, [1])
    write(path, ["rows", 4], [node("ReduceSum", ["x", "axes"], ["y"])], axes)

    inputs(path, 2, 3, 5, axes=np.array([1]))
    row = running.row_for(path, tmp_path, SETTING)
    assert (row.taken, row.options, row.wrong) == ("with option", ("--fix=axes=[1]",), "")


def test_results_of_other_shapes_dtypes_and_integers_are_wrong(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    inputs(path, 1)
    room = tmp_path / "room"
    room.mkdir()
    good = np.array([1, 2])
    for bad, what in (
        (good[:1], "result 0 at size 0 is int64[1] instead of int64[2]"),
        (np.array([1, 3]), "50.0% of the integers of result 0 at size 0"),
    ):
        np.savez(room / "dlc.0.npz", bad)
        np.savez(room / "onnxruntime.0.npz", good)
        assert running.difference("dlc", "onnxruntime", path, room) == (0.0, what)


def test_the_summary_counts_and_groups() -> None:
    rows = [Row("a", "yes"), Row("b", "yes", wrong="1e-2 of the largest element")]
    rows += [Row(name).refuse(Refusal("D0710", "3 nodes are not imported")) for name in "cd"]
    text = running.summary(rows)
    assert text.startswith("4 networks: 2 in (50.0%), 0 with an option, 2 not, 1 wrong")
    assert "2 × D0710: 3 nodes are not imported\n    c, d" in text
    assert "WRONG" in running.line(rows[1])


def test_top_1_is_the_share_of_rows_with_the_same_largest_element(tmp_path: Path) -> None:
    path, rows = tmp_path / "net.onnx", np.eye(4, dtype=np.float32)
    np.savez(tmp_path / "net.0.npz", x=rows)
    np.savez(tmp_path / "dlc.0.npz", rows, rows[:2])
    np.savez(tmp_path / "onnxruntime.0.npz", rows[[0, 1, 3, 3]], rows[:2])
    assert running.top_1("dlc", "onnxruntime", path, tmp_path) == 5 / 6


SCORES = np.asarray([0.9, 0.5, 0.4999999, 0.1], np.float32)
BOXES = np.arange(16, dtype=np.float32).reshape(4, 4)
LABELS = np.asarray([3, 1, 2, 1])


def exchanged(*order: int) -> list[NDArray[Any]]:
    """The boxes, scores and labels of a detector whose rows come in another order."""
    rows, rounding = list(order), 1e-7 * (order != (0, 1, 2, 3))
    return [BOXES[rows], SCORES + np.float32(rounding), LABELS[rows]]


def test_rows_with_equal_scores_may_come_in_another_order() -> None:
    peer = exchanged(0, 1, 2, 3)
    found = in_order_of(exchanged(0, 2, 1, 3), peer, 1e-4)
    assert all(np.array_equal(one, other) for one, other in zip(found[::2], peer[::2], strict=True))


@pytest.mark.parametrize(
    ("found", "peer"),
    [
        pytest.param(exchanged(1, 0, 2, 3), exchanged(0, 1, 2, 3), id="other scores"),
        pytest.param([BOXES[[0, 2, 1, 3]], LABELS], [BOXES, LABELS], id="no scores"),
        pytest.param([BOXES[[0, 2, 1, 3]], SCORES], [BOXES, SCORES], id="no rounding"),
        pytest.param(
            [BOXES[::-1], np.ones(4, np.float32)], [BOXES, np.ones(4, np.float32)], id="all equal"
        ),
    ],
)
def test_other_rows_are_not_exchanged(found: list[NDArray[Any]], peer: list[NDArray[Any]]) -> None:
    after = in_order_of(found, peer, 1e-4)
    assert not np.array_equal(after[0], peer[0])


def test_a_row_is_exchanged_in_all_results_or_in_none() -> None:
    peer = exchanged(0, 1, 2, 3)
    found = [BOXES[[0, 2, 1, 3]], SCORES + np.float32(1e-7), LABELS]
    after = in_order_of(found, peer, 1e-4)
    assert not all(np.array_equal(a, b) for a, b in zip(after, peer, strict=True))


def test_a_network_in_f16_is_run_in_f32(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    half = onnx.TensorProto.FLOAT16
    factor = onnx.numpy_helper.from_array(np.asarray([1000], np.float16), "k")
    nodes = [
        node("Mul", ["x", "k"], ["large"]),
        node("Cast", ["large"], ["rounded"], to=half),
        node("Div", ["rounded", "k"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, half, [1]) for name in "xy")
    graph, path = helper.make_graph(nodes, "half", [x], [y], [factor]), tmp_path / "half.onnx"
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    (found,) = onnxruntime_in_f32(path, 1)({"x": np.asarray([100], np.float16)})
    assert found.dtype == np.float16
    assert found == 100, "100,000 is beyond f16"


def test_rows_that_only_others_in_between_connect_are_not_exchanged() -> None:
    scores = np.asarray([0.9, 0.5, 0.4999998, 0.4999996], np.float32)
    peer, found = [BOXES, scores], [BOXES[[0, 3, 2, 1]], scores + np.float32(1.2e-7)]
    assert not np.array_equal(in_order_of(found, peer, 1e-4)[0], BOXES)
