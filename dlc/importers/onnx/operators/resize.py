"""Resizing pictures and other tensors: `Resize`, and `Upsample`, its predecessor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from dlc.dialects import array, nn
from dlc.dialects.nn.rows import along, in_dtype, widened
from dlc.importers.onnx.node_context import Importer, NodeContext, NodeResults
from dlc.ir.core import Value
from dlc.ir.dims import Shape, Size, floor_divide
from dlc.ir.intervals import interval

Resized = tuple[Size, Fraction | None]
"""The new size of an axis, and the scale where that is not the ratio of the sizes."""
MOST = 1e9
"""Places are computed in i64: scales above, or so far below 1, would leave it."""


def _resize(context: NodeContext) -> NodeResults:
    """`Resize`, and `Upsample`, its forerunner."""
    emit, x, type = context.emit, context.value(0), context.type(0)
    mode, coordinates = context.text("mode", "nearest"), "asymmetric"
    if _is_new(context):
        coordinates = context.text("coordinate_transformation_mode", "half_pixel")
    if coordinates not in COORDINATES or mode not in ("nearest", "linear", "cubic"):
        raise context.wrong(f"has the unknown mode {mode!r} or coordinates {coordinates!r}")
    if mode != "nearest" and not type.dtype.is_float:
        raise context.unsupported(f"in mode {mode!r} of {type.dtype.name} is not imported")
    resized = _resized(context, type.shape)
    regions = _regions(context, type.shape) if coordinates == "tf_crop_and_resize" else {}
    for axis, (start, stop) in regions.items():
        if (start, stop) != (0, 1):
            resized.setdefault(axis, (type.shape[axis], None))
    _check_sizes(context, coordinates, mode, type.shape, resized)
    sizes = {axis: size for axis, (size, _) in resized.items()}
    scales = {axis: scale for axis, (_, scale) in resized.items() if scale is not None}
    regions = {axis: region for axis, region in regions.items() if axis in sizes}
    whole = _interpolated(context, mode, widened(emit, x), sizes, scales, regions, coordinates)
    for axis, region in regions.items():
        old, new, scale = type.shape[axis], sizes[axis], scales.get(axis)
        position = nn.source_position(emit, old, new, coordinates, scale, region)
        outside = along(emit, position.is_outside(emit, old), whole, (axis,))
        value = array.constant_like(emit, context.number("extrapolation_value", 0.0), whole)
        whole = emit(array.Select(outside, value, whole))
    return in_dtype(emit, whole, type.dtype)


COORDINATES = (
    "align_corners", "asymmetric", "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",
    "tf_crop_and_resize",
)  # fmt: skip


def _is_new(context: NodeContext) -> bool:
    """Whether the operator has modes of coordinates: since opset 11."""
    return context.node.kind == "Resize" and context.opset >= 11


def _interpolated(
    context: NodeContext,
    mode: str,
    x: Value,
    sizes: Mapping[int, Size],
    scales: Mapping[int, Fraction],
    regions: Mapping[int, nn.Region],
    coordinates: str,
) -> Value:
    """The axes of these numbers in other sizes."""
    emit, antialias = context.emit, context.flag("antialias")
    excludes = context.flag("exclude_outside")
    if mode == "nearest":
        rounding = "floor"
        if _is_new(context):
            rounding = context.text("nearest_mode", "round_prefer_floor")
        return nn.resize_nearest(
            emit,
            x,
            sizes,
            scales=scales,
            regions=regions,
            coordinates=coordinates,
            rounding=rounding,
        )
    if mode == "linear" and not antialias and not excludes:
        return nn.resize_linear(
            emit, x, sizes, scales=scales, regions=regions, coordinates=coordinates
        )
    cubic = nn.cubic_filter(context.number("cubic_coeff_a", -0.75))
    return nn.resize_filtered(
        emit,
        x,
        sizes,
        cubic if mode == "cubic" else nn.linear_filter,
        scales=scales,
        regions=regions,
        coordinates=coordinates,
        antialias=antialias,
        exclude_outside=excludes,
    )


def _regions(context: NodeContext, shape: Shape) -> dict[int, nn.Region]:
    """The part of each axis that `tf_crop_and_resize` takes."""
    axes = _axes(context, shape)
    ends = context.floats(1)
    if len(ends) != 2 * len(axes):
        raise context.wrong(f"has {len(ends)} ends of regions for {len(axes)} axes")
    if not all(abs(end) < MOST for end in ends):
        raise context.wrong(f"has the region {ends}")
    exact = [_fraction(end) for end in ends]
    pairs = zip(exact[: len(axes)], exact[len(axes) :], strict=True)
    return dict(zip(axes, pairs, strict=True))


def _check_sizes(
    context: NodeContext,
    coordinates: str,
    mode: str,
    shape: Shape,
    resized: Mapping[int, Resized],
) -> None:
    """Raise Unsupported where the result would depend on sizes that are not known, or is not agreed on."""
    axes = [(shape[axis], new, scale) for axis, (new, scale) in resized.items()]
    known = all(isinstance(size, int) for old, new, _ in axes for size in (old, new))
    if coordinates == "tf_crop_and_resize" and not known:
        raise context.unsupported("of regions of axes whose size is not a number is not imported")
    if context.flag("antialias"):
        if mode == "nearest":
            raise context.wrong("has antialias in mode 'nearest'")
        if any(scale is None and nn.ratio(old, new) is None for old, new, scale in axes):
            raise context.unsupported("with antialias by a scale that is not a number")
    if coordinates == "pytorch_half_pixel" and (mode == "cubic" or context.flag("antialias")):
        # ONNX's text and its evaluator place a single element differently; only filters tell.
        lowest = [interval(new, context.regions.bounds)[0] for _, new, _ in axes]
        if any(low is None or low < 2 for low in lowest):
            raise context.unsupported(f"with coordinates {coordinates!r} to a size of 1")


def _resized(context: NodeContext, shape: Shape) -> dict[int, Resized]:
    """The resized size and the scale of each axis that changes."""
    axes = _axes(context, shape)
    old = [shape[axis] for axis in axes]
    new_sizes = _new_sizes(context, old)
    if len(new_sizes) != len(old):
        raise context.wrong(f"has {len(new_sizes)} sizes or scales for {len(old)} axes")
    pairs = zip(axes, new_sizes, old, strict=True)
    return {axis: resized for axis, resized, old_size in pairs if resized != (old_size, None)}


def _axes(context: NodeContext, shape: Shape) -> list[int]:
    """The axes that sizes, scales and regions speak of."""
    return [context.axis(axis, len(shape)) for axis in context.list("axes") or range(len(shape))]


def _new_sizes(context: NodeContext, shape: Sequence[Size]) -> list[Resized]:
    new = _is_new(context)
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
    if policy not in ("stretch", "not_larger", "not_smaller"):
        raise context.wrong(f"has the unknown keep_aspect_ratio_policy {policy!r}")
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
