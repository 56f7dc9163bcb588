"""Operators that read between the elements of pictures, and pooling with places, as in onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from tests.importers.onnx.cases import (
    Array,
    Case,
    case,
    check_compiled,
    check_evaluated,
    check_sized,
    floats,
    ids,
    ints,
)
from tests.suites import every

PICTURE = floats(2, 3, 5, 7)
NONE = np.zeros(0, np.float32)
REGIONS = np.asarray([[0, 0, 4, 3], [1, 2, 6, 5], [-3, -1, 2, 9]], np.float32)
"""Also beyond the picture."""


def scales(*numbers: float) -> Array:
    return np.asarray([1, 1, *numbers], np.float32)


GRIDS = [
    case(
        "GridSample", PICTURE, floats(2, 4, 3, 2), mode=mode, padding_mode=padding,
        align_corners=aligned, opset=20,
    )
    for mode in ("linear", "nearest", "cubic")
    for padding in ("zeros", "border", "reflection")
    for aligned in (0, 1)
]  # fmt: skip
FILTERS = [
    case(
        "Resize", PICTURE, k=(NONE, scales(*factors)), mode=mode, antialias=antialias,
        exclude_outside=excludes, opset=19,
    )
    for mode in ("linear", "cubic")
    for factors in ((0.6, 0.5), (2, 1.5), (0.4, 1))
    for antialias, excludes in ((1, 0), (1, 1), (0, 1), (0, 0))
    # onnxruntime knows one of the two in linear mode only with the other.
    if mode == "cubic" or antialias
]  # fmt: skip

CASES = [
    *GRIDS,
    case("GridSample", PICTURE, 3 * floats(2, 4, 3, 2), padding_mode="reflection", opset=16),
    case("GridSample", floats(2, 3, 4, 3, 5), floats(2, 2, 3, 4, 3), mode="linear", opset=20),
    *FILTERS,
    case("Resize", PICTURE, k=(NONE, scales(0.8, 2)), mode="cubic", cubic_coeff_a=-0.5),
    case(
        "Resize", PICTURE, k=(NONE, scales(0.8, 2)), mode="cubic",
        coordinate_transformation_mode="asymmetric",
    ),
    *[
        case(
            "Resize", PICTURE, k=(NONE, NONE, ints(2, 3, 4, 6)), mode=mode,
            coordinate_transformation_mode=coordinates, opset=19,
        )
        for mode in ("linear", "cubic")
        for coordinates in ("align_corners", "half_pixel_symmetric", "pytorch_half_pixel")
    ],
    *[
        case(
            "Resize", PICTURE,
            k=(np.asarray([0, 0, *region[:2], 1, 1, *region[2:]], np.float32), NONE, ints(2, 3, 4, 1)),
            mode=mode, coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=7.0,
        )
        for mode in ("linear", "nearest")
        for region in ((0.2, 0.1, 0.8, 0.6), (-0.5, 0.2, 1.2, 0.9))
    ],
    *[
        case(
            "RoiAlign", PICTURE, REGIONS, ints(0, 1, 0), output_height=3, output_width=2,
            sampling_ratio=2, spatial_scale=0.75, coordinate_transformation_mode=coordinates,
            mode=mode, opset=16,
        )
        for coordinates in ("half_pixel", "output_half_pixel")
        for mode in ("avg", "max")
    ],
    case(
        "MaxRoiPool", PICTURE,
        np.concatenate([np.asarray([[0], [1], [1]], np.float32), REGIONS], 1), pooled_shape=[3, 2],
        spatial_scale=0.75,
    ),
    case(
        "DeformConv", floats(2, 4, 5, 6), floats(6, 2, 3, 2), floats(2, 24, 3, 5), floats(6),
        floats(2, 12, 3, 5), group=2, offset_group=2, kernel_shape=[3, 2], opset=19,
    ),
    case(
        "DeformConv", floats(1, 2, 6, 6), floats(3, 2, 2, 2), floats(1, 8, 3, 4), strides=[2, 2],
        pads=[1, 0, 0, 2], kernel_shape=[2, 2], opset=19,
    ),
    case(
        "Col2Im", floats(2, 12, 12), k=(ints(4, 6), ints(2, 2)), strides=[2, 1], dilations=[1, 2],
        pads=[1, 0, 1, 0],
    ),
    case("Col2Im", floats(1, 6, 12), k=(ints(4, 4), ints(1, 2))),
    *[
        case(
            "MaxPool", PICTURE, kernel_shape=[2, 3], strides=[2, 1], pads=[1, 0, 0, 2], outputs=2,
            storage_order=order,
        )
        for order in (0, 1)
    ],
    case("MaxPool", floats(2, 3, 9), kernel_shape=[3], dilations=[2], outputs=2),
    case(
        "MaxUnpool", floats(1, 1, 2, 2), k=(ints(1, 3, 10, 12).reshape(1, 1, 2, 2),),
        kernel_shape=[2, 2], strides=[2, 2],
    ),
]  # fmt: skip


@pytest.mark.parametrize("one", CASES, ids=ids(CASES))
def test_an_operator_means_what_onnxruntime_computes(one: Case) -> None:
    check_evaluated(one)


QUICK = [GRIDS[0], GRIDS[15], FILTERS[0], FILTERS[11]]


@pytest.mark.parametrize("one", every(2, QUICK), ids=ids(QUICK))
def test_an_operator_of_much_work_compiles(one: Case) -> None:
    check_compiled(one)


SIZED = [
    (CASES[24], {"x0": ["N", 3, "H", "W"], "x1": ["N", "A", "B", 2]}),
    (case("Resize", PICTURE, k=(NONE, scales(2, 1.5)), mode="cubic"), {"x0": ["N", 3, "H", "W"]}),
    (
        case("Resize", PICTURE, k=(NONE, scales(0.5, 0.6)), mode="linear", antialias=1, opset=19),
        {"x0": ["N", 3, "H", "W"]},
    ),
]


@pytest.mark.parametrize(("one", "shapes"), SIZED, ids=ids([one for one, _ in SIZED]))
def test_pictures_may_have_any_size(one: Case, shapes: Mapping[str, list[int | str]]) -> None:
    check_sized(one, shapes)


@pytest.mark.long
@pytest.mark.parametrize("one", CASES, ids=ids(CASES))
def test_an_operator_compiles(one: Case) -> None:
    check_compiled(one)
