"""torchvision beside a PyTorch for CPUs: its wheel is built for GPUs, and its operators do not load there.

Those that detectors use are then given in Python, under their names, which is what exporters write.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeAlias

from benchmarks.zoo.catalogue import Tensor, torch

Package: TypeAlias = Any
"""torchvision is not installed where types are checked."""

SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align": "(Tensor input, Tensor rois, float spatial_scale, int pooled_height, "
    "int pooled_width, int sampling_ratio, bool aligned) -> Tensor",
}
"""What torchvision declares."""


def opened() -> Package:
    """torchvision, with its operators."""
    try:
        vision = importlib.import_module("torchvision")
    except RuntimeError:  # an operator does not exist
        for name, schema in SCHEMAS.items():
            torch.library.define(f"torchvision::{name}", schema)
        vision = importlib.import_module("torchvision")
        _implement(vision)
    return vision


def _implement(vision: Package) -> None:
    boxes = vision.ops.boxes
    regions: Package = importlib.import_module("torchvision.ops.roi_align")
    in_python: Callable[..., Tensor] = regions._roi_align

    def suppress(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
        overlaps = boxes.box_iou(dets, dets) > iou_threshold
        kept: list[int] = []
        for k in torch.argsort(scores, descending=True).tolist():
            if not overlaps[k, kept].any():
                kept.append(k)
        return torch.tensor(kept, dtype=torch.int64)

    def align(source: Tensor, rois: Tensor, *settings: float) -> Tensor:
        return in_python(source, rois, *settings)

    torch.library.impl("torchvision::nms", "CPU", suppress)
    torch.library.impl("torchvision::roi_align", "CPU", align)
    for module in (boxes, regions):
        module._assert_has_ops = _nothing
    regions._has_ops = _yes
    importlib.import_module("torchvision.ops._register_onnx_ops")._register_custom_op()


def _nothing() -> None:
    """There is nothing to refuse: exporters compile this function, too."""


def _yes() -> bool:
    return True
