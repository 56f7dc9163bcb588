"""One update of `kernel.scatter`, for CPUs and GPUs: load, combine with the element, store."""

from __future__ import annotations

from dlc.dialects import kernel
from dlc.dialects.expr import combine
from dlc.lowering.kernel_code.body import Body, Point
from dlc.lowering.kernel_code.lanes import Lane, in_lanes, varying

COMBINERS = {"add": "add", "multiply": "multiply", "max": "maximum", "min": "minimum"}
"""The scalar operation that combines an element with its update, for each mode but `set`."""


def apply_update(
    op: kernel.Scatter, body: Body, lanes: int, result: int, element: list[Lane], update: list[Lane]
) -> None:
    """Apply an update to `lanes` neighbouring elements of the result.

    `result` is its number among the arrays of the kernel, `element` the index of the elements in it,
    `update` their index in the tensor of updates.
    """
    point = Point(lanes, {})
    value = body.load(point, 1, update)
    if op.mode != "set":
        old = body.load(point, result, element)
        combined = combine(COMBINERS[op.mode], in_lanes(old, lanes), in_lanes(value, lanes))
        value = varying(combined, lanes)
    body.store_in(point, value, result, element)
