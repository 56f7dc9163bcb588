"""Winograd's form of a convolution: the same sums from fewer products, its matrices and its limits."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.dialects.kernel.winograd import POINTS, transforms, winograd_sums
from dlc.driver.source.open import read_ir
from dlc.errors import ModelError
from dlc.ir.verify import verify

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


@pytest.mark.parametrize("m", POINTS)
def test_the_matrices_make_the_convolution_of_a_tile(m: int) -> None:
    random = np.random.default_rng(0)
    picture, kernel = random.standard_normal((m + 2, m + 2)), random.standard_normal((3, 3))
    matrices = transforms(m)
    tile = matrices.input @ picture @ matrices.input.T
    transformed = matrices.kernel @ kernel @ matrices.kernel.T
    found = matrices.output @ (tile * transformed) @ matrices.output.T
    windows = np.lib.stride_tricks.sliding_window_view(picture, (3, 3))
    np.testing.assert_allclose(found, np.einsum("ijhw,hw->ij", windows, kernel), rtol=1e-12)


@pytest.mark.parametrize("m", POINTS)
def test_the_matrices_of_pictures_and_results_are_exact_in_f32(m: int) -> None:
    for matrix in (transforms(m).input, transforms(m).output):
        np.testing.assert_array_equal(matrix.astype(np.float32), matrix)


@pytest.mark.parametrize("m", POINTS)
@pytest.mark.parametrize("extents", [(1, 1), (4, 8), (5, 3), (0, 4)])
def test_sums_of_pictures_of_any_size(m: int, extents: tuple[int, int]) -> None:
    picture, kernel = _random(2, extents, 5, 3)
    found = winograd_sums(picture, _transformed(kernel, m), extents, m)
    np.testing.assert_allclose(found, _direct(picture, kernel, extents), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("schedule", ["winograd<3, 16>", "winograd<2, 8>"])
def test_a_schedule_must_fit_the_transformed_kernel(schedule: str) -> None:
    with pytest.raises(ModelError, match=r"kernel\.conv"):
        verify(read_ir(CONV.format(schedule=schedule, strides="1, 1"), "conv.dlir"))


def test_a_convolution_with_strides_has_no_such_form() -> None:
    with pytest.raises(ModelError, match="no Winograd form with tiles of 2"):
        verify(read_ir(CONV.format(schedule="winograd<2, 16>", strides="2, 2"), "conv.dlir"))


CONV = """
func @f(%x: f32[1, 4, 4, 2], %w: f32[16, 1, 2, 16], %z: f32[2]) {{
  %y = kernel.conv %x, %w, %z {{domain=[16, 3], window=[3, 3], strides=[{strides}],
    padding=[[1, 1], [1, 1]], dilations=[1, 1],
    schedule=#kernel.{schedule}}} (%i0: index, %i1: index, %s: f32) {{
    kernel.yield %s
  }}
  return %y
}}
"""


def _random(
    batch: int, extents: tuple[int, int], channels: int, outputs: int
) -> tuple[Floats, Floats]:
    random = np.random.default_rng(0)
    height, width = extents
    picture = random.standard_normal((batch, height + 2, width + 2, channels), np.float32)
    return picture, random.standard_normal((3, 3, channels, outputs), np.float32)


def _transformed(kernel: Floats, m: int) -> Floats:
    matrix = transforms(m).kernel
    places = np.einsum("ih,jw,hwco->ijco", matrix, matrix, kernel)
    return places.reshape(-1, *kernel.shape[2:]).astype(np.float32)


def _direct(picture: Floats, kernel: Floats, extents: tuple[int, int]) -> Doubles:
    height, width = extents
    found = np.zeros((len(picture), height, width, kernel.shape[-1]))
    for h in range(3):
        for w in range(3):
            found += picture[:, h : h + height, w : w + width].astype(np.float64) @ kernel[h, w]
    return found
