"""Fourier transforms of complex numbers, which are pairs (`operators/complex_numbers.py`)."""

from __future__ import annotations

import math

from dlc.dialects import array
from dlc.dialects.array import tensor_type
from dlc.dialects.array.arithmetic import times
from dlc.dialects.array.shape import inverse, reshape, transpose
from dlc.dialects.nn.rows import in_dtype, numbers, spread
from dlc.importers.torch.node_context import Importer, NodeContext, Operand
from dlc.importers.torch.operators.complex_numbers import pairs_of, parts_of
from dlc.importers.torch.operators.shapes import taken
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Size, product
from dlc.ir.types import F64, I64, TensorType

BY_ROOT, BY_COUNT = 1, 2
"""PyTorch's numbers for what a transform is divided by: the root of its number of elements, or that."""


def _complex_to_complex(context: NodeContext) -> Operand:
    emit, x = context.emit, context.value("self")
    axes = context.axes("dim", tensor_type(x).rank - 1)
    for axis in axes:
        x = _transformed(emit, x, axis, forward=context.flag("forward"))
    return _normalized(context, x, [tensor_type(x).shape[axis] for axis in axes])


def _real_to_complex(context: NodeContext) -> Operand:
    """Of the last axis perhaps one side only: the other one is its conjugate."""
    emit, x = context.emit, pairs_of(context.emit, context.value("self"))
    rank = tensor_type(x).rank - 1
    sizes = [tensor_type(x).shape[axis] for axis in context.axes("dim", rank)]
    for axis in context.axes("dim", rank):
        x = _transformed(emit, x, axis, forward=True)
    if context.flag("onesided"):
        last = context.integers("dim")[-1] % rank
        x = array.slice_axis(emit, x, last, 0, tensor_type(x).shape[last] // 2 + 1)
    return _normalized(context, x, sizes)


def _complex_to_real(context: NodeContext) -> Operand:
    """Backwards, from one side of the last axis: the other side is made first."""
    emit, x = context.emit, context.value("self")
    rank = tensor_type(x).rank - 1
    last, size = context.integers("dim")[-1] % rank, context.size("last_dim_size")
    for axis in context.axes("dim", rank):
        if axis != last:
            x = _transformed(emit, x, axis, forward=False)
    x = _transformed(emit, _both_sides(emit, x, last, size), last, forward=False)
    sizes = [tensor_type(x).shape[axis] for axis in context.axes("dim", rank)]
    return _normalized(context, parts_of(emit, x)[0], sizes)


def _both_sides(emit: Builder, x: Value, axis: int, size: Size) -> Value:
    """An axis with the conjugates, in the opposite order, of what one side has."""
    type = TensorType(I64, (size,))
    place = array.iota(emit, type, 0)
    mirrored = emit(array.Subtract(numbers(emit, size, type), place))
    is_here = emit(array.Compare(place, mirrored, "le"))
    index = emit(array.Select(is_here, place, mirrored))
    both = taken(emit, x, index, axis)
    pair = tensor_type(both)
    lower = emit(array.Broadcast(is_here, pair.shape, (axis,)))
    is_real = emit(array.Compare(array.iota(emit, pair.with_dtype(I64), pair.rank - 1),
                                 array.fill(emit, 0, pair.with_dtype(I64)), "eq"))  # fmt: skip
    kept = emit(array.Or(lower, is_real))
    return emit(array.Select(kept, both, emit(array.Negate(both))))


def _transformed(emit: Builder, x: Value, axis: int, *, forward: bool) -> Value:
    """Along one axis, by a product with a matrix of cosines and sines: `[.., n, .., 2]`.

    Sums of many terms that cancel: f64 leaves little of what should be 0.
    """
    type = tensor_type(x)
    order = (*[k for k in range(type.rank - 1) if k != axis], axis, type.rank - 1)
    moved = transpose(emit, x, order)
    *outer, size, _ = tensor_type(moved).shape
    rows = in_dtype(emit, reshape(emit, moved, (product(outer), size * 2)), F64)
    found = emit(array.MatMul(rows, _matrix(emit, size, forward=forward)))
    found = in_dtype(emit, reshape(emit, found, (*outer, size, 2)), type.dtype)
    return transpose(emit, found, inverse(order))


def _matrix(emit: Builder, size: Size, *, forward: bool) -> Value:
    """From pairs to pairs, `[2 * n, 2 * n]` in f64: `X[k]` sums `x[t] * exp(-2 pi i k t / n)`."""
    turns = TensorType(I64, (size, size))
    both = emit(array.Multiply(array.iota(emit, turns, 0), array.iota(emit, turns, 1)))
    # Modulo n, the angles stay small and so exact.
    both = emit(array.Remainder(both, numbers(emit, size, turns)))
    full = times(emit, in_dtype(emit, both, F64), 2 * math.pi)
    angle = emit(array.Divide(full, numbers(emit, size, turns.with_dtype(F64))))
    cosine, sine = emit(array.Cos(angle)), emit(array.Sin(angle))
    opposite = emit(array.Negate(sine))
    rows = [(cosine, opposite), (sine, cosine)] if forward else [(cosine, sine), (opposite, cosine)]
    halves: list[Value] = []
    for pair in rows:
        parts = [reshape(emit, part, (size, 1, size, 1)) for part in pair]
        halves.append(emit(array.Concatenate(tuple(parts), 3)))
    return reshape(emit, emit(array.Concatenate(tuple(halves), 1)), (2 * size, 2 * size))


def _normalized(context: NodeContext, x: Value, sizes: list[Size]) -> Value:
    """Divided by the number of elements of a transform, or by its root."""
    how = context.integer("normalization")
    if how not in (BY_ROOT, BY_COUNT):
        return x
    emit, type = context.emit, tensor_type(x)
    count = numbers(emit, product(sizes), TensorType(type.dtype))
    divisor = emit(array.Sqrt(count)) if how == BY_ROOT else count
    return emit(array.Divide(x, spread(emit, divisor, x, tuple(range(type.rank)))))


IMPORTERS: dict[str, Importer] = {
    "complex._fft_c2c": _complex_to_complex,
    "complex._fft_c2r": _complex_to_real,
    "complex._fft_r2c": _real_to_complex,
}
