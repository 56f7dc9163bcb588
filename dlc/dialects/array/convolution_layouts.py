"""The layouts of pictures and kernels: the order of their axes, and permutations that derivatives need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.array.shape import reshape, transpose
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Shape, Size

__all__ = ["LAYOUTS", "Layout", "Padding"]

Padding = tuple[tuple[Size, Size], ...]
"""Elements before and after along each spatial axis."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The order of the axes of pictures (batch, channels, spatial) and of kernels."""

    rank: int
    channels_last: bool

    @property
    def channel(self) -> int:
        """The axis of the channels in a picture."""
        return self.rank - 1 if self.channels_last else 1

    @property
    def spatial(self) -> tuple[int, ...]:
        """The spatial axes of a picture."""
        return tuple(range(1, self.rank - 1) if self.channels_last else range(2, self.rank))

    @property
    def kernel_spatial(self) -> tuple[int, ...]:
        """The spatial axes of a kernel, which is `hwio` or `oihw`."""
        return tuple(range(self.rank - 2) if self.channels_last else range(2, self.rank))

    @property
    def kernel_in(self) -> int:
        """The axis of the input channels of one group in a kernel."""
        return self.rank - 2 if self.channels_last else 1

    @property
    def kernel_out(self) -> int:
        """The axis of the output channels in a kernel."""
        return self.rank - 1 if self.channels_last else 0

    def picture(self, batch: Size, spatial: Sequence[Size], channels: Size) -> Shape:
        """The shape of a picture."""
        if self.channels_last:
            return (batch, *spatial, channels)
        return (batch, channels, *spatial)


LAYOUTS = {
    "nwc": Layout(3, True),
    "ncw": Layout(3, False),
    "nhwc": Layout(4, True),
    "nchw": Layout(4, False),
    "ndhwc": Layout(5, True),
    "ncdhw": Layout(5, False),
}
"""The layouts of pictures; kernels are `hwio` where the channels are last and `oihw` otherwise."""


def _split(emit: Builder, value: Value, axis: int, groups: int) -> Value:
    """Split an axis into two: the group, and the index in it."""
    shape = tensor_type(value).shape
    split = (groups, shape[axis] // groups)
    return reshape(emit, value, (*shape[:axis], *split, *shape[axis + 1 :]))


def swap_channels(emit: Builder, kernel: Value, layout: Layout, groups: int) -> Value:
    """The kernel with input and output channels swapped: [k, i, (g, o)] becomes [k, o, (g, i)]."""
    if groups == 1:
        order = list(range(layout.rank))
        order[layout.kernel_in], order[layout.kernel_out] = layout.kernel_out, layout.kernel_in
        return transpose(emit, kernel, tuple(order))
    shape = tensor_type(kernel).shape
    split = _split(emit, kernel, layout.kernel_out, groups)
    spatial = tuple(range(layout.rank - 2))
    if layout.channels_last:
        first = layout.rank - 2
        turned = transpose(emit, split, (*spatial, first + 2, first + 1, first))
    else:
        turned = transpose(emit, split, (0, 2, 1, *[axis + 3 for axis in spatial]))
    swapped = list(shape)
    swapped[layout.kernel_in] = shape[layout.kernel_out] // groups
    swapped[layout.kernel_out] = shape[layout.kernel_in] * groups
    return reshape(emit, turned, tuple(swapped))


def batch_as_channels(emit: Builder, source: Value, layout: Layout, groups: int) -> Value:
    """A picture [n, s, (g, c)] as [c, s, (g, n)]."""
    if groups == 1:
        order = list(range(layout.rank))
        order[0], order[layout.channel] = layout.channel, 0
        return transpose(emit, source, tuple(order))
    shape = tensor_type(source).shape
    split = _split(emit, source, layout.channel, groups)
    if layout.channels_last:
        spatial, group = layout.spatial, layout.channel
        turned = transpose(emit, split, (group + 1, *spatial, group, 0))
    else:
        turned = transpose(emit, split, (2, 1, 0, *[axis + 1 for axis in layout.spatial]))
    sizes = [shape[axis] for axis in layout.spatial]
    channels = shape[layout.channel] // groups
    return reshape(emit, turned, layout.picture(channels, sizes, shape[0] * groups))


def batch_as_inputs(emit: Builder, picture: Value, layout: Layout) -> Value:
    """A picture [n, s, c] as a kernel [s, n, c] (or [c, n, s])."""
    if layout.channels_last:
        return transpose(emit, picture, (*layout.spatial, 0, layout.channel))
    return transpose(emit, picture, (layout.channel, 0, *layout.spatial))
