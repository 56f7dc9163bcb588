"""Pictures and other tensors in other sizes: `Resize`, and `Upsample`, its forerunner."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dlc.dialects import nn
from dlc.importers.onnx.node_context import Importer, NodeContext, NodeResults
from dlc.ir.dims import Shape, Size, floor_divide

Resized = tuple[Size, Fraction | None]
"""The new size of an axis, and the scale where that is not the ratio of the sizes."""
MOST = 1e9
"""Places are computed in i64: scales above, or so far below 1, would leave it."""


def _resize(context: NodeContext) -> NodeResults:
    """`Resize`, and `Upsample`, its forerunner."""
    shape = context.type(0).shape
    mode, coordinates = context.text("mode", "nearest"), "asymmetric"
    rounding = "floor"
    if context.node.kind == "Resize" and context.opset >= 11:
        coordinates = context.text("coordinate_transformation_mode", "half_pixel")
        rounding = context.text("nearest_mode", "round_prefer_floor")
    if coordinates not in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"):
        raise context.unsupported(f"with coordinates {coordinates!r} is not imported")
    if context.flag("antialias"):
        raise context.unsupported("with antialias is not imported")
    resized = _resized(context, shape)
    sizes = {axis: size for axis, (size, _) in resized.items()}
    scales = {axis: scale for axis, (_, scale) in resized.items() if scale is not None}
    if scales and coordinates == "align_corners":
        raise context.unsupported("to no whole size with its corners aligned is not imported")
    if coordinates == "pytorch_half_pixel":
        if 1 in sizes.values():
            raise context.unsupported(
                f"with coordinates {coordinates!r} to a size of 1 is not imported"
            )
        coordinates = "half_pixel"
    emit, x = context.emit, context.value(0)
    if mode == "nearest":
        return nn.resize_nearest(
            emit, x, sizes, scales=scales, coordinates=coordinates, rounding=rounding
        )
    if mode == "linear":
        return nn.resize_linear(emit, x, sizes, scales=scales, coordinates=coordinates)
    raise context.unsupported(f"in mode {mode!r} is not imported")


def _resized(context: NodeContext, shape: Shape) -> dict[int, Resized]:
    """The resized size and the scale of each axis that changes."""
    axes = [context.axis(axis, len(shape)) for axis in context.list("axes") or range(len(shape))]
    old = [shape[axis] for axis in axes]
    new_sizes = _new_sizes(context, old)
    if len(new_sizes) != len(old):
        raise context.wrong(f"has {len(new_sizes)} sizes or scales for {len(old)} axes")
    pairs = zip(axes, new_sizes, old, strict=True)
    return {axis: resized for axis, resized, old_size in pairs if resized != (old_size, None)}


def _new_sizes(context: NodeContext, shape: Sequence[Size]) -> list[Resized]:
    new = context.node.kind == "Resize" and context.opset >= 11
    if new and context.operand(3) is not None:
        return _kept_aspect(context, shape, context.sizes(3))
    scales = context.numbers("scales") if context.opset < 9 else context.floats(2 if new else 1)
    sensible = all(1 / MOST < scale < MOST for scale in scales)
    if len(scales) != len(shape) or not sensible:
        raise context.wrong(f"has the scales {scales} for {len(shape)} axes")
    return [_scaled(size, scale) for size, scale in zip(shape, scales, strict=True)]


def _scaled(size: Size, scale: float) -> Resized:
    """The size times the scale, rounded down."""
    exact = _fraction(scale)
    whole = size * exact.numerator
    new = floor_divide(whole, exact.denominator)
    return new, None if new * exact.denominator == whole else exact


def _fraction(scale: float) -> Fraction:
    """The simplest fraction that rounds to a scale, which is an f32: 2/3 for 0.6666667.

    What rounding took off the scale would otherwise decide which size is whole, and which place lies on
    an element.
    """
    exact = Fraction(scale)
    simple = [exact.limit_denominator(10**digits) for digits in range(1, 18)]
    return next(fraction for fraction in simple if np.float32(fraction) == np.float32(scale))


def _kept_aspect(
    context: NodeContext, shape: Sequence[Size], new_sizes: list[Size]
) -> list[Resized]:
    """The sizes, or those nearest to them for which all axes have one scale."""
    policy = context.text("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return [(size, None) for size in new_sizes]
    pairs = [
        (new, old)
        for new, old in zip(new_sizes, shape, strict=True)
        if isinstance(new, int) and isinstance(old, int) and old > 0
    ]
    if len(pairs) != len(shape):
        raise context.unsupported(f"with the policy {policy!r} of axes whose size is not a number")
    scales = [Fraction(new, old) for new, old in pairs]
    scale = min(scales) if policy == "not_larger" else max(scales)
    sizes = [old * scale for _, old in pairs]
    half = Fraction(1, 2)
    return [(math.floor(size + half), None if size.denominator == 1 else scale) for size in sizes]


IMPORTERS: dict[str, Importer] = {
    "Resize": _resize,
    "Upsample": _resize,
}
