"""The choice of Winograd's form for gradients of kernels: where the cost model expects a gain.

Such a gradient is a convolution itself, of the picture with channels for a batch by the whole cotangent,
whose result has 3 x 3 pixels. Its direct form is a product with a matrix of all windows, which is 9 times
as large as the picture; Winograd's form stores nothing but sums. It rounds otherwise, so it is used from
`-O2` on where its error stays within `MOST_ERROR` times that of the direct sum in every call that the
bounds of sizes allow; `--conv` asks for it, or for none.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects import array
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.array.pieces import is_negative
from dlc.dialects.builtin import Module
from dlc.dialects.expr import Expr
from dlc.dialects.formulas import Array, generic, reduce
from dlc.dialects.interface import Bounds, bounds_around
from dlc.dialects.kernel.winograd import POINTS, WINDOW
from dlc.dialects.kernel.winograd_gradient import (
    FEWEST_PIXELS,
    GRADIENT_ERROR,
    SHORT_ERROR,
    WinogradGradient,
)
from dlc.ir.core import Builder, Op, Value
from dlc.ir.dims import Size, ceil_divide, count, names, product
from dlc.ir.intervals import interval
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL
from dlc.ir.types import F32
from dlc.passes.graph.device_placement import kernels_on_gpu
from dlc.passes.kernel.winograd import (
    FEWEST_CHANNELS,
    LEVEL,
    MOST_ERROR,
    USUAL_SIZE,
    microseconds,
)
from dlc.target import cpu_of
from dlc.target.cpu import CpuTarget
from dlc.target.work import gradient_picoseconds

MOST_TASKS = 16
"""Tasks that sums are divided for: enough for the threads of most machines, and few sums to add."""


@define_pass("winograd_gradient")
def winograd_gradient(module: Op, context: Context) -> None:
    """Compute the gradients of 3 x 3 kernels in Winograd's form."""
    assert isinstance(module, Module)
    if context.options.conv == "direct":
        return
    on_gpu = set(kernels_on_gpu(module))
    for op in list(module.walk()):
        if isinstance(op, array.Convolution) and op not in on_gpu and _is_gradient(op):
            _choose(op, context)


def _is_gradient(op: array.Convolution) -> bool:
    """Whether a convolution has the form of the gradient of a 3 x 3 kernel with stride 1, in f32."""
    source, window = tensor_type(op.source), tensor_type(op.kernel)
    *_, batch, outputs = window.shape
    channels = source.shape[0]
    ones = (1, 1)
    return (
        op.dims == "nhwc"
        and op.groups == 1
        and op.strides == op.dilations == op.source_dilations == ones
        and tensor_type(op.result).shape == (channels, WINDOW, WINDOW, outputs)
        and source.dtype is F32
        and isinstance(channels, int)
        and isinstance(outputs, int)
        and not any(is_negative(size) for pair in op.padding for size in pair)
        # The derivative transposed the picture, so that its batch is last; a single one may be a reshape.
        and isinstance(op.source.op, array.Transpose | array.Reshape)
        and source.shape[-1] == batch
    )


def _choose(op: array.Convolution, context: Context) -> None:
    """Replace a gradient by its Winograd form if that is asked for or faster. Logs why."""
    options = context.options
    asked = options.conv == "winograd"
    estimate = _Estimate.of(op, cpu_of(options), options.batch or USUAL_SIZE)
    reason = "" if asked else _why_not(estimate, context)
    if reason:
        context.log.refused(f"no Winograd form of the gradient: {reason}", op)
        return
    most = float("inf") if options.level > LEVEL or asked else MOST_ERROR
    errors = (
        GRADIENT_ERROR
        if estimate.fewest_pixels(bounds_around(op)) >= FEWEST_PIXELS
        else SHORT_ERROR
    )
    times = {m: estimate.winograd(m) for m in POINTS if errors[m] <= most}
    best, direct = min(times, key=times.__getitem__), estimate.direct()
    if times[best] >= direct and not asked:
        context.log.refused(
            f"no Winograd form of the gradient: the cost model gives it {microseconds(times[best])} µs, "
            f"the direct sum {microseconds(direct)}",
            op,
        )
        return
    limit = cpu_of(options).products.gradient_channels
    parts = estimate.parts(times[best], limit)
    context.log.did(
        f"Winograd form F(3 x 3, {best} x {best}) of the gradient: the cost model gives it "
        f"{microseconds(times[best])} µs, the direct sum {microseconds(direct)}; its error is up to "
        f"{errors[best]:g} times as large",
        op,
        parts=parts,
    )
    emit = context.rewriter.before(op)
    context.rewriter.replace(op, _in_form(emit, op, best, parts), relation=EQUAL)


