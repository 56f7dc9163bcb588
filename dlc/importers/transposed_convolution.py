"""Transposed convolutions as frameworks define them: the derivative of a convolution by its source."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array, nn
from dlc.dialects.array import Padding, tensor_type
from dlc.dialects.array.shape import reshape, transpose
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Size


def transposed_convolution(
    emit: Builder,
    x: Value,
    kernel: Value,
    bias: tuple[Value, ...],
    cut: Padding,
    extra: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    dims: str,
) -> Value:
    """The source is spread by the strides, the kernel [in, out / groups, ..] is turned around.

    `cut` are the elements that are left out at each end of the result, `extra` those that are added at its
    high end. Channels stand second.
    """
    shape = tensor_type(kernel).shape
    count = len(shape) - 2
    padding: list[tuple[Size, Size]] = []
    for (low, high), extent, dilation, more in zip(cut, shape[2:], dilations, extra, strict=True):
        reach = (extent - 1) * dilation
        padding.append((reach - low, reach - high + more))
    turned = emit(array.Reverse(kernel, tuple(range(2, count + 2))))
    # [g * i, o, ...] becomes [g * o, i, ...].
    inner, outer = shape[0] // groups, shape[1]
    split = reshape(emit, turned, (groups, inner, outer, *shape[2:]))
    swapped = transpose(emit, split, (0, 2, 1, *range(3, count + 3)))
    filters = reshape(emit, swapped, (groups * outer, inner, *shape[2:]))
    ones = (1,) * count
    return emit(
        nn.Conv(
            x, filters, bias, ones, tuple(padding), tuple(dilations), tuple(strides), groups, dims
        )
    )
