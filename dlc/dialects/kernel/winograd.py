"""Winograd's form F(m x m, 3 x 3) of a convolution: (m + 2)² products for a tile of m x m results.

A. Lavin and S. Gray, "Fast Algorithms for Convolutional Neural Networks" (CVPR 2016). A tile x of the
picture, (m + 2) x (m + 2), and a kernel w, 3 x 3, give y = Aᵀ((G w Gᵀ) * (Bᵀ x B))A, with the sum over
channels taken between the transforms. The direct sum makes 9 m² products for that: 2.25 times as many for
m = 2, and 4 times for m = 4.

The matrices follow from points where polynomials are evaluated (Toom and Cook; S. Winograd, "Arithmetic
Complexity of Computations", 1980), which decide how large rounding errors are (B. Barabasz et al., "Error
Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural Networks", ACM TOMS 46, 2020).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import prod
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

WINDOW = 3
"""Rows and columns of the kernel."""

POINTS: Mapping[int, Sequence[Fraction]] = MappingProxyType(
    {
        2: tuple(map(Fraction, ("0", "1", "-1"))),
        4: tuple(map(Fraction, ("0", "3/4", "-3/4", "3/2", "-3/2"))),
    }
)
"""The finite points for each m; the last point is infinity.

Of ten sets for m = 4 that were tried, these and 0, ±√½, ±√2 have the least errors, half those of 0, ±1, ±2
(Lavin and Gray), and these are exact in binary. 0, ±1, 1/2, -2 has 1.4 times their error.
"""

ERROR: Mapping[int, float] = MappingProxyType({2: 1.2, 4: 3.0})
"""How many times the error of the direct sum, at most: root mean squares against float64, for 16 channels
or more.

`tests/lowering/cpu/winograd/test_convolution.py` measures it, with pictures of both signs and after a relu.
"""


@dataclass(frozen=True, slots=True)
class Transforms:
    """The matrices of F(m x m, 3 x 3), in float64: `output` (Aᵀ) is `[m, m + 2]`, `kernel` (G) is
    `[m + 2, 3]` and `input` (Bᵀ) is `[m + 2, m + 2]`."""

    output: NDArray[np.float64]
    kernel: NDArray[np.float64]
    input: NDArray[np.float64]


@cache
def transforms(m: int) -> Transforms:
    """The matrices for tiles of m x m results; m is 2 or 4."""
    points = POINTS[m]
    output = [[point**power for point in points] for power in range(m)]
    kernel: list[list[Fraction]] = []
    input: list[list[Fraction]] = []
    for point in points:
        others = [other for other in points if other != point]
        divisor = prod(point - other for other in others)
        kernel.append([point**power / divisor for power in range(WINDOW)])
        input.append([*_polynomial(others), Fraction()])
    # The point at infinity takes the highest power alone.
    for power, row in enumerate(output):
        row.append(Fraction(power == m - 1))
    kernel.append([Fraction(power == WINDOW - 1) for power in range(WINDOW)])
    input.append(_polynomial(points))
    return Transforms(_matrix(output), _matrix(kernel), _matrix(input))


def _matrix(rows: Sequence[Sequence[Fraction]]) -> NDArray[np.float64]:
    return np.array([[float(number) for number in row] for row in rows])


def _polynomial(roots: Sequence[Fraction]) -> list[Fraction]:
    """The coefficients of the product of (x - root), the constant one first."""
    found = [Fraction(1)]
    for root in roots:
        raised, scaled = [Fraction(), *found], [*found, Fraction()]
        found = [one - root * other for one, other in zip(raised, scaled, strict=True)]
    return found


def winograd_sums(
    padded: NDArray[np.float32], kernels: NDArray[np.float32], extents: tuple[int, int], m: int
) -> NDArray[np.float32]:
    """The sums of a convolution with stride 1, `[batch, height, width, outputs]`, with NumPy.

    `padded` is the picture with its padding, `[batch, height + 2, width + 2, channels]`, `kernels` are
    transformed, `[(m + 2)², channels, outputs]`, and `extents` are height and width of the result.
    """
    places, channels, outputs = kernels.shape
    batch, n = len(padded), m + WINDOW - 1
    down, across = (-(-extent // m) for extent in extents)
    if not batch * down * across:
        return np.zeros((batch, *extents, outputs), np.float32)
    beyond = [
        (0, count * m - extent) for count, extent in zip((down, across), extents, strict=True)
    ]
    whole = np.pad(padded, [(0, 0), *beyond, (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(whole, (n, n), (1, 2))[:, ::m, ::m]
    tiles = np.moveaxis(windows.reshape(-1, channels, n, n), (2, 3), (0, 1))
    products = np.matmul(
        both_sides(transforms(m).input, tiles).reshape(places, -1, channels), kernels
    )
    sums = both_sides(transforms(m).output, products.reshape(n, n, -1, outputs))
    picture = sums.reshape(m, m, batch, down, across, outputs).transpose(2, 3, 0, 4, 1, 5)
    return picture.reshape(batch, down * m, across * m, outputs)[:, : extents[0], : extents[1]]


def both_sides(matrix: NDArray[np.float64], tiles: NDArray[np.float32]) -> NDArray[np.float32]:
    """matrix · tile · matrixᵀ of tiles `[row, column, ..]`."""
    factor = matrix.astype(np.float32)
    rows = np.tensordot(factor, tiles, 1)
    return np.moveaxis(np.tensordot(factor, rows, (1, 1)), 0, 1)