def _why_not(estimate: _Estimate, context: Context) -> str:
    """Why a gradient is summed directly whatever the cost; empty if it is not."""
    channels, outputs, count = estimate.channels, estimate.outputs, estimate.pixel_count
    if context.options.level < LEVEL:
        return "it rounds otherwise"
    if context.options.matmul == "blas":
        return "BLAS is asked for"
    if min(channels, outputs) < FEWEST_CHANNELS:
        return f"{channels} channels to {outputs} are few"
    if count < FEWEST_PIXELS:
        return f"a sum over {count} pixels is short"
    return ""


def _in_form(emit: Builder, op: array.Convolution, m: int, parts: int) -> Value:
    """The gradient as the convolution has it, `[c, 3, 3, o]`."""
    picture = emit(array.Transpose(op.source, (3, 1, 2, 0)))
    cotangent = emit(array.Transpose(op.kernel, (2, 0, 1, 3)))
    channels, _, _, outputs = tensor_type(op.result).shape
    assert isinstance(channels, int)
    assert isinstance(outputs, int)
    padding = op.padding[0], op.padding[1]
    sums = emit(WinogradGradient((picture, cotangent), (), padding, m, parts))
    shape = (WINDOW, WINDOW, channels, outputs)
    if parts == 1:
        total = emit(array.Reshape(sums, shape))
    else:
        total = _added_up(emit, sums, shape, parts)
    return emit(array.Transpose(total, (2, 0, 1, 3)))


def _added_up(emit: Builder, sums: Value, shape: tuple[int, ...], parts: int) -> Value:
    """The sum of all parts."""

    def formula(indices: list[Expr], arrays: list[Array]) -> Expr:
        return reduce(emit, (parts,), "add", lambda part: arrays[0][[*part, *indices]])

    return generic(emit, (sums,), shape, formula)


@dataclass(frozen=True, slots=True)
class _Estimate:
    """Picoseconds of a gradient where sizes that only a call knows are `usual`."""

    pixels: tuple[Size, Size, Size]
    channels: int
    outputs: int
    cpu: CpuTarget
    usual: int

    @classmethod
    def of(cls, op: array.Convolution, cpu: CpuTarget, usual: int) -> _Estimate:
        """For the gradient that a convolution computes."""
        height, width, batch, outputs = tensor_type(op.kernel).shape
        channels = tensor_type(op.source).shape[0]
        assert isinstance(channels, int)
        assert isinstance(outputs, int)
        return cls((batch, height, width), channels, outputs, cpu, usual)

    @property
    def pixel_count(self) -> int:
        """The pixels that are summed over."""
        return self._at_usual(*self.pixels)

    def fewest_pixels(self, bounds: Bounds) -> int:
        """The pixels that a call sums over at least, if there are any: a sum of none is exact."""
        some = {name: (max(1, low), high) for name, (low, high) in bounds.items()}
        return interval(product(self.pixels), some)[0] or 0

    def direct(self) -> int:
        """The direct sum: products, and a matrix of windows that is written and read."""
        matrix = WINDOW**2 * self.channels * self.pixel_count
        costs = self.cpu.costs
        return matrix * (self.outputs * costs.product + 2 * F32.bytes * costs.memory_byte)

    def winograd(self, m: int) -> int:
        """The form with tiles of m x m."""
        batch, *extents = self.pixels
        tiles = self._at_usual(batch, *[ceil_divide(extent, m) for extent in extents])
        sides = self.channels, self.outputs
        work = gradient_picoseconds((m + WINDOW - 1) ** 2, tiles, sides, self.cpu.costs)
        assert isinstance(work, int)
        return work

    def parts(self, time: int, most_channels: int) -> int:
        """How many parts a form of this time is divided into, so that there are tasks for many threads."""
        tasks = -(-self.channels // most_channels) * -(-self.outputs // most_channels)
        return max(1, min(MOST_TASKS, time // self.cpu.products.gradient_part) // tasks)

    def _at_usual(self, *sizes: Size) -> int:
        """The product of sizes."""
        return count(sizes, {name: self.usual for size in sizes for name in names(size)})
