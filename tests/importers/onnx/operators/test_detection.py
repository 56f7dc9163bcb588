"""What detectors do with their boxes, as torchvision's are exported: counts that decide other sizes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tests.importers.onnx.models import (
    Array,
    compiled,
    evaluated,
    expected,
    imported,
    model_of,
    node,
)

MOST = 4
"""Of the boxes of a level so many at most are kept."""
HELD = {
    "threshold": np.asarray(0.5, np.float32),
    "most": np.asarray([MOST]),
    "zero": np.asarray([0]),
    "one": np.asarray([1]),
    "none": np.asarray(0),
    "all": np.asarray([2**63 - 1]),
    "overlap": np.asarray([0.4], np.float32),
    "box": np.asarray([2]),
}


def a_level(k: int) -> list[NodeProto]:
    """The best `MOST` of the boxes whose score is above a threshold."""
    return [
        node("Greater", f"scores{k} threshold", f"good{k}"),
        node("NonZero", f"good{k}", f"places{k}"),
        node("Squeeze", f"places{k} zero", f"place{k}"),
        node("Shape", f"place{k}", f"count{k}"),
        node("Concat", f"most count{k}", f"both{k}", axis=0),
        node("ReduceMin", f"both{k}", f"least{k}", keepdims=1),
        node("Gather", f"scores{k} place{k}", f"kept{k}"),
        node("TopK", f"kept{k} least{k}", f"best{k}", f"rank{k}"),
        node("Gather", f"place{k} rank{k}", f"taken{k}"),
        node("Gather", f"boxes{k} taken{k}", f"corners{k}"),
    ]


def a_detector() -> list[NodeProto]:
    """Of two levels together the boxes that overlap no better one; of none none."""
    found = helper.make_tensor_value_info("found", TensorProto.INT64, None)
    empty = helper.make_graph(
        [],
        "empty",
        [],
        [helper.make_tensor_value_info("nothing", TensorProto.INT64, [0])],
        [numpy_helper.from_array(np.zeros(0, np.int64), "nothing")],
    )
    chosen = helper.make_graph(
        [
            node("Unsqueeze", "corners zero", "batch"),
            node("Unsqueeze", "best zero", "row"),
            node("Unsqueeze", "row zero", "rows"),
            node("NonMaxSuppression", "batch rows all overlap", "chosen"),
            node("Gather", "chosen box", "column", axis=1),
            node("Squeeze", "column one", "found"),
        ],
        "chosen",
        [],
        [found],
    )
    return [
        *a_level(0),
        *a_level(1),
        node("Concat", "corners0 corners1", "corners", axis=0),
        node("Concat", "best0 best1", "best", axis=0),
        node("Shape", "corners", "shape"),
        node("ReduceProd", "shape", "count", keepdims=0),
        node("Equal", "count none", "is_empty"),
        node("If", "is_empty", "keep", then_branch=empty, else_branch=chosen),
        node("Gather", "corners keep", "y"),
        node("Gather", "best keep", "z"),
    ]


def given(low: float, high: float) -> dict[str, Array]:
    """Boxes of two levels, with scores between these numbers."""
    stream = np.random.default_rng(3)
    inputs: dict[str, Array] = {}
    for k, count in enumerate((9, 6)):
        corner = stream.random((count, 2)) * 4
        boxes = np.concatenate([corner, corner + 1 + stream.random((count, 2))], 1)
        inputs[f"scores{k}"] = (low + (high - low) * stream.random(count)).astype(np.float32)
        inputs[f"boxes{k}"] = boxes.astype(np.float32)
    return inputs


@pytest.mark.parametrize("range", [(0.0, 1.0), (0.4, 0.6), (0.6, 1.0), (0.0, 0.4)], ids=str)
def test_boxes_that_are_counted_are_chosen_as_onnxruntime_does(range: tuple[float, float]) -> None:
    inputs = given(*range)
    model = model_of(a_detector(), inputs, ["y", "z"], HELD)
    wanted = expected(model, inputs)
    assert (len(wanted[1]) > 0) == (range[1] > 0.5)
    for found in (evaluated(imported(model), inputs), compiled(model, inputs)):
        for got, right in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(got, right)
