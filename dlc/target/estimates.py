"""The cost model: how long a kernel takes as a whole, roughly, on one thread of a processor or on a GPU.

It decides whether to compute a value again, which order is quick, and what `--target auto` puts on a GPU.
As in `work`, estimates are made from the kernel and the target's table, in picoseconds; nothing is timed.
"""

from __future__ import annotations

from collections.abc import Mapping

from dlc.dialects import flow, kernel
from dlc.dialects.kernel.attention import Attention, AttentionGradient
from dlc.dialects.kernel.product_schedule import Winograd
from dlc.dialects.kernel.products import Conv, Gemm, Product
from dlc.dialects.kernel.winograd import WINDOW
from dlc.dialects.kernel.winograd_gradient import WinogradGradient
from dlc.dialects.kernel.winograd_kernel import WinogradKernel
from dlc.ir.core import Op, Value
from dlc.ir.dims import Size, count, evaluate
from dlc.target.amounts import block_operations, bytes_moved
from dlc.target.cpu_costs import CpuCosts
from dlc.target.gpu import GpuTarget
from dlc.target.gpu_costs import GpuCosts
from dlc.target.work import transform_picoseconds

_ROW = 16
"""Fewer neighbours than this are read one by one in any case."""


def picoseconds(op: Op, sizes: Mapping[str, int], costs: CpuCosts) -> int:
    """How long an operation of a function takes on one thread at these sizes."""
    match op:
        case flow.Scan(length=length, body=body):
            return evaluate(length, sizes) * sum(picoseconds(inner, sizes, costs) for inner in body)
        case flow.While() | flow.If():
            return sum(
                picoseconds(inner, sizes, costs) for region in op.regions for inner in region
            )
        case kernel.Kernel():
            return costs.kernel_start + max(
                _traffic(bytes_of(op, sizes), costs), work_of(op, sizes, costs)
            )
        case _:
            return 0


def work_of(op: kernel.Kernel, sizes: Mapping[str, int], costs: CpuCosts) -> int:
    """Picoseconds of arithmetic on one thread."""
    match op:
        case Product():
            return _product_work(op, sizes, costs) + _epilogue_work(op, sizes, costs)
        case WinogradGradient(grid=grid, channels=(channels, outputs)):
            products = costs.kernel_product * channels * outputs
            transforms = costs.kernel_winograd * (channels + outputs)
            return (op.tile + WINDOW - 1) ** 2 * count(grid, sizes) * (products + transforms)
        case WinogradKernel(places=places, channels=channels):
            return transform_picoseconds(costs) * places * count(channels, sizes)
        case Attention(width=width):
            depth = evaluate(kernel.array_type(op.query).shape[-1], sizes)
            return (
                costs.kernel_product
                * _scores(op, op.count, sizes)
                * (depth + evaluate(width, sizes))
            )
        case AttentionGradient(by_keys=by_keys):
            shapes = [kernel.array_type(value).shape for value in (op.query, op.values, op.keys)]
            depth, width = (evaluate(shape[-1], sizes) for shape in shapes[:2])
            # Scores, what weights receive, and what the queries do, or keys and values.
            each = 2 * (depth + width) if by_keys else 2 * depth + width
            return costs.kernel_product * _scores(op, shapes[2][-2], sizes) * each
        case kernel.Generic(body=body, domain=domain):
            each = costs.kernel_operation * evaluate(block_operations(body, costs), sizes)
            return count(domain, sizes) * (
                each + _step_work(op, sizes, costs) + _strided_work(op, sizes, costs)
            )
        case _:
            return costs.other_element * sum(_size(value, sizes) for value in op.results)


def _product_work(op: Product, sizes: Mapping[str, int], costs: CpuCosts) -> int:
    """The products of a matrix product or a convolution; in Winograd's form with its transforms."""
    match op:
        case Gemm(domain=domain, inner=inner):
            return costs.kernel_product * count((*domain, inner), sizes)
        case Conv(domain=domain, schedule=Winograd(tile=m)):
            channels, columns = kernel.array_type(op.lhs).shape[-1], domain[-1]
            places = (m + WINDOW - 1) ** 2 * count(domain[:-1], sizes) // m**2
            products = costs.kernel_product * count((channels, columns), sizes)
            transforms = costs.kernel_winograd * evaluate(channels + columns, sizes)
            return places * (products + transforms)
        case Conv(domain=domain, window=window, schedule=schedule):
            channels = kernel.array_type(op.lhs).shape[-1] // op.groups
            each = costs.kernel_product if schedule else costs.kernel_depthwise
            return each * count((*domain, *window, channels), sizes)
        case _:
            return 0


