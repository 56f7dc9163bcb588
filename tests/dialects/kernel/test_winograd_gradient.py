"""The gradient of a kernel in Winograd's form: the same sums from fewer products, and its limits."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.dialects.kernel.winograd import POINTS, transforms
from dlc.dialects.kernel.winograd_gradient import WinogradGradient
from dlc.driver.source.open import read_ir
from dlc.errors import ModelError
from dlc.ir.core import Block, Evaluation
from dlc.ir.types import F32, TensorType
from dlc.ir.verify import verify

Floats = NDArray[np.float32]


@pytest.mark.parametrize("m", POINTS)
def test_the_matrices_make_the_gradient_of_a_tile(m: int) -> None:
    random = np.random.default_rng(0)
    picture, cotangent = random.standard_normal((m + 2, m + 2)), random.standard_normal((m, m))
    matrices = transforms(m)
    tile = matrices.input @ picture @ matrices.input.T
    transformed = matrices.output.T @ cotangent @ matrices.output
    found = matrices.kernel.T @ (tile * transformed) @ matrices.kernel
    windows = np.lib.stride_tricks.sliding_window_view(picture, (m, m))
    np.testing.assert_allclose(found, np.einsum("hwij,ij->hw", windows, cotangent), rtol=1e-12)


@pytest.mark.parametrize("m", POINTS)
@pytest.mark.parametrize("extents", [(1, 1), (4, 8), (5, 3), (0, 4)])
def test_the_parts_of_pictures_of_any_size_add_up_to_the_gradient(
    m: int, extents: tuple[int, int]
) -> None:
    random = np.random.default_rng(0)
    picture, cotangent = (
        random.standard_normal((2, *extents, channels), np.float32) for channels in (5, 3)
    )
    block = Block([TensorType(F32, picture.shape), TensorType(F32, cotangent.shape)])
    op = WinogradGradient(block.arguments, (), ((1, 1), (1, 1)), m, 3)
    found = op.evaluate(Evaluation({}), picture, cotangent)
    assert found.shape == (3, 3, 3, 5, 3)
    np.testing.assert_allclose(found.sum(0), _direct(picture, cotangent), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("changed", "to"), [("tile", "3"), ("parts", "0"), ("padding", "[[0, 1], [1, 1]]")]
)
def test_tiles_parts_and_paddings_must_fit(changed: str, to: str) -> None:
    facts = {"padding": "[[1, 1], [1, 1]]", "tile": "4", "parts": "2"} | {changed: to}
    text = GRADIENT.format(facts=", ".join(f"{key}={value}" for key, value in facts.items()))
    with pytest.raises(ModelError, match=r"kernel\.winograd_gradient"):
        verify(read_ir(text, "gradient.dlir"))


GRADIENT = """
func @f(%x: f32[1, 4, 4, 2], %dy: f32[1, 4, 4, 3]) {{
  %dw = kernel.winograd_gradient %x, %dy {{{facts}}}
  return %dw
}}
"""


def _direct(picture: Floats, cotangent: Floats) -> NDArray[np.float64]:
    """The gradient with a padding of 1, in float64."""
    _, height, width, channels = picture.shape
    padded = np.pad(picture.astype(np.float64), [(0, 0), (1, 1), (1, 1), (0, 0)])
    rows = cotangent.reshape(-1, cotangent.shape[-1])
    taps = [
        padded[:, h : h + height, v : v + width].reshape(-1, channels).T @ rows
        for h in range(3)
        for v in range(3)
    ]
    return np.reshape(taps, (3, 3, channels, -1))
