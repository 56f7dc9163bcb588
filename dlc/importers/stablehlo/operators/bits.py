"""Operations on the bits of numbers."""

from __future__ import annotations

from collections.abc import Callable

from dlc.dialects import array
from dlc.dialects.array import tensor_type
from dlc.dialects.array.shape import reshape
from dlc.dialects.nn.rows import in_dtype
from dlc.importers.stablehlo.node_context import Importer, Made, NodeContext
from dlc.importers.stablehlo.operators.elementwise import unsigned_of
from dlc.ir.core import Builder, Value
from dlc.ir.types import BF16, BOOL, F16, F32, F64, DType

MANTISSA = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7}
"""Bits of the fraction that are stored."""


def _bitcast_convert(context: NodeContext) -> Made:
    """The bits as another dtype; of a wider one as a row of narrow ones, the lowest bits first."""
    emit, x, dtype = context.emit, context.value(0), context.dtype
    own = tensor_type(x).dtype
    if BOOL in (own, dtype):
        return _of_bools(context, x, dtype)
    if own.bits == dtype.bits:
        return emit(array.Bitcast(x, dtype))
    return _narrower(emit, x, dtype) if own.bits > dtype.bits else _wider(emit, x, dtype)


def _of_bools(context: NodeContext, x: Value, dtype: DType) -> Value:
    own = tensor_type(x).dtype
    if own is dtype:
        return x
    raise context.unsupported("between bools and numbers is not imported")


def _narrower(emit: Builder, x: Value, dtype: DType) -> Value:
    type = tensor_type(x)
    unsigned = unsigned_of(type.dtype)
    count = type.dtype.bits // dtype.bits
    wide = emit(array.Bitcast(x, unsigned))
    parts: list[Value] = []
    for k in range(count):
        part = emit(array.ShiftRight(wide, array.constant_like(emit, k * dtype.bits, wide)))
        narrow = emit(array.Cast(part, unsigned_of(dtype)))
        parts.append(reshape(emit, narrow, (*type.shape, 1)))
    return emit(array.Bitcast(emit(array.Concatenate(tuple(parts), type.rank)), dtype))


