"""The kernel of a convolution in Winograd's form: its transform, its panels, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.dialects.kernel.products import unpanelled
from dlc.dialects.kernel.winograd import POINTS, transforms
from dlc.dialects.kernel.winograd_kernel import WinogradKernel
from dlc.driver.source.open import read_ir
from dlc.errors import ModelError
from dlc.ir.core import Block, Evaluation
from dlc.ir.types import F32, TensorType
from dlc.ir.verify import verify


@pytest.mark.parametrize("m", POINTS)
@pytest.mark.parametrize("columns", [8, 24])
def test_every_place_is_a_matrix_in_panels_padded_with_zeros(m: int, columns: int) -> None:
    kernel = np.random.default_rng(0).standard_normal((3, 3, 5, 20), np.float32)
    block = Block([TensorType(F32, kernel.shape)])
    op = WinogradKernel(block.arguments, (), m, columns)
    found = op.evaluate(Evaluation({}), kernel)
    assert found.shape == op.result_types()[0].shape
    panels = unpanelled(found, found.shape[1] * columns).astype(np.float64)
    whole = panels.reshape(m + 2, m + 2, 5, -1)
    matrix = transforms(m).kernel
    for c, o in ((0, 0), (4, 19)):
        np.testing.assert_allclose(
            whole[:, :, c, o], matrix @ kernel[:, :, c, o] @ matrix.T, rtol=1e-6, atol=1e-7
        )
    assert not whole[..., 20:].any()


@pytest.mark.parametrize(
    ("type", "facts"),
    [
        ("f32[3, 3, 5, 20]", "tile=3, columns=8"),
        ("f32[3, 3, 5, 20]", "tile=4, columns=0"),
        ("f32[3, 2, 5, 20]", "tile=4, columns=8"),
        ("f64[3, 3, 5, 20]", "tile=4, columns=8"),
    ],
)
def test_it_takes_kernels_of_3_x_3_in_f32(type: str, facts: str) -> None:
    text = f"""
func @f(%w: {type}) {{
  %k = kernel.winograd_kernel %w {{{facts}}}
  return %k
}}
"""
    with pytest.raises(ModelError, match=r"kernel\.winograd_kernel"):
        verify(read_ir(text, "kernel.dlir"))
