"""Matrix products and convolutions with an *epilogue*, a formula that is applied to each finished sum.

The epilogue fuses elementwise operations into the product, which then need no pass over memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects.kernel.generic import Access, Kernel, array_type, grid
from dlc.dialects.kernel.product_schedule import (
    ConvSchedule,
    GemmSchedule,
    Packed,
    PackedPairs,
    SplitK,
    Winograd,
)
from dlc.dialects.kernel.winograd import POINTS, WINDOW, winograd_sums
from dlc.ir.attributes import decode
from dlc.ir.core import Array, Block, Evaluation, Value
from dlc.ir.define import attribute, op, operand, operands, region
from dlc.ir.dims import Shape, Size, floor_divide
from dlc.ir.types import F32, I16, I32, DType, TensorType


class Product(Kernel):
    """A product with an epilogue, the formula that computes each element of the results from its sum.

    The epilogue has an index for each axis of `domain`, the sum (in f32 for f16 and bf16), and an
    argument for each extra array that it reads. Sums of i16 are in i32 and wrap.
    """

    lhs: Value = operand()
    rhs: Value = operand()
    extras: Sequence[Value] = operands()
    outs: Sequence[Value] = operands()
    epilogue: Block = region()
    domain: Shape = attribute()

    isolated = True

    def reads(self, number: int) -> Access:
        """Vector instructions and BLAS read factors in rows of neighbouring elements."""
        extras = range(len(self.operands) - sum(self.segments), len(self.operands))
        return Access.STRIDED if number in extras else Access.UNIT_STRIDE

    @property
    def accumulator(self) -> DType:
        """The dtype of the sums: f32 for f16 and bf16, i32 for i16."""
        return sum_dtype(array_type(self.lhs).dtype)

    @property
    def columns(self) -> Size:
        """The size of the last axis of the result."""
        return self.domain[-1]

    def finish(self, at: Evaluation, sums: Array, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """The results of the epilogue, from the finished sums, with NumPy."""
        shape = at.shape(self.domain)
        extras = inputs[2 : 2 + len(self.extras)]
        values = at.run(self.epilogue, [*grid(shape, len(shape)), sums, *extras])
        return tuple([np.array(np.broadcast_to(value, shape), order="C") for value in values])


@op("kernel.gemm")
class Gemm(Product):
    """Matrix products: sums over k of `lhs[.., m, k] * rhs[.., k, n]`; `domain` is (.., m, n).

    An operand that is `transposed` is stored with its last two axes swapped; with `rhs_shared`, rhs has no
    batch axes. The `schedule` chooses the implementation: with `Packed`, rhs is stored in panels,
    `[.., p, k, columns]`; with `SplitK`, `domain` is (parts, .., m, n). An f32 lhs may have a 16-bit rhs,
    which is widened as it is read.
    """

    inner: Size = attribute(doc="k, the length of the sums")
    lhs_transposed: bool = attribute(default=False)
    rhs_transposed: bool = attribute(default=False)
    rhs_shared: bool = attribute(default=False)
    schedule: GemmSchedule | None = attribute(default=None)

    def reads(self, number: int) -> Access:
        packed = isinstance(self.schedule, Packed)
        return Access.CONTIGUOUS if number == 1 and packed else super().reads(number)

    def result_types(self) -> tuple[TensorType, ...]:
        *batch, m, n = self.domain[1:] if isinstance(self.schedule, SplitK) else self.domain
        lhs = (self.inner, m) if self.lhs_transposed else (m, self.inner)
        rhs = (n, self.inner) if self.rhs_transposed else (self.inner, n)
        if isinstance(self.schedule, Packed):
            rhs = (panel_count(n, self.schedule.columns), *self.schedule.panel(self.inner))
        expected = (*batch, *lhs), (*(() if self.rhs_shared else batch), *rhs)
        shapes = array_type(self.lhs).shape, array_type(self.rhs).shape
        if expected != shapes:
            raise self.fail(f"kernel.gemm over {self.domain} needs {expected}, found {shapes}")
        return epilogue_types(self.epilogue, self.domain)

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        lhs, rhs = (
            decode(array, array_type(value).dtype).astype(self.accumulator.numpy)
            for array, value in zip(inputs, self.operands[:2], strict=False)
        )
        if isinstance(self.schedule, Packed):
            rhs = unpanelled(by_steps(rhs, self.schedule), at.size(self.domain[-1]))
        if self.lhs_transposed:
            lhs = lhs.swapaxes(-1, -2)
        if self.rhs_transposed:
            rhs = rhs.swapaxes(-1, -2)
        if not isinstance(self.schedule, SplitK):
            return self.finish(at, np.matmul(lhs, rhs), inputs)
        length, parts = at.size(self.schedule.steps), range(at.size(self.domain[0]))
        steps = [slice(part * length, (part + 1) * length) for part in parts]
        sums = [np.matmul(lhs[..., each], rhs[..., each, :]) for each in steps]
        return self.finish(at, np.stack(sums), inputs)


def panel_count(columns: Size, panel: int) -> Size:
    """The number of panels of width `panel` that hold `columns` columns."""
    return floor_divide(columns + (panel - 1), panel)


def by_steps(panels: Array, schedule: Packed) -> Array:
    """The panels with one step of k after the other, `[.., p, k, columns]`."""
    if not isinstance(schedule, PackedPairs):
        return panels
    *outer, pairs, _ = panels.shape
    split = panels.reshape(*outer, pairs, schedule.columns, 2)
    return split.swapaxes(-1, -2).reshape(*outer, 2 * pairs, schedule.columns)


def unpanelled(array: Array, columns: int) -> Array:
    """The matrices `[.., k, columns]` that are stored in panels, `[.., p, k, panel]`."""
    swapped = np.moveaxis(array, -3, -2)
    *rows, count, panel = swapped.shape
    return swapped.reshape(*rows, count * panel)[..., :columns]


def sum_dtype(dtype: DType) -> DType:
    """The dtype of accumulators: f32 for f16 and bf16, i32 for i16, else the dtype itself."""
    if dtype is I16:
        return I32
    return F32 if dtype.is_float and dtype.bits == 16 else dtype


def epilogue_types(epilogue: Block, domain: Shape) -> tuple[TensorType, ...]:
    """The types of a kernel's results, from the scalars that its epilogue yields."""
    types: list[TensorType] = []
    for value in epilogue.terminator.operands:
        assert isinstance(value.type, DType)
        types.append(TensorType(value.type, domain))
    return tuple(types)


