"""Arithmetic and traffic of a kernel, as sizes: the two axes of the roofline model.

S. Williams, A. Waterman and D. Patterson, "Roofline: An Insightful Visual Performance Model for Multicore
Architectures" (CACM 52, 2009). The amounts are lower bounds of what any code of the kernel does, so that no
kernel is faster than its roof: a product is 2 operations, a function such as exp those of its polynomial,
and of an array only what the kernel can touch is counted, once.
"""

from __future__ import annotations

from dlc.dialects import kernel, scalar
from dlc.dialects.kernel.attention import Attention, AttentionGradient, CachedAttention
from dlc.dialects.kernel.ordered import Scatter, Update
from dlc.dialects.kernel.product_schedule import SplitK, Winograd
from dlc.dialects.kernel.products import Conv, Gemm, Product
from dlc.dialects.kernel.winograd import WINDOW
from dlc.dialects.kernel.winograd_gradient import WinogradGradient
from dlc.dialects.kernel.winograd_kernel import WinogradKernel
from dlc.dialects.scalar import element
from dlc.ir.core import Block, Op, Value
from dlc.ir.dims import Size, floor_divide, minimum, product, total
from dlc.ir.types import INDEX
from dlc.target.table import ElementCosts
from dlc.target.work import CHEAP


def operations(op: kernel.Kernel, costs: ElementCosts) -> Size:
    """Arithmetic operations of a kernel; 0 where it only moves or orders elements."""
    match op:
        case Product():
            return 2 * _products(op) + product(op.domain) * block_operations(op.formula, costs)
        case WinogradGradient(grid=grid, channels=channels):
            return 2 * (op.tile + WINDOW - 1) ** 2 * product((*grid, *channels))
        case WinogradKernel(places=places, channels=channels):
            return places * product(channels)
        case Attention(width=width):
            depth = kernel.array_type(op.query).shape[-1]
            return _scores(op, op.count) * (2 * (depth + width) + costs.function)
        case AttentionGradient(by_keys=by_keys):
            depth, width = (kernel.array_type(v).shape[-1] for v in (op.query, op.values))
            each = 2 * (depth + width) if by_keys else 2 * depth + width
            return _scores(op, kernel.array_type(op.keys).shape[-2]) * (2 * each + costs.function)
        case kernel.Generic(body=body, domain=domain):
            return product(domain) * block_operations(body, costs)
        case _:
            return 0


def bytes_moved(op: kernel.Kernel) -> Size:
    """Bytes that a kernel reads and writes, each element that it can touch once.

    Of an array that is read at computed places, such as the table of an embedding, as many elements count
    as are read, and of one that is overwritten in place what is written.
    """
    match op:
        case Update(inputs=(_, update, *_)):
            return 2 * _bytes(update)
        case Scatter(inputs=(_, updates, *indices)):
            return 3 * _bytes(updates) + total(map(_bytes, indices))
        case CachedAttention(inputs=(query, *_), outs=outs):
            # How much of the cache is in use is known in the call only.
            return _bytes(query) + total(map(_bytes, outs))
        case kernel.Generic():
            arrays = op.body.arguments[len(op.domain) :]
            read = [minimum(_bytes(array), _loaded(op, array)) for array in arrays]
            return total(read) + total(map(_bytes, op.targets))
        case _:
            return total(map(_bytes, dict.fromkeys(op.operands)))


def _products(op: Product) -> Size:
    """Multiplications, each with an addition."""
    match op:
        case Gemm(domain=domain, inner=inner, schedule=SplitK()):
            return product(domain[1:]) * inner
        case Gemm(domain=domain, inner=inner):
            return product(domain) * inner
        case Conv(domain=domain, schedule=Winograd(tile=m)):
            channels = kernel.array_type(op.lhs).shape[-1]
            return floor_divide((m + WINDOW - 1) ** 2 * product((*domain, channels)), m**2)
        case Conv(domain=domain, window=window):
            channels = floor_divide(kernel.array_type(op.lhs).shape[-1], op.groups)
            return product((*domain[-2:], *window, channels))
        case _:
            return 0


def _scores(op: Attention | AttentionGradient, keys: Size) -> Size:
    """Pairs of a query and a key that the order does not hide."""
    *batch, queries, _ = kernel.array_type(op.query).shape
    pairs = queries * keys
    if op.causal is not None:
        seen = queries * (op.causal + 1) + floor_divide(queries * (queries - 1), 2)
        pairs = minimum(pairs, seen)
    return product(batch) * pairs


def block_operations(block: Block, costs: ElementCosts) -> Size:
    """Operations for one element of a block, inner indices included."""
    return total(
        product(op.extents) * (block_operations(op.body, costs) + isinstance(op, kernel.Reduce))
        if isinstance(op, kernel.Inner)
        else _operation(op, costs)
        for op in block
    )


def _operation(op: Op, costs: ElementCosts) -> int:
    if not op.name.startswith("scalar.") or not op.results or op.result.type is INDEX:
        return 0
    match op:
        case scalar.Constant() | scalar.Cast() | scalar.Select():
            return 0
        case scalar.Divide() | scalar.Sqrt() | scalar.Rsqrt():
            return 1
        case scalar.Unary() if element(op.result.type).is_float and op.name not in CHEAP:
            return costs.function
        case _:
            return 1


def _loaded(op: kernel.Generic, array: Value) -> Size:
    """Bytes of all loads of an array."""
    loads = [use for use in array.uses if isinstance(use, kernel.Load)]
    if len(loads) < len(array.uses):
        return _bytes(array)
    return kernel.array_type(array).dtype.bytes * total(_executions(op, load) for load in loads)


def _executions(op: kernel.Generic, load: Op) -> Size:
    """How often an operation of the formula runs."""
    times = product(op.domain)
    around = load.parent.parent if load.parent is not None else None
    while isinstance(around, kernel.Inner):
        times = times * product(around.extents)
        around = around.parent.parent if around.parent is not None else None
    return times


def _bytes(value: Value) -> Size:
    type = kernel.array_type(value)
    return type.size * type.dtype.bytes
