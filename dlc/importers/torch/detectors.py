"""Detectors of torchvision for any number of boxes: their Python code decides by it, which PyTorch refuses.

While a module is exported, the functions of torchvision that ask how many boxes there are, or that go from
box to box, are replaced by others that compute the same for all boxes at once. Suppression is the operator
`dlc.batched_nms`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import product
from typing import TYPE_CHECKING, Protocol, cast

from dlc.errors import Unsupported

if TYPE_CHECKING:
    import torch
    from torch import Tensor

SCHEMA = "(Tensor boxes, Tensor scores, Tensor idxs, float iou_threshold) -> Tensor"


@contextmanager
def any_number_of_boxes() -> Generator[None]:
    """Within it, torchvision's detectors are written without a decision by the number of boxes."""
    replaced = [(*each, getattr(each[0], each[1])) for each in _replacements()]
    for owner, name, function, _ in replaced:
        setattr(owner, name, function)
    try:
        yield
    finally:
        for owner, name, _, usual in replaced:
            setattr(owner, name, usual)


def _replacements() -> list[tuple[object, str, Callable[..., object]]]:
    """What is replaced: an owner, the name of a function there, and the other function."""
    if "torchvision.models.detection" not in sys.modules:
        return []
    detection = "torchvision.models.detection"
    ops, boxes, poolers = (
        import_module(f"torchvision.ops{part}") for part in ("", ".boxes", ".poolers")
    )
    shared, transform, anchors, heads = (
        import_module(f"{detection}.{part}")
        for part in ("_utils", "transform", "anchor_utils", "roi_heads")
    )
    noting, found = _points_in_pictures(heads.RoIHeads.forward)
    return [
        (boxes, "batched_nms", batched_nms),
        (ops, "batched_nms", batched_nms),
        (poolers, "_multiscale_roi_align", pooled),
        (shared, "_topk_min", fewest),
        (shared.BoxCoder, "decode", decoded),
        (anchors.AnchorGenerator, "set_cell_anchors", cast_anchors),
        (transform, "paste_masks_in_image", pasted),
        (heads.RoIHeads, "forward", noting),
        (heads, "heatmaps_to_keypoints", found),
    ]


def _points_in_pictures(
    usual: Callable[..., object],
) -> tuple[Callable[..., object], Callable[..., object]]:
    """The heads of a detector, which note the sizes of pictures, and what finds the points in each.

    What torchvision calls for the points is not told how large the picture is, and no box is larger.
    """
    sizes: list[tuple[int, int]] = []

    def forward(
        self: object,
        features: object,
        proposals: object,
        image_shapes: Sequence[tuple[int, int]],
        targets: object = None,
    ) -> object:
        sizes[:] = image_shapes
        return usual(self, features, proposals, image_shapes, targets)

    def found(maps: Tensor, rois: Tensor) -> tuple[Tensor, Tensor]:
        return keypoints(maps, rois, sizes.pop(0))

    return forward, found


def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """The places of the boxes that no better one of their class overlaps, the best first."""
    return operator()(boxes.detach(), scores.detach(), idxs, iou_threshold)