def _wider(emit: Builder, x: Value, dtype: DType) -> Value:
    type = tensor_type(x)
    unsigned, last = unsigned_of(dtype), type.rank - 1
    narrow = emit(array.Bitcast(x, unsigned_of(type.dtype)))
    found: Value | None = None
    for k in range(dtype.bits // type.dtype.bits):
        part = array.slice_axis(emit, narrow, last, k, k + 1)
        part = emit(array.Cast(reshape(emit, part, type.shape[:last]), unsigned))
        part = emit(array.ShiftLeft(part, array.constant_like(emit, k * type.dtype.bits, part)))
        found = part if found is None else emit(array.Or(found, part))
    assert found is not None
    return emit(array.Bitcast(found, dtype))


def _count_set(emit: Builder, x: Value) -> Value:
    """How many bits of unsigned integers are 1, by sums of neighbours."""
    bits = tensor_type(x).dtype.bits
    step = 1
    while step < bits:
        mask = sum(((1 << step) - 1) << place for place in range(0, bits, 2 * step))
        kept = array.constant_like(emit, mask, x)
        moved = emit(array.ShiftRight(x, array.constant_like(emit, step, x)))
        x = emit(array.Add(emit(array.And(x, kept)), emit(array.And(moved, kept))))
        step *= 2
    return x


def _population_count(context: NodeContext) -> Made:
    emit, x = context.emit, context.value(0)
    dtype = tensor_type(x).dtype
    unsigned = emit(array.Bitcast(x, unsigned_of(dtype)))
    return emit(array.Bitcast(_count_set(emit, unsigned), dtype))


def _count_leading_zeros(context: NodeContext) -> Made:
    """The bits above the highest 1: that is spread to all lower bits, and the zeros are counted."""
    emit, x = context.emit, context.value(0)
    dtype = tensor_type(x).dtype
    spread = emit(array.Bitcast(x, unsigned_of(dtype)))
    step = 1
    while step < dtype.bits:
        moved = emit(array.ShiftRight(spread, array.constant_like(emit, step, spread)))
        spread = emit(array.Or(spread, moved))
        step *= 2
    return emit(array.Bitcast(_count_set(emit, emit(array.Not(spread))), dtype))


def _reduce_precision(context: NodeContext) -> Made:
    """Rounded to a float with these numbers of bits for exponent and fraction, and back."""
    emit, x = context.emit, context.value(0)
    dtype = tensor_type(x).dtype
    exponent, fraction = context.integer("exponent_bits"), context.integer("mantissa_bits")
    named = {(8, 7): BF16, (5, 10): F16, (8, 23): F32, (11, 52): F64}.get((exponent, fraction))
    own = {BF16: 8, F16: 5, F32: 8, F64: 11}[dtype]
    if exponent >= own and fraction >= MANTISSA[dtype.name]:
        return x
    if named is not None and named.bits < dtype.bits:
        return _through(emit, x, named)
    return _rounded(emit, x, exponent, fraction, own)


def _through(emit: Builder, x: Value, narrow: DType) -> Value:
    """The value in another dtype and back, by bits so that no pass takes the two for nothing."""
    dtype = tensor_type(x).dtype
    bits = emit(array.Bitcast(in_dtype(emit, x, narrow), unsigned_of(narrow)))
    return in_dtype(emit, emit(array.Bitcast(bits, narrow)), dtype)


def _rounded(emit: Builder, x: Value, exponent: int, fraction: int, own: int) -> Value:
    """The bits rounded to nearest even, and exponents that are out of range taken to 0 or infinity."""
    dtype = tensor_type(x).dtype
    stored, unsigned = MANTISSA[dtype.name], unsigned_of(dtype)
    bits = emit(array.Bitcast(x, unsigned))

    def number(value: int) -> Value:
        return array.constant_like(emit, value, bits)

    sign = 1 << (dtype.bits - 1)
    rounded = bits
    if fraction < stored:
        cut = stored - fraction
        last = emit(array.And(emit(array.ShiftRight(bits, number(cut))), number(1)))
        bias = emit(array.Add(last, number((1 << (cut - 1)) - 1)))
        mask = (1 << dtype.bits) - (1 << cut)
        rounded = emit(array.And(emit(array.Add(bits, bias)), number(mask)))
    if exponent < own:
        rounded = _in_range(emit, rounded, number, exponent, own, stored, sign)
    nan = emit(array.Compare(x, x, "ne"))
    found = emit(array.Bitcast(rounded, dtype))
    return emit(array.Select(nan, x, found))


def _in_range(
    emit: Builder,
    bits: Value,
    number: Callable[[int], Value],
    exponent: int,
    own: int,
    stored: int,
    sign: int,
) -> Value:
    bias, narrow_bias = (1 << (own - 1)) - 1, (1 << (exponent - 1)) - 1
    highest, lowest = bias + narrow_bias, bias - narrow_bias + 1
    infinite = ((1 << own) - 1) << stored
    mask = number(infinite)
    found = emit(array.And(bits, mask))
    signs = emit(array.And(bits, number(sign)))
    above = emit(array.Compare(found, number(highest << stored), "gt"))
    below = emit(array.Compare(found, number(lowest << stored), "lt"))
    large = emit(array.Or(signs, mask))
    bits = emit(array.Select(above, large, bits))
    return emit(array.Select(below, signs, bits))


IMPORTERS: dict[str, Importer] = {
    "stablehlo.bitcast_convert": _bitcast_convert,
    "stablehlo.count_leading_zeros": _count_leading_zeros,
    "stablehlo.popcnt": _population_count,
    "stablehlo.reduce_precision": _reduce_precision,
}
