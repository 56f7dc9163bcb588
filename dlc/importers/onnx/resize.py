"""Pictures and other tensors in other sizes: `Resize`, and `Upsample`, its forerunner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from dlc.dialects import nn
from dlc.importers.onnx.step import Importer, Made, Step
from dlc.ir.dims import Shape, Size


def _resize(step: Step) -> Made:
    """`Resize`, and `Upsample`, its forerunner."""
    shape = step.type(0).shape
    mode, coordinates = step.text("mode", "nearest"), "asymmetric"
    rounding = "floor"
    if step.node.kind == "Resize" and step.opset >= 11:
        coordinates = step.text("coordinate_transformation_mode", "half_pixel")
        rounding = step.text("nearest_mode", "round_prefer_floor")
    if coordinates not in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"):
        raise step.unsupported(f"with coordinates {coordinates!r} is not imported")
    if step.flag("antialias"):
        raise step.unsupported("with antialias is not imported")
    sizes = _resized(step, shape)
    if coordinates == "pytorch_half_pixel":
        if 1 in sizes.values():
            raise step.unsupported(
                f"with coordinates {coordinates!r} to a size of 1 is not imported"
            )
        coordinates = "half_pixel"
    if mode == "nearest":
        return nn.resize_nearest(
            step.emit, step.value(0), sizes, coordinates=coordinates, rounding=rounding
        )
    if mode == "linear":
        return nn.resize_linear(step.emit, step.value(0), sizes, coordinates=coordinates)
    raise step.unsupported(f"in mode {mode!r} is not imported")


def _resized(step: Step, shape: Shape) -> Mapping[int, Size]:
    """The new size of each axis that changes."""
    axes = [step.axis(axis, len(shape)) for axis in step.list("axes") or range(len(shape))]
    old = [shape[axis] for axis in axes]
    wanted = _wanted_sizes(step, old)
    if len(wanted) != len(old):
        raise step.wrong(f"has {len(wanted)} sizes or scales for {len(old)} axes")
    sizes = zip(axes, wanted, old, strict=True)
    return {axis: size for axis, size, before in sizes if size != before}


def _wanted_sizes(step: Step, shape: Sequence[Size]) -> list[Size]:
    new = step.node.kind == "Resize" and step.opset >= 11
    if new and step.operand(3) is not None:
        return _kept_aspect(step, shape, step.sizes(3))
    scales = step.numbers("scales") if step.opset < 9 else step.floats(2 if new else 1)
    if len(scales) != len(shape) or min(scales, default=1) <= 0:
        raise step.wrong(f"has the scales {scales} for {len(shape)} axes")
    return [_scaled(step, size, scale) for size, scale in zip(shape, scales, strict=True)]


def _scaled(step: Step, size: Size, scale: float) -> Size:
    """Places are fractions of the sizes: only of whole sizes do they mean what the scale says."""
    if scale == int(scale):
        return size * int(scale)
    if not isinstance(size, int):
        raise step.unsupported(f"by {scale} of an axis whose size is no number")
    if int(size * scale) != size * scale:
        raise step.unsupported(f"by {scale} of an axis of {size} gives no whole size")
    return int(size * scale)


def _kept_aspect(step: Step, shape: Sequence[Size], wanted: list[Size]) -> list[Size]:
    """The sizes, or those nearest to them for which all axes have one scale."""
    policy = step.text("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return wanted
    pairs = [
        (new, old)
        for new, old in zip(wanted, shape, strict=True)
        if isinstance(new, int) and isinstance(old, int) and old > 0
    ]
    if len(pairs) != len(shape):
        raise step.unsupported(f"with the policy {policy!r} of axes whose size is no number")
    scales = [Fraction(new, old) for new, old in pairs]
    scale = min(scales) if policy == "not_larger" else max(scales)
    sizes = [old * scale for _, old in pairs]
    if any(size.denominator != 1 for size in sizes):
        raise step.unsupported(f"by {scale} gives no whole size")
    return [int(size) for size in sizes]


IMPORTERS: dict[str, Importer] = {
    "Resize": _resize,
    "Upsample": _resize,
}
