"""Choices and loops: what onnxruntime computes, evaluated and as machine code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from dlc.dialects import flow
from dlc.errors import DlcError, ModelError, Unsupported
from dlc.text.model.fmt import format_source
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

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def scalar(number: float) -> Array:
    return np.asarray(number, np.float32)


def graph(
    nodes: Sequence[NodeProto],
    inputs: Sequence[tuple[str, int]],
    outputs: Sequence[str],
    held: Mapping[str, Array] | None = None,
) -> GraphProto:
    """A graph inside a node."""
    # The counter and the condition of a loop must say that they are scalars.
    declared = [
        helper.make_tensor_value_info(name, kind, None if kind == TensorProto.FLOAT else ())
        for name, kind in inputs
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    tensors = [numpy_helper.from_array(array, name) for name, array in (held or {}).items()]
    return helper.make_graph(list(nodes), "inner", declared, results, tensors)


def check(model: ModelProto, inputs: Mapping[str, Array]) -> None:
    """The import, its code and its text: all compute what onnxruntime does."""
    wanted = expected(model, inputs)
    made = imported(model)
    text = written(made)
    assert format_source(text.text, "net.dlm") == text.text
    for found in (meant(text, inputs), evaluated(made, inputs), compiled(model, inputs)):
        for got, right in zip(found, wanted, strict=True):
            assert (got.dtype, got.shape) == (right.dtype, right.shape)
            np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-5)


def a_choice() -> list[NodeProto]:
    """`y = x + 1 if c else x * k`, both of tensors around."""
    then = graph(
        [helper.make_node("Add", ["x", "one"], ["t"])],
        [],
        ["t"],
        {"one": scalar(1)},
    )
    otherwise = graph([helper.make_node("Mul", ["x", "k"], ["o"])], [], ["o"])
    return [helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise)]


@pytest.mark.parametrize("condition", [True, False])
def test_a_choice(condition: bool) -> None:
    inputs = {"c": np.asarray(condition), "x": X}
    check(model_of(a_choice(), inputs, ["y"], {"k": scalar(3)}), inputs)


DEAD = {
    "unknown": helper.make_node("Zeta", ["x"], ["o"]),
    "wrong type": helper.make_node("Add", ["x", "five"], ["o"]),
    "wrong shape": helper.make_node("Reshape", ["x", "seven"], ["o"]),
    "another rank": helper.make_node("ReduceSum", ["x"], ["o"], keepdims=0),
}


@pytest.mark.parametrize("dead", DEAD)
@pytest.mark.parametrize(
    ("kind", "number", "holds"),
    [
        ("Equal", 0, False),
        ("Greater", 0, True),
        ("GreaterOrEqual", 1, True),
        ("Less", -3, False),
        ("LessOrEqual", 0, False),
    ],
)
def test_a_branch_that_never_runs_may_be_anything(
    kind: str, number: int, holds: bool, dead: str
) -> None:
    live = graph([helper.make_node("Neg", ["x"], ["t"])], [], ["t"])
    other = graph([DEAD[dead]], [], ["o"])
    branches = (live, other) if holds else (other, live)
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["rows"]),
        helper.make_node(kind, ["rows", "number"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    tensors = {
        "zero": np.asarray(0),
        "number": np.asarray(number),
        "five": np.ones(5, np.float32),
        "seven": np.asarray([7]),
    }
    model = model_of(nodes, {"x": X}, ["y"], tensors, shapes={"x": ["N", 3]})
    np.testing.assert_array_equal(evaluated(imported(model), {"x": X}, {"N": 2})[0], -X)


def test_operators_in_branches_are_listed_where_the_condition_is_unknown() -> None:
    nodes = a_choice()
    nodes[0].attribute[0].g.node[0].op_type = "Eta"
    nodes.insert(0, helper.make_node("Zeta", ["x"], ["c"]))
    with pytest.raises(Unsupported) as caught:
        imported(model_of(nodes, {"x": X}, ["y"], {"k": scalar(3)}))
    said = [problem.message.partition(" ")[0] for problem in caught.value.diagnostics]
    assert said == ["Zeta", "Eta"]


@pytest.mark.parametrize("condition", [True, False])
def test_a_choice_that_is_known_leaves_one_branch(condition: bool) -> None:
    constants = {"k": scalar(3), "c": np.asarray(condition)}
    model = model_of(a_choice(), {"x": X}, ["y"], constants)
    assert not any(isinstance(op, flow.If) for op in imported(model).module.walk())
    check(model, {"x": X})


def a_loop(rounds: Sequence[str], goes_on: str) -> list[NodeProto]:
    """`s = s + x * i`, and stacked the sums of its rows."""
    body = graph(
        [
            helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["x", "f"], ["part"]),
            helper.make_node("Add", ["s", "part"], ["s2"]),
            helper.make_node("ReduceSum", ["s2", "axes"], ["row"], keepdims=0),
            helper.make_node("Identity", ["c"], ["c2"]),
        ],
        [("i", TensorProto.INT64), ("c", TensorProto.BOOL), ("s", TensorProto.FLOAT)],
        ["c2", "s2", "row"],
        {"axes": np.asarray([1])},
    )
    return [helper.make_node("Loop", [*rounds, goes_on, "x"], ["last", "rows"], body=body)]


def test_a_loop_of_so_many_rounds_stacks_results() -> None:
    model = model_of(a_loop(["n"], ""), {"x": X}, ["last", "rows"], {"n": np.asarray(4)})
    assert any(isinstance(op, flow.Scan) for op in imported(model).module.walk())
    check(model, {"x": X})


def test_a_loop_ends_by_its_condition() -> None:
    body = graph(
        [
            helper.make_node("Add", ["s", "x"], ["s2"]),
            helper.make_node("ReduceSum", ["s2"], ["whole"], keepdims=0),
            helper.make_node("Less", ["whole", "limit"], ["c2"]),
        ],
        [("i", TensorProto.INT64), ("c", TensorProto.BOOL), ("s", TensorProto.FLOAT)],
        ["c2", "s2"],
        {"limit": scalar(20)},
    )
    loop = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
    for rounds in (2, 100):
        inputs = {"n": np.asarray(rounds), "x": X}
        check(model_of([loop], inputs, ["y"]), inputs)


def test_a_loop_that_stacks_an_unknown_number_of_results_is_refused() -> None:
    model = model_of(a_loop(["n"], ""), {"n": np.asarray(4), "x": X}, ["last", "rows"])
    with pytest.raises(Unsupported, match=r"by its input 0.*from its input n") as caught:
        imported(model)
    assert "--fix n=VALUE" in str(caught.value.diagnostics[0].help)


def scan_of(
    inputs: Mapping[str, Array], filled: int = 1, **attributes: Sequence[int]
) -> tuple[ModelProto, Mapping[str, Array]]:
    """`s += row of each input; z = s * k`, over the columns of the inputs."""
    rows = [f"row_{name}" for name in inputs]
    sums = ["s", *[f"s_{name}" for name in inputs]]
    body = graph(
        [
            *[helper.make_node("Add", [sums[k], row], [sums[k + 1]]) for k, row in enumerate(rows)],
            helper.make_node("Mul", [sums[-1], "k"], ["z"]),
        ],
        [("s", TensorProto.FLOAT), *[(row, TensorProto.FLOAT) for row in rows]],
        [sums[-1], "z"],
    )
    scan = helper.make_node(
        "Scan", ["start", *inputs], ["last", "rows"], body=body, num_scan_inputs=len(inputs),
        scan_input_axes=[1] * len(inputs), scan_output_axes=[filled],
        **attributes,  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    constants = {"start": np.zeros(2, np.float32), "k": scalar(3)}
    return model_of([scan], inputs, ["last", "rows"], constants), inputs


@pytest.mark.parametrize("taken", [0, 1, None])
@pytest.mark.parametrize("stacked", [0, 1, None])
def test_a_scan(taken: int | None, stacked: int | None) -> None:
    given = {"scan_input_directions": taken, "scan_output_directions": stacked}
    attributes = {name: [way] for name, way in given.items() if way is not None}
    check(*scan_of({"x": X}, 1, **attributes))


def test_a_scan_walks_each_of_its_inputs_in_its_own_direction() -> None:
    check(*scan_of({"x": X, "other": 10 * X}, scan_input_directions=[0, 1]))
    check(*scan_of({"x": X, "other": 10 * X}, scan_input_directions=[1, 1]))


def test_a_scan_walks_one_axis_and_fills_another() -> None:
    check(*scan_of({"x": X, "other": 10 * X}, filled=0))
    model, inputs = scan_of({"x": X}, filled=0)
    assert "scan row_x in transpose(x) with s" in written(imported(model)).text
    check(model, inputs)


def a_branch(name: str, weight: str) -> GraphProto:
    """`z = x @ weight; name = tanh(z) + h, z * z`, where h is a value around the branch."""
    nodes = [
        helper.make_node("MatMul", ["x", weight], [f"z_{name}"]),
        helper.make_node("Tanh", [f"z_{name}"], [f"t_{name}"]),
        helper.make_node("Add", [f"t_{name}", "h"], [f"a_{name}"]),
        helper.make_node("Mul", [f"z_{name}", f"z_{name}"], [f"b_{name}"]),
    ]
    return graph(nodes, [], [f"a_{name}", f"b_{name}"])


@pytest.mark.parametrize("condition", [True, False])
def test_branches_have_layers_and_several_results(condition: bool) -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["h"]),
        helper.make_node(
            "If", ["c"], ["y", "z"], then_branch=a_branch("p", "v"), else_branch=a_branch("q", "w")
        ),
    ]
    inputs = {"c": np.asarray(condition), "x": X}
    weights = {
        name: np.arange(9, dtype=np.float32).reshape(3, 3) - k for k, name in enumerate("vw")
    }
    model = model_of(nodes, inputs, ["y", "z"], weights)
    text = written(imported(model)).text
    # What a branch uses of what is around it is computed there, once.
    assert "let h = exp(x)" in text
    assert text.count("= Linear(3, 3, bias=false)") == 2
    check(model, inputs)


def test_a_loop_inside_a_loop() -> None:
    (inner,) = a_loop(["m"], "")
    body = graph(
        [
            helper.make_node("Identity", ["go"], ["go2"]),
            inner,
            helper.make_node("Sub", ["last", "x"], ["x2"]),
        ],
        [("k", TensorProto.INT64), ("go", TensorProto.BOOL), ("x", TensorProto.FLOAT)],
        ["go2", "x2", "rows"],
        {"m": np.asarray(2)},
    )
    loop = helper.make_node("Loop", ["n", "", "start"], ["end", "all"], body=body)
    check(model_of([loop], {"start": X}, ["end", "all"], {"n": np.asarray(3)}), {"start": X})


def test_a_condition_of_several_steps_goes_into_braces() -> None:
    body = graph(
        [
            helper.make_node("Mul", ["s", "x"], ["s2"]),
            helper.make_node("ReduceMax", ["s2"], ["top"], keepdims=0),
            helper.make_node("Less", ["top", "limit"], ["c2"]),
        ],
        [("i", TensorProto.INT64), ("c", TensorProto.BOOL), ("s", TensorProto.FLOAT)],
        ["c2", "s2"],
        {"limit": scalar(20)},
    )
    loop = helper.make_node("Loop", ["", "go", "x"], ["y"], body=body)
    for goes_on in (True, False):
        inputs = {"go": np.asarray(goes_on), "x": X}
        check(model_of([loop], inputs, ["y"]), inputs)


def test_a_loop_inside_a_choice() -> None:
    (loop,) = a_loop(["n"], "")
    then = graph([loop], [], ["last"], {"n": np.asarray(3)})
    otherwise = graph([helper.make_node("Neg", ["x"], ["o"])], [], ["o"])
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise)
    for condition in (True, False):
        inputs = {"c": np.asarray(condition), "x": X}
        check(model_of([node], inputs, ["y"]), inputs)


def test_operators_that_are_unknown_are_found_inside_graphs() -> None:
    then = graph([helper.make_node("Frobnicate", ["x"], ["t"])], [], ["t"])
    otherwise = graph([helper.make_node("Neg", ["x"], ["o"])], [], ["o"])
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise)
    with pytest.raises(Unsupported, match="Frobnicate of opset 18 is not imported"):
        imported(model_of([node], {"c": np.asarray(True), "x": X}, ["y"]))


def test_branches_of_different_shapes_are_refused() -> None:
    then = graph([helper.make_node("Neg", ["x"], ["t"])], [], ["t"])
    otherwise = graph([helper.make_node("Flatten", ["x"], ["o"], axis=0)], [], ["o"])
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise)
    with pytest.raises(ModelError, match="the other"):
        imported(model_of([node], {"c": np.asarray(True), "x": X}, ["y"]))


def test_branches_of_different_ranks_need_a_known_condition() -> None:
    then = graph([helper.make_node("ReduceSum", ["x"], ["t"], keepdims=0)], [], ["t"])
    otherwise = graph([helper.make_node("Neg", ["x"], ["o"])], [], ["o"])
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise)
    with pytest.raises(Unsupported, match="from its input c") as caught:
        imported(model_of([node], {"c": np.asarray(True), "x": X}, ["y"]))
    assert "--fix c=VALUE" in str(caught.value.diagnostics[0].help)


def test_an_old_scan_goes_through_each_element_of_a_batch() -> None:
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "row"], ["t"]), helper.make_node("Mul", ["t", "t"], ["z"])],
        "body",
        [value(name, TensorProto.FLOAT, [3]) for name in ("s", "row")],
        [value(name, TensorProto.FLOAT, [3]) for name in ("t", "z")],
    )
    scan = helper.make_node(
        "Scan", ["", "start", "x"], ["last", "rows"], body=body, num_scan_inputs=1
    )
    inputs = {"start": X, "x": np.stack([X, 2 * X + 1])}
    model = model_of([scan], inputs, ["last", "rows"], opset=8)
    made, wanted = imported(model), expected(model, inputs)
    for found in (evaluated(made, inputs), compiled(model, inputs), meant(written(made), inputs)):
        for got, right in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got, right, rtol=1e-6)


def a_squeeze() -> list[NodeProto]:
    """`y = squeeze(x, -1) if size(x, -1) == 1 else x`, and the sum of its rows."""
    last = {"last": np.asarray([-1])}
    then = graph([helper.make_node("Squeeze", ["x", "last"], ["t"])], [], ["t"], last)
    otherwise = graph([helper.make_node("Identity", ["x"], ["o"])], [], ["o"])
    return [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "end"], ["size"]),
        helper.make_node("Equal", ["size", "one"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise),
    ]


ENDS = {"end": np.asarray([-1]), "one": np.asarray([1])}


def test_a_choice_that_removes_an_axis_takes_it_to_have_size_1() -> None:
    inputs = {"x": X.reshape(2, 3, 1)}
    model = model_of(a_squeeze(), inputs, ["y"], ENDS, shapes={"x": [2, 3, "N"]})
    (found,) = compiled(model, inputs)
    np.testing.assert_array_equal(found, X)
    with pytest.raises(DlcError, match=r"where f32\[2, 3, 1\] is expected"):
        compiled(model, {"x": np.ones((2, 3, 2), np.float32)})


def test_an_axis_is_not_taken_to_have_size_1_in_a_branch_that_may_not_run() -> None:
    yes, no = (
        graph(a_squeeze(), [], ["y"], ENDS),
        graph([helper.make_node("Neg", ["x"], ["o"])], [], ["o"]),
    )
    outer = helper.make_node("If", ["d"], ["z"], then_branch=yes, else_branch=no)
    inputs = {"x": X.reshape(2, 3, 1), "d": np.asarray(True)}
    with pytest.raises(Unsupported, match="a branch whose condition is computed") as caught:
        imported(model_of([outer], inputs, ["z"], shapes={"x": [2, 3, "N"]}))
    assert caught.value.diagnostics[0].help == "--fix d=VALUE takes one value for good"
