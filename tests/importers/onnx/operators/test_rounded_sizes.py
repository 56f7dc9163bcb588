"""Sizes that exporters compute through floats: `i64(ceil(f32(n - 2) / 5 + 1))`."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto

from dlc.dialects import func
from dlc.errors import Unsupported
from tests.importers.onnx.models import compiled, evaluated, expected, imported, model_of, node


def a_pad(rounding: str, divisor: float) -> ModelProto:
    """Zeros behind `x`, as many as `rounding((n - 2) / divisor + 1)`, and where `x` ends."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape first", "n"),
        node("Sub", "n two", "fewer"),
        node("Cast", "fewer", "float", to=1),
        node("Div", "float divisor", "part"),
        node("Add", "part one", "more"),
        node(rounding, "more", "rounded"),
        node("Cast", "rounded", "count", to=7),
        node("Unsqueeze", "count first", "after"),
        node("Concat", "none after", "pads", axis=0),
        node("Pad", "x pads", "y"),
    ]
    held = {
        "first": np.asarray(0),
        "two": np.asarray(2),
        "divisor": np.asarray(divisor, np.float32),
        "one": np.asarray(1, np.float32),
        "none": np.asarray([0]),
    }
    return model_of(nodes, {"x": np.ones(9, np.float32)}, ["y"], held, shapes={"x": ["N"]})


@pytest.mark.parametrize("divisor", [1, 2, 5])
@pytest.mark.parametrize("rounding", ["Ceil", "Floor"])
def test_a_rounded_quotient_of_sizes_is_a_size(rounding: str, divisor: int) -> None:
    model = a_pad(rounding, divisor)
    made = imported(model)
    for n in (2, 3, 9, 13, 26):
        inputs = {"x": np.ones(n, np.float32)}
        (wanted,) = expected(model, inputs)
        np.testing.assert_array_equal(evaluated(made, inputs, {"N": n})[0], wanted)
    np.testing.assert_array_equal(compiled(model, inputs)[0], wanted)


def test_calls_are_checked_for_sizes_that_a_float_rounds() -> None:
    (function,) = [op for op in imported(a_pad("Ceil", 5)).module.body if isinstance(op, func.Func)]
    assert function.attributes["dlc.dims"] == ("N = 1..8388602",)


@pytest.mark.parametrize("divisor", [2, 3, 5, 7, 320, 1000003])
def test_a_float_has_the_integers_of_its_quotient_around_it(divisor: int) -> None:
    """With two steps up to `2**24 / 2 - divisor`, as the importer has it."""
    numbers = np.arange((1 << 23) - 1 - divisor - 4096, (1 << 23) - 1 - divisor)
    floats = np.ceil(numbers.astype(np.float32) / np.float32(divisor) + np.float32(1))
    np.testing.assert_array_equal(floats, -(-numbers // divisor) + 1)


def test_a_quotient_by_what_is_no_integer_is_left_to_the_call() -> None:
    with pytest.raises(Unsupported, match="decides a shape by its input 1"):
        imported(a_pad("Ceil", 2.5))
