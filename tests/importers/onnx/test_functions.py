"""Functions of a file's own, which are written out where they are called."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import FunctionProto, ModelProto, helper

from dlc.errors import Unsupported
from tests.importers.onnx.models import evaluated, imported, model_of

X = np.arange(3, dtype=np.float32)


def function(name: str, calls: list[tuple[str, str]]) -> FunctionProto:
    """A function that applies others, of a domain, one after another."""
    nodes = [
        helper.make_node(kind, [f"t{k}"], [f"t{k + 1}"], domain=domain)
        for k, (domain, kind) in enumerate(calls)
    ]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["t0"], [f"t{len(nodes)}"], nodes, opsets)


def model(functions: list[FunctionProto], called: str) -> ModelProto:
    node = helper.make_node(called, ["x"], ["y"], domain="own")
    made = model_of([node], {"x": X}, ["y"])
    made.functions.extend(functions)
    made.opset_import.append(helper.make_opsetid("own", 1))
    return made


def nested(depth: int, times: int) -> ModelProto:
    """Functions each of which calls the one before so often."""
    found = [function("F0", [("", "Neg")])]
    found += [function(f"F{k}", [("own", f"F{k - 1}")] * times) for k in range(1, depth)]
    return model(found, f"F{depth - 1}")


@pytest.mark.parametrize(("depth", "times", "nodes"), [(10, 2, 512), (60, 1, 1)])
def test_functions_that_are_nested_deep_are_written_out(depth: int, times: int, nodes: int) -> None:
    made = imported(nested(depth, times))
    assert len(made.nodes) == nodes
    np.testing.assert_array_equal(evaluated(made, {"x": X})[0], X if times == 2 else -X)


@pytest.mark.parametrize("depth", [17, 60])
def test_functions_that_double_too_often_are_refused_with_that_reason(depth: int) -> None:
    with pytest.raises(Unsupported, match="functions, written out, are more than 32768 nodes"):
        imported(nested(depth, 2))


def test_functions_that_are_nested_too_deep_are_refused_with_that_reason() -> None:
    with pytest.raises(Unsupported, match="call each other more than 100 deep"):
        imported(nested(400, 1))


def test_a_function_that_calls_itself_is_named() -> None:
    around = [function("F", [("own", "G")]), function("G", [("", "Neg"), ("own", "F")])]
    with pytest.raises(Unsupported, match=r"its function [FG] calls itself"):
        imported(model(around, "F"))


def test_a_function_that_nothing_calls_is_no_hindrance() -> None:
    unused = function("Unused", [("", "Abs")])
    made = imported(model([unused, function("F", [("", "Neg")])], "F"))
    assert [node.kind for node in made.nodes] == ["Neg"]
