"""Convolution in one, two or three dimensions: plain, dilated, transposed and grouped.

One formula covers all of them, and the derivatives are convolutions again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dlc.dialects import numeric
from dlc.dialects.array.convolution_layouts import (
    LAYOUTS,
    Layout,
    Padding,
    batch_as_channels,
    batch_as_inputs,
    swap_channels,
)
from dlc.dialects.array.elementwise import constant_like, folded, show, tensor_type
from dlc.dialects.array.pieces import is_negative
from dlc.dialects.array.shape import Reverse, inverse, transpose
from dlc.errors import CallError
from dlc.ir.attributes import Dense
from dlc.ir.core import Array, Builder, Evaluation, Op, Value
from dlc.ir.define import attribute, op, operand
from dlc.ir.dims import Size
from dlc.ir.needs import Need
from dlc.ir.types import TensorType

__all__ = ["Convolution", "DepthwiseGradient", "convolution"]


def _apart(extent: Size, step: int) -> Size:
    """The length that `extent` elements `step` apart span; for none, `1 - step`."""
    return (extent - 1) * step + 1


@op("array.convolution")
class Convolution(Op):
    """`y[n, p, o] = sum over k, c of x[n, p * stride + k * dilation - low, c] * w[k, c, o]`.

    x is 0 outside its bounds; with a source dilation t, t - 1 zeros stand between neighbouring elements of
    x. With several groups, each group of input channels gives one group of output channels. A negative
    padding cuts elements off. f16 and bf16 accumulate in f32 and round once.
    """

    is_product = True

    source: Value = operand()
    kernel: Value = operand()
    strides: tuple[int, ...] = attribute()
    padding: Padding = attribute(doc="(low, high) for each spatial axis")
    dilations: tuple[int, ...] = attribute(doc="distance between the elements of the kernel")
    source_dilations: tuple[int, ...] = attribute(doc="distance between the elements of the source")
    groups: int = attribute(default=1)
    dims: str = attribute(default="nhwc", doc="nwc, ncw, nhwc, nchw, ndhwc or ncdhw")

    @property
    def layout(self) -> Layout:
        """The layout of the axes."""
        return LAYOUTS[self.dims]

    def infer(self) -> TensorType:
        source, kernel = tensor_type(self.source), tensor_type(self.kernel)
        layout = LAYOUTS.get(self.dims)
        if layout is None:
            raise self.fail(f"{self.dims!r} is not a layout; use one of {', '.join(LAYOUTS)}")
        if (source.rank, kernel.rank) != (layout.rank, layout.rank):
            raise self.fail(
                f"a convolution with dims {self.dims!r} takes tensors of {layout.rank} axes, "
                f"found {source.text} and {kernel.text}"
            )
        if source.dtype is not kernel.dtype or source.dtype.kind == "bool":
            raise self.fail(
                f"cannot convolve {source.text} with {kernel.text}; the dtypes must agree"
            )
        _check_steps(self, self.strides, self.padding, self.dilations, self.source_dilations)
        self._check_channels(source, kernel, layout)
        window = [kernel.shape[axis] for axis in layout.kernel_spatial]
        spatial = _places(self, source, window, self.source_dilations)
        return source.with_shape(
            layout.picture(source.shape[0], spatial, kernel.shape[layout.kernel_out])
        )

    def needs(self) -> Iterator[Need]:
        shape = tensor_type(self.kernel).shape
        window = [shape[axis] for axis in self.layout.kernel_spatial]
        return _fitting(self, tensor_type(self.source), window, self.source_dilations)

    def _check_channels(self, source: TensorType, kernel: TensorType, layout: Layout) -> None:
        channels, taken = source.shape[layout.channel], kernel.shape[layout.kernel_in]
        out, groups = kernel.shape[layout.kernel_out], self.groups
        if groups < 1 or channels != groups * taken or out != groups * (out // groups):
            raise self.fail(
                f"cannot convolve {source.text} with {show(self.kernel)} in {groups} groups: "
                f"it has {channels} channels, the kernel takes {taken} in each group and makes {out}",
                code="D0313",
            )

    def fold(self) -> Dense | None:
        return None if tensor_type(self.source).dtype.is_float else folded(self)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        padding = [at.shape(pair) for pair in self.padding]
        dtype = tensor_type(self.source).dtype
        shape = at.shape(tensor_type(self.result).shape)
        if 0 in (*shape, *inputs[0].shape):
            return np.zeros(shape, dtype.numpy)

        def convolved(source: Array, kernel: Array) -> Array:
            layout = self.layout
            last = source.transpose([0, *layout.spatial, layout.channel])
            filters = kernel.transpose(
                [*layout.kernel_spatial, layout.kernel_in, layout.kernel_out]
            )
            with np.errstate(all="ignore"):
                result = self._convolve(last, filters, padding)
            return result.transpose(inverse((0, *layout.spatial, layout.channel)))

        return numeric.in_single(convolved, dtype, *inputs)

    def _convolve(
        self, source: numeric.Array, kernel: numeric.Array, padding: Sequence[Sequence[int]]
    ) -> Array:
        """With the channels last."""
        rank = len(padding)
        padded = _padded(source, padding, self.source_dilations)
        windows = _windows(self, padded, kernel.shape[:rank])
        taken, out = kernel.shape[-2], kernel.shape[-1] // self.groups
        parts: list[Array] = []
        for group in range(self.groups):
            window = windows[
                (..., slice(group * taken, (group + 1) * taken), *[slice(None)] * rank)
            ]
            filters = np.moveaxis(kernel[..., group * out : (group + 1) * out], -2, 0)
            parts.append(np.tensordot(window, filters, rank + 1))
        return np.concatenate(parts, -1).astype(source.dtype)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        (dy,) = cotangents
        if 0 in tensor_type(self.source).shape:
            return constant_like(emit, 0, self.source), constant_like(emit, 0, self.kernel)
        return self.source_gradient(emit, dy), self._kernel_gradient(emit, dy)

    @property
    def _is_depthwise(self) -> bool:
        """Whether each group has one channel, and the channels are last."""
        kernel = tensor_type(self.kernel)
        return (
            self.layout.channels_last
            and self.groups > 1
            and set(self.source_dilations) == {1}
            and kernel.shape[self.layout.kernel_in] == 1
            and kernel.shape[self.layout.kernel_out] == self.groups
        )

    def source_gradient(self, emit: Builder, dy: Value) -> Value:
        """The gradient of the source: dy, dilated by the strides, convolved with the flipped kernel."""
        source, kernel, result = (tensor_type(v) for v in (self.source, self.kernel, dy))
        layout = self.layout
        padding: list[tuple[Size, Size]] = []
        for number, axis in enumerate(layout.spatial):
            reach = (kernel.shape[layout.kernel_spatial[number]] - 1) * self.dilations[number]
            low = reach - self.padding[number][0]
            there = (source.shape[axis] - 1) * self.source_dilations[number] + 1
            here = _apart(result.shape[axis], self.strides[number])
            padding.append((low, there + reach - low - here))
        swapped = swap_channels(emit, self.kernel, layout, self.groups)
        return emit(
            Convolution(
                dy,
                emit(Reverse(swapped, layout.kernel_spatial)),
                self.source_dilations,
                tuple(padding),
                self.dilations,
                self.strides,
                self.groups,
                self.dims,
            )
        )

    def _kernel_gradient(self, emit: Builder, dy: Value) -> Value:
        """The gradient of the kernel: the source, with batch and channels swapped, convolved with dy."""
        source, kernel, result = (tensor_type(v) for v in (self.source, self.kernel, dy))
        layout = self.layout
        if self._is_depthwise:
            window = [kernel.shape[axis] for axis in layout.kernel_spatial]
            taps = tuple([size for size in window if isinstance(size, int)])
            if len(taps) == len(window):
                steps = self.strides, self.padding, self.dilations
                return emit(DepthwiseGradient(self.source, dy, taps, *steps, self.dims))
        padding: list[tuple[Size, Size]] = []
        for number, axis in enumerate(layout.spatial):
            low = self.padding[number][0]
            reach = (result.shape[axis] - 1) * self.strides[number] + 1
            steps = (kernel.shape[layout.kernel_spatial[number]] - 1) * self.dilations[number]
            here = _apart(source.shape[axis], self.source_dilations[number])
            padding.append((low, steps + reach - here - low))
        as_picture = emit(
            Convolution(
                batch_as_channels(emit, self.source, layout, self.groups),
                batch_as_inputs(emit, dy, layout),
                self.dilations,
                tuple(padding),
                self.strides,
                self.source_dilations,
                self.groups,
                self.dims,
            )
        )
        # The result is a picture [input channels, spatial, output channels]: transpose it to a kernel.
        order = [0] * layout.rank
        order[layout.kernel_in], order[layout.kernel_out] = 0, layout.channel
        for kernel_axis, axis in zip(layout.kernel_spatial, layout.spatial, strict=True):
            order[kernel_axis] = axis
        return transpose(emit, as_picture, tuple(order))


@op("array.depthwise_gradient")
class DepthwiseGradient(Op):
    """`w[k, 0, c] = sum over n, p of x[n, p * stride + k * dilation - low, c] * dy[n, p, c]`.

    The gradient of the kernel of a depthwise convolution with the channels last: the channels are
    independent, so nothing has to be transposed. x is 0 outside its bounds.
    """

    source: Value = operand()
    cotangent: Value = operand()
    window: tuple[int, ...] = attribute(doc="elements of the kernel along each spatial axis")
    strides: tuple[int, ...] = attribute()
    padding: Padding = attribute(doc="(low, high) for each spatial axis")
    dilations: tuple[int, ...] = attribute(doc="distance between the elements of the kernel")
    dims: str = attribute(default="nhwc", doc="nwc, nhwc or ndhwc")

    @property
    def layout(self) -> Layout:
        """The layout of the axes."""
        return LAYOUTS[self.dims]

    def infer(self) -> TensorType:
        source, cotangent = tensor_type(self.source), tensor_type(self.cotangent)
        layout = LAYOUTS.get(self.dims)
        if layout is None or not layout.channels_last:
            raise self.fail(f"{self.dims!r} is not a layout with the channels last")
        channels = source.shape[-1]
        if (source.rank, cotangent.rank) != (layout.rank, layout.rank) or not isinstance(
            channels, int
        ):
            raise self.fail(
                f"a depthwise gradient with dims {self.dims!r} takes tensors of {layout.rank} axes, "
                f"found {source.text} and {cotangent.text}"
            )
        _check_steps(self, self.window, self.strides, self.padding, self.dilations)
        spatial = _places(self, source, self.window, (1,) * (layout.rank - 2))
        expected = source.with_shape(layout.picture(source.shape[0], spatial, channels))
        if cotangent != expected:
            raise self.fail(
                f"a kernel of {list(self.window)} makes {expected.text} of {source.text}, the cotangent "
                f"is {cotangent.text}"
            )
        return source.with_shape((*self.window, 1, channels))

    def _convolution(self, source: Value, kernel: Value) -> Convolution:
        """The convolution whose gradient this is."""
        ones = (1,) * len(self.strides)
        groups = tensor_type(kernel).shape[-1]
        assert isinstance(groups, int)
        steps = self.strides, self.padding, self.dilations
        return Convolution(source, kernel, *steps, ones, groups, self.dims)

    def fold(self) -> Dense | None:
        return None if tensor_type(self.source).dtype.is_float else folded(self)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        padding = [at.shape(pair) for pair in self.padding]

        def correlated(source: Array, cotangent: Array) -> Array:
            gradient = np.zeros((*self.window, 1, source.shape[-1]), source.dtype)
            if not cotangent.size:
                return gradient
            padded = _padded(source, padding, (1,) * len(padding))
            windows = _windows(self, padded, self.window)
            summed = tuple(range(cotangent.ndim - 1))
            with np.errstate(all="ignore"):
                for tap in np.ndindex(self.window):
                    gradient[tap] = np.sum(windows[(..., *tap)] * cotangent, summed)
            return gradient

        return numeric.in_single(correlated, tensor_type(self.source).dtype, *inputs)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        (kernel,) = cotangents
        convolution = self._convolution(self.source, kernel)
        return convolution.source_gradient(emit, self.cotangent), emit(convolution)


def _check_steps(op: Convolution | DepthwiseGradient, *lists: Sequence[object]) -> None:
    rank = op.layout.rank - 2
    steps = [number for numbers in lists if numbers is not op.padding for number in numbers]
    if any(len(numbers) != rank for numbers in lists) or any(
        not isinstance(step, int) or step < 1 for step in steps
    ):
        raise op.fail(
            f"a convolution with dims {op.dims!r} takes {rank} strides, paddings and dilations, "
            f"all but the paddings at least 1",
            code="D0312",
        )


def _places(
    op: Convolution | DepthwiseGradient,
    source: TensorType,
    window: Sequence[Size],
    source_dilations: Sequence[int],
) -> list[Size]:
    """The number of positions of a kernel along each spatial axis."""
    extents: list[Size] = []
    for number, need in enumerate(_fitting(op, source, window, source_dilations)):
        if is_negative(need.size):
            raise op.fail(need.told, code="D0312")
        left = need.size - 1 if window[number] == 1 else need.size
        extents.append(left // op.strides[number] + 1)
    return extents


def _fitting(
    op: Convolution | DepthwiseGradient,
    source: TensorType,
    window: Sequence[Size],
    source_dilations: Sequence[int],
) -> Iterator[Need]:
    """The conditions that a kernel fits along each spatial axis: elements left after the first position.

    A kernel of one element fits an empty axis, too, at no position.
    """
    for number, axis in enumerate(op.layout.spatial):
        low, high = op.padding[number]
        inside = _apart(source.shape[axis], source_dilations[number]) + low + high
        reach = (window[number] - 1) * op.dilations[number] + 1
        told = (
            f"the kernel [{', '.join(map(str, window))}] reaches over {reach} elements, axis {axis} of "
            f"{source.text} has {inside} with its padding"
        )
        yield Need(inside if reach == 1 else inside - reach, told)


def _windows(
    op: Convolution | DepthwiseGradient, padded: numeric.Array, window: Sequence[int]
) -> numeric.Array:
    """Every window of a padded source `[n, s, c]`: a view `[n, p, c, k]`."""
    rank = len(window)
    reach = [(taps - 1) * apart + 1 for taps, apart in zip(window, op.dilations, strict=True)]
    if any(size < needed for size, needed in zip(padded.shape[1:-1], reach, strict=True)):
        raise CallError(
            f"the kernel reaches over {reach} elements, the padded source has "
            f"{list(padded.shape[1:-1])}",
            code="D0804",
            place=op.location.place,
        )
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, tuple(range(1, rank + 1)))
    strided = (slice(None), *[slice(None, None, stride) for stride in op.strides])
    dilated = (..., *[slice(None, None, dilation) for dilation in op.dilations])
    return windows[strided][dilated]


def _padded(
    source: numeric.Array, padding: Sequence[Sequence[int]], dilations: Sequence[int]
) -> numeric.Array:
    """Insert zeros between and around the elements of the spatial axes; negative paddings cut off."""
    for axis, ((low, high), dilation) in enumerate(zip(padding, dilations, strict=True), 1):
        size = source.shape[axis]
        length = max(size - 1, 0) * dilation + min(size, 1)
        whole = np.zeros(
            (
                *source.shape[:axis],
                max(low, 0) + length + max(high, 0),
                *source.shape[axis + 1 :],
            ),
            source.dtype,
        )
        moved = np.moveaxis(whole, axis, 0)
        moved[max(low, 0) : max(low, 0) + length : dilation] = np.moveaxis(source, axis, 0)
        cut = moved[max(-low, 0) : max(len(moved) - max(-high, 0), 0)]
        source = np.moveaxis(cut, 0, axis)
    return source


def convolution(
    emit: Builder,
    source: Value,
    kernel: Value,
    *,
    strides: Sequence[int] = (),
    padding: Sequence[tuple[Size, Size]] = (),
    dilations: Sequence[int] = (),
    source_dilations: Sequence[int] = (),
    groups: int = 1,
    dims: str = "nhwc",
) -> Value:
    """A convolution; strides and dilations are 1 by default, paddings 0."""
    rank = len(dims) - 2
    return emit(
        Convolution(
            source,
            kernel,
            tuple(strides) or (1,) * rank,
            tuple(padding) or ((0, 0),) * rank,
            tuple(dilations) or (1,) * rank,
            tuple(source_dilations) or (1,) * rank,
            groups,
            dims,
        )
    )
