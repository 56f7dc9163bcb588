"""`dlc reduce`: smaller text, IR and ONNX for which a command still succeeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from dlc.driver.diff.delta import minimal
from dlc.driver.diff.reduce_file import reduce_file
from dlc.driver.source.open import read_ir
from dlc.errors import UsageError
from tests.importers.onnx.models import model_of

TEXT = """\
dlc 1
fn twice(x) = x + x
export fn f(x: f32[128, 64]) -> f32[128, 64] {
  let a = sigmoid(x)
  return tanh(a) * twice(x)
}
export fn g(x: f32[12]) -> f32[12] = twice(x)
"""
IR = """\
"builtin.module"() ({
  "func.func"() <{sym_name = "f", function_type = (tensor<4xf32>) -> tensor<4xf32>}> ({
  ^bb0(%x: tensor<4xf32>):
    %a = "array.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    %b = "array.tanh"(%a) : (tensor<4xf32>) -> tensor<4xf32>
    %c = "array.add"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "func.return"(%c) : (tensor<4xf32>) -> ()
  }) {dlc.inputs = ["x"]} : () -> ()
}) : () -> ()
"""


def reduced(folder: Path, name: str, data: bytes, command: str) -> bytes:
    (folder / name).write_bytes(data)
    return reduce_file(folder / name, command, 10.0).data


def test_text_loses_declarations_lines_and_sizes(tmp_path: Path) -> None:
    command = "grep -q '^export fn g' {} && grep -q twice {}"
    assert reduced(tmp_path, "m.dlm", TEXT.encode(), command) == (
        b"export fn g(x: f32[1]) -> f32[1] = twice(x)\n"
    )


def test_ir_loses_operations_whose_values_become_inputs(tmp_path: Path) -> None:
    text = reduced(tmp_path, "m.dlir", IR.encode(), "grep -q array.tanh").decode()
    names = [op.name for op in read_ir(text, "m.dlir").walk()]
    assert names == ["builtin.module", "func.func", "array.tanh", "func.return"]


def test_a_graph_of_onnx_loses_nodes(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    model = model_of(nodes, {"x": np.zeros(4, np.float32)}, ["y"])
    data = reduced(tmp_path, "m.onnx", model.SerializeToString(), "grep -q Tanh")
    graph = onnx.load_from_string(data).graph
    assert [node.op_type for node in graph.node] == ["Tanh"]
    assert [value.name for value in graph.input] == ["a"]
    assert [value.name for value in graph.output] == ["b"]


def test_a_command_that_fails_at_first_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the command fails for"):
        reduced(tmp_path, "m.dlm", TEXT.encode(), "false")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        reduce_file(tmp_path / "nope.dlm", "true", 10)


def test_nothing_is_left_out_in_vain() -> None:
    assert minimal(range(20), lambda kept: {3, 17} <= set(kept)) == [3, 17]
