"""The gradient of the kernel of a 3 x 3 convolution in Winograd's form, and how its sums are divided.

The form F(3 x 3, m x m): a tile x of the picture, (m + 2) x (m + 2), and a tile dy of the cotangent,
m x m, give Gᵀ((Bᵀ x B) * (A dy Aᵀ))G, with the matrices of the form that computes the convolution itself
(`dlc.dialects.kernel.winograd`). The sum over all tiles is taken between the transforms, so the last one is
applied once. The direct sum makes 9 m² products for a tile, this form (m + 2)².
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from dlc.dialects.kernel.generic import Access, Kernel, array_type
from dlc.dialects.kernel.winograd import POINTS, WINDOW, both_sides, transforms
from dlc.ir.core import Array, Evaluation, Value
from dlc.ir.define import attribute, op, operands
from dlc.ir.dims import Size, ceil_divide, product
from dlc.ir.types import F32, TensorType

GRADIENT_ERROR: Mapping[int, float] = MappingProxyType({2: 2.2, 4: 3.2})
"""For each m, how many times the error of the direct sum, at most: root mean squares against float64, for
sums over `FEWEST_PIXELS` or more.

`tests/lowering/cpu/winograd/test_gradient.py` measures it, with pictures of both signs and after a relu.
"""
SHORT_ERROR: Mapping[int, float] = MappingProxyType({2: 4.0, 4: 10.0})
"""The same for sums over fewer, which are nearly exact, so that the rounding of the transforms counts for
more: most for pictures of 2 x 2 pixels, and of 4 x 4 with the larger tiles. For 4 channels or more on both
sides: an error over fewer numbers is chance."""
FEWEST_PIXELS = 96


@op("kernel.winograd_gradient")
class WinogradGradient(Kernel):
    """Parts of the gradient of a 3 x 3 kernel, each a sum over some of the tiles.

    `dw[q, h, w, c, o] = sum over b, i, j of picture[b, i + h - p, j + w - p, c] * cotangent[b, i, j, o]`,
    with low paddings p; picture is 0 outside its bounds. The m x m tiles (b, i // m, j // m), in row-major
    order, are divided into `parts` of equal length, of which the last ones may be shorter; part q sums over
    its own.
    """

    inputs: Sequence[Value] = operands(doc="picture and cotangent")
    outs: Sequence[Value] = operands()
    padding: tuple[tuple[Size, Size], tuple[Size, Size]] = attribute(doc="(low, high) by axis")
    tile: int = attribute(doc="m: 2 or 4")
    parts: int = attribute(default=1)

    def reads(self, number: int) -> Access:
        return Access.UNIT_STRIDE

    @property
    def grid(self) -> tuple[Size, Size, Size]:
        """Pictures, and the tiles of each, down and along."""
        batch, height, width, _ = array_type(self.inputs[1]).shape
        return batch, ceil_divide(height, self.tile), ceil_divide(width, self.tile)

    @property
    def part_tiles(self) -> Size:
        """The tiles of a part."""
        return ceil_divide(product(self.grid), self.parts)

    @property
    def channels(self) -> tuple[int, int]:
        """Input and output channels."""
        channels, outputs = (array_type(value).shape[-1] for value in self.inputs[:2])
        assert isinstance(channels, int)
        assert isinstance(outputs, int)
        return channels, outputs

    def result_types(self) -> tuple[TensorType, ...]:
        picture, cotangent = map(array_type, self.inputs)
        if self.tile not in POINTS or self.parts < 1 or {picture.dtype, cotangent.dtype} != {F32}:
            raise self.fail(f"{self.name} is for f32 and tiles of {' and '.join(map(str, POINTS))}")
        *pixels, channels = picture.shape
        *results, outputs = cotangent.shape
        expected = (pixels[0], *map(self._extent, pixels[1:], self.padding))
        if tuple(results) != expected:
            raise self.fail(f"{self.name} of {picture} needs pixels {expected}, found {cotangent}")
        return (TensorType(F32, (self.parts, WINDOW, WINDOW, channels, outputs)),)

    def _extent(self, size: Size, padding: tuple[Size, Size]) -> Size:
        """The size of a result along an axis."""
        low, high = padding
        return size + low + high - (WINDOW - 1)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        picture, cotangent = (array.astype(np.float32) for array in inputs[:2])
        m, (_, *counts) = self.tile, at.shape(self.grid)
        beyond = [
            (0, count * m - extent)
            for count, extent in zip(counts, cotangent.shape[1:3], strict=True)
        ]
        edges = [
            (low, high + more)
            for (low, high), (_, more) in zip(map(at.shape, self.padding), beyond, strict=True)
        ]
        whole = (0, 0)
        matrices = transforms(m)
        pictures = _tiles(np.pad(picture, [whole, *edges, whole]), m + WINDOW - 1, m)
        results = _tiles(np.pad(cotangent, [whole, *beyond, whole]), m, m)
        lhs, rhs = both_sides(matrices.input, pictures), both_sides(matrices.output.T, results)
        length = at.size(self.part_tiles)
        parts = [slice(part * length, (part + 1) * length) for part in range(self.parts)]
        sums = [np.matmul(lhs[:, :, each].swapaxes(-1, -2), rhs[:, :, each]) for each in parts]
        return np.stack([both_sides(matrices.kernel.T, each) for each in sums])


def _tiles(pictures: NDArray[np.float32], size: int, step: int) -> NDArray[np.float32]:
    """The tiles of pictures, `step` apart in both directions, as `[row, column, tile, channel]`."""
    channels = pictures.shape[-1]
    if not len(pictures) or min(pictures.shape[1:3]) < size:
        return np.zeros((size, size, 0, channels), np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(pictures, (size, size), (1, 2))
    tiles = windows[:, ::step, ::step].reshape(-1, channels, size, size)
    return np.moveaxis(tiles, (2, 3), (0, 1))