@cache
def operator() -> Callable[..., Tensor]:
    """The operator `dlc.batched_nms`: its result is as long as boxes are left."""
    import torch

    def computed(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
        raise NotImplementedError("only graphs have this operator")

    def shaped(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
        return idxs.new_empty((torch.library.get_ctx().new_dynamic_size(),))

    made = torch.library.custom_op("dlc::batched_nms", computed, mutates_args=(), schema=SCHEMA)
    made.register_fake(shaped)
    return cast("Callable[..., Tensor]", torch.ops.dlc.batched_nms.default)


def fewest(source: Tensor, most: int, axis: int) -> int:
    """The number of elements along an axis, or `most` if that is less."""
    import torch

    return torch.sym_min(most, source.size(axis))


class Coder(Protocol):
    """What decodes boxes."""

    def decode_single(self, rel_codes: Tensor, boxes: Tensor) -> Tensor: ...


def decoded(self: Coder, rel_codes: Tensor, boxes: Sequence[Tensor]) -> Tensor:
    """Boxes `[boxes, classes, 4]` from their differences `[boxes, 4 * classes]` to others."""
    import torch

    joined = torch.cat(list(boxes))
    count, width = joined.shape[0], rel_codes.shape[-1]
    found = self.decode_single(rel_codes.reshape((count, width)), joined)
    return found.reshape((count, width // 4, 4))


class Anchors(Protocol):
    """What keeps the anchors of a cell."""

    cell_anchors: Sequence[Tensor]


def cast_anchors(self: Anchors, dtype: torch.dtype, device: torch.device) -> None:
    """The anchors in a dtype; those that have it stay, since no attribute may change in an export."""
    if any(each.dtype != dtype or each.device != device for each in self.cell_anchors):
        self.cell_anchors = [each.to(dtype=dtype, device=device) for each in self.cell_anchors]


def pooled(
    x_filtered: Sequence[Tensor],
    boxes: Sequence[Tensor],
    output_size: Sequence[int],
    sampling_ratio: int,
    scales: Sequence[float],
    mapper: Callable[[Sequence[Tensor]], Tensor],
) -> Tensor:
    """The features inside of boxes, each from the level of the pyramid that suits its size."""
    import torch

    numbers = [each.new_full((each.shape[0], 1), k) for k, each in enumerate(boxes)]
    rois = torch.cat([torch.cat(numbers), torch.cat(list(boxes))], 1)
    first, (height, width) = x_filtered[0], output_size
    if len(x_filtered) == 1:
        return roi_align(first, rois, scales[0], height, width, sampling_ratio, False)
    levels = mapper(boxes)
    result = first.new_zeros((rois.shape[0], first.shape[1], height, width))
    for level, (feature, scale) in enumerate(zip(x_filtered, scales, strict=True)):
        (places,) = torch.where(levels.eq(level))
        found = roi_align(feature, rois[places], scale, height, width, sampling_ratio, False)
        result = result.index_put((places,), found.to(result.dtype))
    return result


@dataclass(frozen=True, slots=True)
class Stretched:
    """Along one axis of a picture, where each of its places lies in a mask that is stretched to a box.

    `[boxes, size]`: the elements of the mask on both sides, the part of the second one, and whether the
    place is inside of the box.
    """

    low: Tensor
    high: Tensor
    part: Tensor
    inside: Tensor

    @classmethod
    def of(cls, begin: Tensor, end: Tensor, size: int, side: int) -> Stretched:
        """For boxes with these first and last places, and masks of `side` elements."""
        import torch

        extent = (end - begin + 1).clamp(min=1)[:, None]
        place = torch.arange(size)[None, :] - begin[:, None]
        source = (place + 0.5) * (side / extent.to(torch.float32)) - 0.5
        source = source.clamp(min=0)
        low = source.to(torch.int64).clamp(max=side - 1)
        part = (source - low).clamp(max=1)
        high = (low + 1).clamp(max=side - 1)
        return cls(low, high, part, (place >= 0) & (place < extent))


def pasted(masks: Tensor, boxes: Tensor, img_shape: tuple[int, int], padding: int = 1) -> Tensor:
    """Masks `[boxes, 1, side, side]` stretched to their boxes in a picture, `[boxes, 1, height, width]`."""
    import torch
    from torch.nn import functional

    wide = functional.pad(masks, (padding,) * 4)[:, 0]
    side = wide.shape[-1]
    scale = side / masks.shape[-1]
    ends = [_widened(boxes[:, k], boxes[:, k + 2], scale) for k in (1, 0)]
    y, x = (Stretched.of(*pair, size, side) for pair, size in zip(ends, img_shape, strict=True))
    box = torch.arange(wide.shape[0])[:, None, None]

    def rows(places: Tensor) -> Tensor:
        left, right = (wide[box, places[:, :, None], each[:, None, :]] for each in (x.low, x.high))
        return left * (1 - x.part[:, None, :]) + right * x.part[:, None, :]

    part = y.part[:, :, None]
    found = rows(y.low) * (1 - part) + rows(y.high) * part
    inside = y.inside[:, :, None] & x.inside[:, None, :]
    return torch.where(inside, found, torch.zeros_like(found))[:, None]


def _widened(low: Tensor, high: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """The ends of boxes along an axis, farther from their middle by a factor, as integers."""
    import torch

    half, middle = (high - low) * 0.5 * scale, (high + low) * 0.5
    return (middle - half).to(torch.int64), (middle + half).to(torch.int64)


def keypoints(maps: Tensor, rois: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Where maps `[boxes, points, side, side]`, stretched to their boxes, are largest, and how large.

    `[boxes, points, 3]`: x, y and 1; and `[boxes, points]`. Boxes `[boxes, 4]` lie in a picture of a size.
    """
    import torch

    begin = rois[:, :2]
    extent = (rois[:, 2:] - begin).clamp(min=1)
    places = extent.detach().ceil()
    row, column = _largest(maps.detach(), places, size)
    of_rows = _cubic(row, places[:, 1:], maps.shape[2])
    of_columns = _cubic(column, places[:, :1], maps.shape[3])
    stretched = of_rows[:, :, None, :] @ maps @ of_columns[:, :, :, None]
    x, y = (
        (number + 0.5) * (extent / places)[:, k : k + 1] + begin[:, k : k + 1]
        for k, number in enumerate((column, row))
    )
    return torch.stack((x, y, torch.ones_like(x)), -1), stretched[:, :, 0, 0]


def _largest(maps: Tensor, places: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Row and column `[boxes, points]` of the largest element of maps that are stretched to places.

    Row by row, since all together may be larger than memory.
    """
    import torch
    from torch._higher_order_ops.scan import scan

    width, height = places[:, :1], places[:, 1:]
    columns = torch.arange(size[1])[None, :]
    outside = (columns >= width)[:, None, :]
    across = _cubic(columns, width, maps.shape[3]).transpose(1, 2)

    def compared(best: tuple[Tensor, ...], row: Tensor) -> tuple[object, Tensor]:
        down = _cubic(row.reshape((1, 1)), height, maps.shape[2])[:, :, None, :]
        value, column = (
            ((down @ maps)[:, :, 0, :] @ across).masked_fill(outside, -torch.inf).max(-1)
        )
        better = (value > best[0]) & (row < height)
        pairs = zip((value, row.expand_as(column), column), best, strict=True)
        return tuple([torch.where(better, *pair) for pair in pairs]), row.clone()

    none = torch.full_like(maps[:, :, 0, 0], -torch.inf)
    first = torch.zeros_like(none, dtype=torch.int64)
    (_, row, column), _ = scan(compared, (none, first, first.clone()), torch.arange(size[0]))
    return row, column


def _cubic(at: Tensor, places: Tensor, side: int) -> Tensor:
    """With which factors cubic interpolation makes the places `at` of `side` elements that are stretched.

    `[boxes, at, side]` for `at` of `[boxes or 1, at]`, where `places` of `[boxes, 1]` says to how many they
    are stretched. Keys (1981), with the a = -0.75 of PyTorch.
    """
    import torch

    place = (at + 0.5) * (side / places) - 0.5
    low = place.floor()
    part = (place - low)[:, :, None]
    element, a = torch.arange(side), -0.75
    total: Tensor | None = None
    for step, distance in ((-1, part + 1), (0, part), (1, 1 - part), (2, 2 - part)):
        if step in (0, 1):
            factor = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        else:
            factor = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        source = (low + step).clamp(0, side - 1)[:, :, None]
        chosen = torch.where(source.eq(element), factor, torch.zeros_like(factor))
        total = chosen if total is None else total + chosen
    assert total is not None
    return total


def roi_align(
    source: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """The operator of torchvision by gathers: means of samples between the elements of each window.

    Sources are `[pictures, channels, height, width]`, boxes `[boxes, 5]` with the number of their picture
    first. Raises Unsupported (D0710) where each box has a number of samples of its own.
    """
    import torch

    if sampling_ratio <= 0:
        raise Unsupported(
            "torchvision.roi_align with a number of samples that depends on the box is not imported",
            code="D0710",
            help="give it a sampling_ratio, such as 2",
        )
    height, width = source.shape[2:]
    offset = 0.5 if aligned else 0.0
    x0, y0, x1, y1 = (rois[:, k] * spatial_scale - offset for k in range(1, 5))
    x = _Samples.of(x0, x1, pooled_width, sampling_ratio, width, aligned=aligned)
    y = _Samples.of(y0, y1, pooled_height, sampling_ratio, height, aligned=aligned)
    picture = rois[:, 0].to(torch.int64)[:, None, None, None]
    channel = torch.arange(source.shape[1])[None, :, None, None]
    total: Tensor | None = None
    for (row, of_row), (column, of_column) in product(y.pairs(), x.pairs()):
        found = source[picture, channel, row[:, None, :, None], column[:, None, None, :]]
        part = found * of_row[:, None, :, None] * of_column[:, None, None, :]
        total = part if total is None else total + part
    assert total is not None
    count, channels = rois.shape[0], source.shape[1]
    shape = (count, channels, pooled_height, sampling_ratio, pooled_width, sampling_ratio)
    return total.reshape(shape).sum((3, 5)) / sampling_ratio**2


@dataclass(frozen=True, slots=True)
class _Samples:
    """Along one axis, the elements around each sample of each box and their parts: `[boxes, samples]`."""

    low: Tensor
    high: Tensor
    part: Tensor
    inside: Tensor

    @classmethod
    def of(
        cls, begin: Tensor, end: Tensor, bins: int, each: int, size: int, *, aligned: bool
    ) -> _Samples:
        """For boxes with these ends, `each` samples in each of `bins` windows."""
        import torch

        extent = end - begin if aligned else (end - begin).clamp(min=1)
        window = (extent / bins)[:, None]
        number = torch.arange(bins * each)
        place = begin[:, None] + (number // each) * window + (number % each + 0.5) * window / each
        inside = (place >= -1) & (place <= size)
        place = place.clamp(min=0)
        low = place.to(torch.int64).clamp(max=size - 1)
        part = torch.where(low < size - 1, place - low, torch.zeros_like(place))
        return cls(low, (low + 1).clamp(max=size - 1), part, inside)

    def pairs(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Both elements with their factors, which are 0 for samples outside of the source."""
        import torch

        none = torch.zeros_like(self.part)
        factors = (torch.where(self.inside, each, none) for each in (1 - self.part, self.part))
        first, second = factors
        return (self.low, first), (self.high, second)
