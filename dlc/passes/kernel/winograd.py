"""The choice of Winograd's form for a convolution, and of its tiles: where the cost model expects a gain.

The form rounds otherwise than the direct sum. From `-O2` on it is used where its error stays within
`MOST_ERROR` times that of the direct sum; `--conv` asks for it, or for none.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects import array, kernel
from dlc.dialects.kernel.products import Conv
from dlc.dialects.kernel.winograd import ERROR, POINTS, WINDOW
from dlc.ir.core import Value
from dlc.ir.dims import Size, ceil_divide, count, names, product
from dlc.ir.passes import Context
from dlc.ir.types import F32
from dlc.target import cpu_of
from dlc.target.cpu import CpuTarget
from dlc.target.cpu_costs import CpuCosts
from dlc.target.register_blocking import panel_columns
from dlc.target.work import transform_picoseconds, winograd_block, winograd_picoseconds

LEVEL = 2
"""The lowest `-O` level that rounds otherwise."""
MOST_ERROR = 4.0
"""Times the error of the direct sum that `-O2` allows."""
FEWEST_CHANNELS = 16
"""With fewer a transform has nothing to spread over, and its error is less well known."""
USUAL_SIZE = 16
"""What a size is taken for that only a call knows, but in training, where it is the batch."""


def winograd_tile(op: Conv, context: Context, *, is_stored: bool) -> int | None:
    """The m of the form F(m x m, 3 x 3) that a convolution takes; None for the direct sum. Logs why.

    A kernel that `is_stored` is transformed when weights are loaded, any other one in each call.
    """
    options = context.options
    if options.conv == "direct" or not op.fits_winograd:
        return None
    asked = options.conv == "winograd"
    reason = "" if asked else _why_not(op, context)
    if reason:
        context.log.refused(f"no Winograd form: {reason}", op)
        return None
    estimate = _Estimate(op, cpu_of(options).costs, options.batch or USUAL_SIZE)
    most = float("inf") if options.level > LEVEL or asked else MOST_ERROR
    times = {m: estimate.winograd(m) for m in POINTS if ERROR[m] <= most}
    if not is_stored:
        times = {m: time + estimate.kernel_transform(m) for m, time in times.items()}
    best, direct = min(times, key=times.__getitem__), estimate.direct()
    if times[best] >= direct and not asked:
        context.log.refused(
            f"no Winograd form: the cost model gives it {microseconds(times[best])} µs, "
            f"the direct sum {microseconds(direct)}",
            op,
        )
        return None
    context.log.did(
        f"Winograd form F({best} x {best}, 3 x 3): the cost model gives it {microseconds(times[best])} "
        f"µs, the direct sum {microseconds(direct)}; its error is up to {ERROR[best]:g} times as large",
        op,
    )
    return best


def winograd_columns(op: Conv, m: int, cpu: CpuTarget) -> int:
    """The width of the panels of the transformed kernel."""
    batch, _, _, channels = kernel.array_type(op.lhs).shape
    tiles = product([batch, *[ceil_divide(extent, m) for extent in op.extents]])
    block = winograd_block(tiles, (m + WINDOW - 1) ** 2, cpu.products)
    return panel_columns(F32, block, op.columns, channels, cpu)


def _why_not(op: Conv, context: Context) -> str:
    """Why a convolution that has the form is computed directly whatever the cost; empty if it is not."""
    channels, outputs = kernel.array_type(op.lhs).shape[-1], op.columns
    assert isinstance(channels, int)
    assert isinstance(outputs, int)
    if context.options.level < LEVEL:
        return "it rounds otherwise"
    if context.options.matmul == "blas":
        return "BLAS is asked for"
    if min(channels, outputs) < FEWEST_CHANNELS:
        return f"{channels} channels to {outputs} are few"
    return ""


@dataclass(frozen=True, slots=True)
class _Estimate:
    """Picoseconds of a convolution where sizes that only a call knows are `usual`."""

    op: Conv
    costs: CpuCosts
    usual: int

    @property
    def matrix(self) -> int:
        """Channels times outputs."""
        return self._at_usual(kernel.array_type(self.op.lhs).shape[-1], self.op.columns)

    def direct(self) -> int:
        """The direct sum."""
        pixels, costs = self._at_usual(self.op.domain[-2]), self.costs
        return WINDOW**2 * self.matrix * (pixels * costs.product + F32.bytes * costs.memory_byte)

    def winograd(self, m: int) -> int:
        """The form with tiles of m x m."""
        op, costs = self.op, self.costs
        batch, _, _, channels = kernel.array_type(op.lhs).shape
        places = (m + WINDOW - 1) ** 2
        tiles = self._at_usual(batch, *[ceil_divide(extent, m) for extent in op.extents])
        channels, outputs = self._at_usual(channels), self._at_usual(op.columns)
        work = winograd_picoseconds(places * tiles, channels, outputs, costs)
        assert isinstance(work, int)
        return work + places * self.matrix * F32.bytes * costs.memory_byte

    def kernel_transform(self, m: int) -> int:
        """Transforming the kernel in a call, and before that making it where a formula does: that of a
        gradient is transposed."""
        places = (m + WINDOW - 1) ** 2
        computed = WINDOW**2 * self.costs.strided_element if _is_computed(self.op.rhs) else 0
        return self.matrix * (places * transform_picoseconds(self.costs) + computed)

    def _at_usual(self, *sizes: Size) -> int:
        """The product of sizes."""
        return count(sizes, {name: self.usual for size in sizes for name in names(size)})


def _is_computed(value: Value) -> bool:
    """Whether a formula makes a kernel, such as the reversed one of a gradient."""
    while isinstance(value.op, array.Reshape):
        value = value.op.source
    return value.op is not None


def microseconds(picoseconds: int) -> str:
    """A time for people, without its unit."""
    return f"{picoseconds / 1e6:.0f}"
