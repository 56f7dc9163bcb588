"""What detectors of torchvision are made of, for any number of boxes, against loops over the boxes."""

# pyright: basic, reportMissingModuleSource=false, reportAttributeAccessIssue=false, reportIndexIssue=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportMissingImports=false
# pyright: reportArgumentType=false

from __future__ import annotations

import pytest

import dlc

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

from dlc.importers.torch import detectors  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Whole(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def boxes_of(count: int, side: float = 100.0):
    """Boxes, scores and classes; two boxes have the same score."""
    stream = torch.Generator().manual_seed(count)
    corners = torch.rand(count, 4, generator=stream) * side
    corners[:, 2:] += corners[:, :2]
    scores = torch.rand(count, generator=stream)
    scores[1:2] = scores[0]
    return corners, scores, torch.randint(0, 4, (count,), generator=stream)


def overlap(one, other) -> float:
    """The area that two boxes share, as a part of both together."""
    low, high = torch.maximum(one[:2], other[:2]), torch.minimum(one[2:], other[2:])
    shared = (high - low).clamp(min=0).prod()
    areas = [(box[2:] - box[:2]).prod() for box in (one, other)]
    return float(shared / (areas[0] + areas[1] - shared))


def suppressed(boxes, scores, classes, limit: float):
    """The places of the boxes that stay, one after the other."""
    kept: list[int] = []
    for k in torch.argsort(scores, descending=True, stable=True).tolist():
        rivals = [j for j in kept if classes[j] == classes[k]]
        if all(overlap(boxes[k], boxes[j]) <= limit for j in rivals):
            kept.append(k)
    return torch.tensor(kept, dtype=torch.int64)


@pytest.mark.parametrize("count", [1, 40, 1001])
def test_the_boxes_of_a_class_that_overlap_a_better_one_are_suppressed(count: int) -> None:
    given = boxes_of(count, side=100.0 if count < 1000 else 1000.0)
    module = Whole(lambda *x: detectors.batched_nms(*x, 0.3))
    compiled = dlc.from_torch(module, given)
    assert compiled(*given).tolist() == suppressed(*given, 0.3).tolist()


def test_boxes_are_suppressed_also_when_they_are_counted_and_joined() -> None:
    def chosen(boxes, scores, classes):
        parts = []
        for low, most in ((0.5, 7), (0.2, 9)):
            (places,) = torch.where(scores > low)
            best, order = scores[places].topk(detectors.fewest(places, most, 0))
            parts.append((boxes[places][order], best, classes[places][order]))
        joined = [torch.cat(each) for each in zip(*parts, strict=True)]
        kept = detectors.batched_nms(*joined, 0.3)[:6]
        return joined[0][kept], joined[2][kept]

    def expected(boxes, scores, classes):
        parts = []
        for low, most in ((0.5, 7), (0.2, 9)):
            places = torch.nonzero(scores > low)[:, 0]
            best, order = scores[places].sort(descending=True, stable=True)
            parts.append((boxes[places][order][:most], best[:most], classes[places][order][:most]))
        joined = [torch.cat(each) for each in zip(*parts, strict=True)]
        kept = suppressed(*joined, 0.3)[:6]
        return joined[0][kept], joined[2][kept]

    given = boxes_of(30)
    compiled = dlc.from_torch(Whole(chosen), given)
    low = (given[0], given[1] * 0.3, given[2])
    none = (given[0], given[1] * 0.0, given[2])
    for call in (given, low, none):
        for ours, theirs in zip(compiled(*call), expected(*call), strict=True):
            torch.testing.assert_close(ours, theirs)


def test_masks_are_stretched_to_their_boxes() -> None:
    from torch.nn import functional

    def one(mask, box, height: int, width: int):
        x0, y0, x1, y1 = box
        resized = functional.interpolate(
            mask[None], (y1 - y0 + 1, x1 - x0 + 1), mode="bilinear", align_corners=False
        )[0, 0]
        picture = torch.zeros(height, width)
        top, left = max(y0, 0), max(x0, 0)
        below, right = min(y1 + 1, height), min(x1 + 1, width)
        picture[top:below, left:right] = resized[top - y0 : below - y0, left - x0 : right - x0]
        return picture

    def whole(masks, boxes):
        scale, wide = 7 / 5, functional.pad(masks, (1,) * 4)
        half = (boxes[:, 2:] - boxes[:, :2]) * 0.5 * scale
        middle = (boxes[:, 2:] + boxes[:, :2]) * 0.5
        ends = torch.cat([middle - half, middle + half], 1).to(torch.int64)
        pairs = zip(wide, ends.tolist(), strict=True)
        return torch.stack([one(mask, box, 40, 50) for mask, box in pairs])[:, None]

    stream = torch.Generator().manual_seed(1)
    masks = torch.rand(5, 1, 5, 5, generator=stream)
    boxes = torch.rand(5, 4, generator=stream) * 20
    boxes[:, 2:] += boxes[:, :2] + 1
    compiled = dlc.from_torch(Whole(lambda m, b: detectors.pasted(m, b, (40, 50))), (masks, boxes))
    torch.testing.assert_close(compiled(masks, boxes), whole(masks, boxes))


@pytest.mark.parametrize("count", [1, 6])
def test_points_are_where_maps_that_are_stretched_to_their_boxes_are_largest(count: int) -> None:
    from torch.nn import functional

    def one(maps, box):
        """As torchvision computes it for one box."""
        extent = (box[2:] - box[:2]).clamp(min=1)
        width, height = (int(each) for each in extent.ceil())
        stretched = functional.interpolate(maps[:, None], (height, width), mode="bicubic")[:, 0]
        value, place = stretched.reshape(len(maps), -1).max(1)
        x = (place % width + 0.5) * extent[0] / width + box[0]
        y = (place // width + 0.5) * extent[1] / height + box[1]
        return torch.stack([x, y, torch.ones_like(x)], 1), value

    stream = torch.Generator().manual_seed(3)
    maps = torch.rand(count, 4, 7, 7, generator=stream)
    boxes = torch.rand(count, 4, generator=stream) * 20
    boxes[:, 2:] += boxes[:, :2]
    boxes[0, 2:] = boxes[0, :2] + 0.3  # smaller than an element
    compiled = dlc.from_torch(
        Whole(lambda m, b: detectors.keypoints(m, b, (40, 50))), (maps, boxes)
    )
    wanted = [torch.stack(each) for each in zip(*map(one, maps, boxes), strict=True)]
    for ours, theirs in zip(compiled(maps, boxes), wanted, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("aligned", [False, True])
def test_regions_are_means_of_samples_between_elements(aligned: bool) -> None:
    def sample(plane, y: float, x: float) -> float:
        height, width = plane.shape
        if not (-1 <= y <= height and -1 <= x <= width):
            return 0.0
        y, x = max(y, 0.0), max(x, 0.0)
        rows, columns = min(int(y), height - 1), min(int(x), width - 1)
        dy = y - rows if rows < height - 1 else 0.0
        dx = x - columns if columns < width - 1 else 0.0
        below, right = min(rows + 1, height - 1), min(columns + 1, width - 1)
        upper = plane[rows, columns] * (1 - dx) + plane[rows, right] * dx
        lower = plane[below, columns] * (1 - dx) + plane[below, right] * dx
        return float(upper * (1 - dy) + lower * dy)

    def region(source, roi):
        offset = 0.5 if aligned else 0.0
        x0, y0, x1, y1 = [float(each) * 0.25 - offset for each in roi[1:]]
        high, wide = y1 - y0, x1 - x0
        high, wide = (high, wide) if aligned else (max(high, 1.0), max(wide, 1.0))
        found = torch.zeros(source.shape[1], 3, 2)
        for c, ph, pw, iy, ix in torch.cartesian_prod(
            *[torch.arange(n) for n in (source.shape[1], 3, 2, 2, 2)]
        ).tolist():
            y = y0 + (ph + (iy + 0.5) / 2) * high / 3
            x = x0 + (pw + (ix + 0.5) / 2) * wide / 2
            found[c, ph, pw] += sample(source[int(roi[0]), c], y, x) / 4
        return found

    stream = torch.Generator().manual_seed(2)
    source = torch.rand(2, 3, 9, 8, generator=stream)
    corners = boxes_of(6, side=30.0)[0]
    corners[0] = torch.tensor([30.0, 31.0, 60.0, 62.0])  # partly outside
    rois = torch.cat([torch.tensor([[0.0], [1.0]] * 3), corners], 1)
    module = Whole(lambda x, r: detectors.roi_align(x, r, 0.25, 3, 2, 2, aligned))
    compiled = dlc.from_torch(module, (source, rois))
    theirs = torch.stack([region(source, roi) for roi in rois])
    torch.testing.assert_close(compiled(source, rois), theirs, rtol=1e-4, atol=1e-5)


def test_a_number_of_samples_for_each_box_is_refused() -> None:
    with pytest.raises(dlc.Unsupported, match="depends on the box"):
        detectors.roi_align(torch.rand(1, 1, 4, 4), torch.rand(1, 5), 1.0, 2, 2, -1, aligned=False)