def _epilogue_work(op: Product, sizes: Mapping[str, int], costs: CpuCosts) -> int:
    each = evaluate(block_operations(op.formula, costs), sizes)
    return costs.kernel_operation * each * count(op.domain, sizes)


def _step_work(op: kernel.Generic, sizes: Mapping[str, int], costs: CpuCosts) -> int:
    """What sums cost more, for an element, whose neighbours are in the domain and not in the sum.

    Each step of such a sum waits for the one before, and loads for one operation.
    """
    return sum(
        costs.kernel_step * count(inner.extents, sizes)
        for inner in op.body
        if isinstance(inner, kernel.Reduce)
        and any(isinstance(load, kernel.Load) and _is_next(op, load) for load in inner.body)
    )


def _strided_work(op: kernel.Generic, sizes: Mapping[str, int], costs: CpuCosts) -> int:
    """What an element costs more whose neighbours are read from places far from each other."""
    if not op.domain or evaluate(op.domain[-1], sizes) < _ROW:
        return 0
    far = [load for load in op.body if isinstance(load, kernel.Load) and _is_far(op, load)]
    return costs.strided_element * len(far)


def _is_far(op: kernel.Generic, load: kernel.Load) -> bool:
    """Whether neighbouring elements of a kernel load elements of other rows."""
    return op.indices[-1] in load.indices[:-1]


def _is_next(op: kernel.Generic, load: kernel.Load) -> bool:
    """Whether neighbouring elements of a kernel load neighbouring elements."""
    return list(load.indices[-1:]) == op.indices[-1:]


def _traffic(moved: int, costs: CpuCosts) -> int:
    """Picoseconds of reading and writing `moved` bytes."""
    if moved <= costs.near_bytes:
        return moved * costs.near_byte
    return moved * (costs.cached_byte if moved <= costs.cached_bytes else costs.uncached_byte)


def _scores(op: Attention | AttentionGradient, keys: Size, sizes: Mapping[str, int]) -> int:
    """How many pairs of a query and a key there are that the order does not hide."""
    *batch, queries, _ = kernel.array_type(op.query).shape
    m, n = evaluate(queries, sizes), evaluate(keys, sizes)
    if op.causal is None:
        return count((*batch, m, n), sizes)
    # Query i sees keys up to i + causal: from the first one that sees any, one more each, up to all.
    beyond = evaluate(op.causal, sizes) + 1
    first, full = (min(m, max(0, limit - beyond)) for limit in (1, n))
    growing = (full - first) * (first + full - 1 + 2 * beyond) // 2
    return count((*batch, growing + (m - full) * n), sizes)


def bytes_of(op: kernel.Kernel, sizes: Mapping[str, int]) -> int:
    """What it reads and writes, each element that it can touch once."""
    # Before buffers are assigned, what it writes are its results, and not among its operands.
    results = sum(kernel.array_type(a).dtype.bytes * _size(a, sizes) for a in op.results)
    return evaluate(bytes_moved(op), sizes) + results


def _size(value: Value, sizes: Mapping[str, int]) -> int:
    return count(kernel.array_type(value).shape, sizes)


def is_cheap(op: Op) -> bool:
    """Whether an operation computes its elements by formulas, and nothing that may fail."""
    return isinstance(op, kernel.Generic) and not _may_fail(op)


def is_product(op: Op) -> bool:
    """Whether it is a product or a convolution."""
    return isinstance(op, Product) and not _may_fail(op)


def _may_fail(op: kernel.Kernel) -> bool:
    return any(isinstance(inner, kernel.CheckIndex) for inner in op.walk())


def gpu_picoseconds(op: kernel.Kernel, sizes: Mapping[str, int], gpu: GpuTarget) -> int:
    """How long a kernel takes on a GPU at these sizes: a launch, then its arithmetic or its memory."""
    work = work_of(op, sizes, gpu.thread.costs) / gpu.costs.cpu_threads
    busy = max(bytes_of(op, sizes) * gpu.costs.memory_byte, work)
    return gpu.costs.launch + round(busy)


def transfer_picoseconds(count: int, costs: GpuCosts) -> int:
    """Picoseconds of copying `count` bytes from one memory to the other."""
    return costs.transfer + costs.transfer_byte * count