@op("kernel.conv")
class Conv(Product):
    """Convolution of images, channels last.

    `y[b, i, j, o] = sum over h, w, c of lhs[b, i*s + h*d - p, j*s + w*d - p, c] * rhs[h, w, c, o]`, with
    strides s, dilations d and low paddings p. `domain` is (pixels of all results, output channels). With
    g groups, the g-th part of the input channels makes the g-th part of the output channels. rhs is
    `[h, w, c, o]`, c being the channels of a group. Where the `schedule` is `Packed`, it is the matrices
    `[h * w * c, o]` of all groups in panels as in `kernel.gemm`; where it is `Winograd`, the transformed
    kernel in panels, and the window is 3 x 3, strides and dilations are 1, and there is one group. `blank`
    holds a zero for each channel of lhs, which is read outside the image. With `SplitK` each part sums over
    `steps` channels and the first axis of `domain` is the part, as in `kernel.gemm`, with one group.
    Without a schedule a CPU computes it channel by channel.
    """

    blank: Value = operand()
    window: tuple[int, int] = attribute()
    strides: tuple[int, int] = attribute()
    padding: tuple[tuple[Size, Size], tuple[Size, Size]] = attribute(doc="(low, high) by axis")
    dilations: tuple[int, int] = attribute()
    groups: int = attribute(default=1)
    schedule: ConvSchedule | None = attribute(default=None)

    def reads(self, number: int) -> Access:
        return Access.CONTIGUOUS if number in (1, 2) else super().reads(number)

    def result_types(self) -> tuple[TensorType, ...]:
        batch, *_, channels = array_type(self.lhs).shape
        pixels, outputs = self.domain[-2:]
        taps, inputs = self.window[0] * self.window[1], channels // self.groups
        rhs = (*self.window, inputs, outputs)
        if isinstance(self.schedule, Packed):
            count = self.groups * panel_count(outputs // self.groups, self.schedule.columns)
            rhs = (count, *self.schedule.panel(taps * inputs))
        if isinstance(self.schedule, Winograd):
            if not self.fits_winograd or self.schedule.tile not in POINTS:
                raise self.fail(
                    f"kernel.conv has no Winograd form with tiles of {self.schedule.tile}: there are "
                    "tiles of 2 and 4, for f32, windows of 3 x 3, and no strides, dilations and groups"
                )
            columns = self.schedule.columns
            places = (self.schedule.tile + WINDOW - 1) ** 2
            rhs = (places, panel_count(outputs, columns), inputs, columns)
        out_height, out_width = self.extents
        if array_type(self.rhs).shape != rhs or pixels != batch * out_height * out_width:
            raise self.fail(f"kernel.conv over {self.domain} needs {rhs}")
        if array_type(self.blank).shape != (channels,):
            raise self.fail(f"kernel.conv needs {channels} zeros")
        return epilogue_types(self.epilogue, self.domain)

    @property
    def is_depthwise(self) -> bool:
        """Whether each output channel is made from one input channel, its own."""
        return self.groups > 1 and self.groups == array_type(self.lhs).shape[-1] == self.columns

    @property
    def fits_winograd(self) -> bool:
        """Whether it is a 3 x 3 convolution of f32 with stride 1, which Winograd's form computes."""
        ones = (1, 1)
        window = self.window == (WINDOW, WINDOW)
        plain = self.strides == self.dilations == ones and self.groups == 1
        return window and plain and array_type(self.lhs).dtype is F32

    @property
    def extents(self) -> tuple[Size, Size]:
        """Height and width of the result."""
        _, *spatial, _ = array_type(self.lhs).shape
        height, width = (
            floor_divide(size + low + high - dilation * (taps - 1) - 1, stride) + 1
            for size, (low, high), taps, stride, dilation in zip(
                spatial, self.padding, self.window, self.strides, self.dilations, strict=True
            )
        )
        return height, width

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        source = array_type(self.lhs).dtype
        image, weights = (
            decode(array, source).astype(self.accumulator.numpy) for array in inputs[:2]
        )
        low_high = [tuple(at.shape(pair)) for pair in self.padding]
        padded = np.pad(image, [(0, 0), *low_high, (0, 0)])
        if not isinstance(self.schedule, SplitK):
            return self.finish(at, self._sums(at, padded, weights), [*inputs[:2], *inputs[3:]])
        length, parts = at.size(self.schedule.steps), range(at.size(self.domain[0]))
        channels = [slice(part * length, (part + 1) * length) for part in parts]
        sums = [self._sums(at, padded[..., each], weights[:, :, each]) for each in channels]
        return self.finish(at, np.stack(sums), [*inputs[:2], *inputs[3:]])

    def _sums(self, at: Evaluation, padded: Array, weights: Array) -> Array:
        """The sums, `[pixels, outputs]`: im2col and a matrix product for each group, or Winograd's form."""
        height, width = at.shape(self.extents)
        if isinstance(self.schedule, Winograd):
            kernels = unpanelled(weights, at.size(self.columns))
            pictures, matrices = padded.astype(np.float32), kernels.astype(np.float32)
            sums = winograd_sums(pictures, matrices, (height, width), self.schedule.tile)
            return sums.reshape(-1, sums.shape[-1])
        taps = [
            padded[
                :,
                self._elements_of_tap(0, h, height),
                self._elements_of_tap(1, w, width),
            ]
            for h in range(self.window[0])
            for w in range(self.window[1])
        ]
        pixels, outputs = at.shape(self.domain[-2:])
        inputs = padded.shape[-1] // self.groups
        rows = np.stack(taps, axis=-2).reshape(pixels, len(taps), self.groups, inputs)
        rows = np.moveaxis(rows, 2, 0).reshape(self.groups, pixels, len(taps) * inputs)
        sums = np.matmul(rows, self._matrices(weights, outputs))
        return np.moveaxis(sums, 0, 1).reshape(pixels, outputs)

    def _matrices(self, weights: Array, outputs: int) -> Array:
        """The weights as one matrix `[h * w * c, o]` for each group."""
        each = outputs // self.groups
        if isinstance(self.schedule, Packed):
            panels = by_steps(weights, self.schedule)
            return unpanelled(panels.reshape(self.groups, -1, *panels.shape[1:]), each)
        split = weights.reshape(-1, self.groups, each)
        return np.moveaxis(split, 1, 0)

    def _elements_of_tap(self, axis: int, tap: int, count: int) -> slice:
        """The elements along an axis that a tap of the window multiplies, one for each result."""
        start, stride = tap * self.dilations[axis], self.strides[axis]
        return slice(start, start + (count - 1) * stride + 1, stride)
