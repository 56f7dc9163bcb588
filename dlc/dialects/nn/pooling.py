"""Pooling over the spatial axes of pictures; `dims` is their layout, as for a convolution."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array
from dlc.dialects.array import LAYOUTS, Padding, tensor_type
from dlc.dialects.nn.rows import in_dtype, mean, widened
from dlc.ir.core import Builder, Value

__all__ = ["argmax_pool", "avg_pool", "global_avg_pool", "global_max_pool", "max_pool"]


def max_pool(
    emit: Builder,
    x: Value,
    window: Sequence[int],
    *,
    strides: Sequence[int] = (),
    padding: Padding = (),
    dilations: Sequence[int] = (),
    dims: str = "nhwc",
) -> Value:
    """The largest element of each window, without the padding; of equal ones the first has the derivative.

    The strides are by default the sizes of the window.
    """
    return emit(_windowed(x, "max", window, strides, padding, dilations, dims))


def argmax_pool(
    emit: Builder,
    x: Value,
    window: Sequence[int],
    *,
    strides: Sequence[int] = (),
    padding: Padding = (),
    dilations: Sequence[int] = (),
    dims: str = "nhwc",
) -> Value:
    """The row-major index in x of the element that `max_pool` takes of each window, as i64."""
    return emit(_windowed(x, "max", window, strides, padding, dilations, dims, array.WindowIndex))


def avg_pool(
    emit: Builder,
    x: Value,
    window: Sequence[int],
    *,
    strides: Sequence[int] = (),
    padding: Padding = (),
    dilations: Sequence[int] = (),
    dims: str = "nhwc",
    count_padding: bool = False,
) -> Value:
    """The mean of each window without the padding, or with `count_padding` including its zeros.

    The strides are by default the sizes of the window.
    """
    wide = widened(emit, x)
    summed = emit(_windowed(wide, "sum", window, strides, padding, dilations, dims))
    if count_padding or not any(low or high for low, high in padding):
        size = 1
        for extent in window:
            size *= extent
        number = array.constant_like(emit, size, summed)
    else:
        # The count is the same for every picture and channel.
        type, spatial = tensor_type(wide), LAYOUTS[dims].spatial
        extents = [size if axis in spatial else 1 for axis, size in enumerate(type.shape)]
        ones = array.fill(emit, 1, type.with_shape(tuple(extents)))
        counted = emit(_windowed(ones, "sum", window, strides, padding, dilations, dims))
        shape = tensor_type(summed).shape
        found = emit(array.Reshape(counted, tuple([shape[axis] for axis in spatial])))
        number = emit(array.Broadcast(found, shape, tuple(spatial)))
    return in_dtype(emit, emit(array.Divide(summed, number)), tensor_type(x).dtype)


def global_max_pool(emit: Builder, x: Value, *, dims: str = "nhwc") -> Value:
    """The largest element of each channel: [batch, channels]."""
    return emit(array.ReduceMax(x, LAYOUTS[dims].spatial))


def global_avg_pool(emit: Builder, x: Value, *, dims: str = "nhwc") -> Value:
    """The mean of each channel: [batch, channels]."""
    found = mean(emit, widened(emit, x), LAYOUTS[dims].spatial)
    return in_dtype(emit, found, tensor_type(x).dtype)


def _windowed(
    x: Value,
    function: str,
    window: Sequence[int],
    strides: Sequence[int],
    padding: Padding,
    dilations: Sequence[int],
    dims: str,
    make: type[array.ReduceWindow | array.WindowIndex] = array.ReduceWindow,
) -> array.Windowed:
    """The reduction with a window of size 1 along the axes that are not spatial."""
    layout = LAYOUTS[dims]
    spatial, count = layout.spatial, len(layout.spatial)

    def whole(numbers: Sequence[int]) -> tuple[int, ...]:
        given = dict(zip(spatial, numbers, strict=True))
        return tuple([given.get(axis, 1) for axis in range(layout.rank)])

    pads = dict(zip(spatial, padding or ((0, 0),) * count, strict=True))
    return make(
        x,
        function,
        whole(window),
        whole(strides or window),
        tuple([pads.get(axis, (0, 0)) for axis in range(layout.rank)]),
        whole(dilations or (1,) * count),
    )
