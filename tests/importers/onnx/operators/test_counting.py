"""Counts of one mask are one size: `x[mask] = f(x[mask])` as both of PyTorch's exporters write it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto

from tests.importers.onnx.models import compiled, evaluated, expected, imported, model_of, node

X = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
HELD = {
    "flat": np.asarray([-1]),
    "behind": np.asarray([1, 2]),
    "start": np.asarray([0]),
    "first": np.asarray(0),
    "second": np.asarray([1]),
    "far": np.asarray([99]),
    "limit": np.asarray([0.5], np.float32),
}


SHARED = [
    node("Greater", "m limit", "mask"),
    node("NonZero", "mask", "rows"),
    node("Transpose", "rows", "places", perm=[1, 0]),
    node("GatherND", "x places", "taken"),
    node("Neg", "taken", "made"),
    node("Unsqueeze", "mask behind", "column"),
    node("Shape", "x", "shape"),
    node("Expand", "column shape", "whole"),
    node("NonZero", "whole", "elements"),
    node("Transpose", "elements", "index", perm=[1, 0]),
]
"""What both write: the rows of a mask, and the places of their elements."""
CUT = [
    node("Reshape", "made flat", "updates"),
    node("Shape", "index", "sizes"),
    node("Gather", "sizes first", "count"),
    node("Unsqueeze", "count start", "end"),
    node("Slice", "updates start end start", "cut"),
    node("ScatterND", "x index cut", "y"),
]
"""When tracing: the updates are cut to the number of places."""
SUMMED = [
    node("Cast", "mask", "ones", to=7),
    node("ReduceSum", "ones", "count"),
    node("Slice", "shape second far", "rest"),
    node("Concat", "count rest", "wide", axis=0),
    node("Expand", "made wide", "spread"),
    node("Reshape", "spread flat", "updates"),
    node("ScatterND", "x index updates", "y"),
]
"""`torch.export`: the sum of the mask is the number of rows."""


@pytest.mark.parametrize("rest", [CUT, SUMMED], ids=["cut", "summed"])
@pytest.mark.parametrize("mask", [[1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]], ids=str)
def test_rows_of_a_mask_are_written_back(rest: list[NodeProto], mask: list[int]) -> None:
    inputs = {"x": X, "m": np.asarray(mask, np.float32)}
    shapes = {"x": ["N", "S", 2], "m": ["N"]}
    model = model_of([*SHARED, *rest], inputs, ["y"], HELD, shapes=shapes)
    wanted = expected(model, inputs)
    sizes = {"N": 4, "S": 3, "n_2": sum(mask)}
    for found in (evaluated(imported(model), inputs, sizes), compiled(model, inputs)):
        np.testing.assert_array_equal(found[0], wanted[0])


def test_places_of_a_mask_that_is_repeated_in_front_are_counted_for_themselves() -> None:
    nodes = [node("Expand", "m shape", "whole"), node("NonZero", "whole", "y")]
    inputs = {"m": np.asarray([True, False, True])}
    model = model_of(nodes, inputs, ["y"], {"shape": np.asarray([2, 3])})
    np.testing.assert_array_equal(compiled(model, inputs)[0], expected(model, inputs)[0])
