"""Products with weights of 4 or 8 bits, quantised in blocks: what exporters of language models write."""

from __future__ import annotations

from dlc.dialects import array
from dlc.dialects.array.pieces import slice_axis
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.nn.rows import in_dtype
from dlc.importers.onnx.node_context import Importer, NodeContext, NodeResults, stretched
from dlc.importers.onnx.operators.products import matmul
from dlc.ir.core import Value
from dlc.ir.types import F32, U8, TensorType


def _matmul_n_bits(context: NodeContext) -> NodeResults:
    """`a @ w.T + bias`, w being [N, K] with a scale and a zero point for each block of a row.

    Operands: a [.., K], w as bytes [N, blocks, bytes of a block], scales [N * blocks], zero points, as
    bytes or as floats like a, the order of rows, bias [N].
    """
    emit = context.emit
    if context.operand(4) is not None:
        raise context.unsupported("with an order of rows is not imported")
    rows, columns = context.integer("N"), context.integer("K")
    bits, size = context.integer("bits", 4), context.integer("block_size")
    if bits not in (4, 8) or size < 8 // bits:
        raise context.unsupported(f"of {bits} bits in blocks of {size} is not imported")
    blocks = -(-columns // size)
    shape = (rows, blocks, size)
    steps = in_dtype(emit, reshape(emit, _unpacked(context, context.value(1), bits), shape), F32)
    zero = _zero_points(context, rows, blocks, bits)
    steps = emit(array.Subtract(steps, stretched(emit, zero, shape)))
    scale = in_dtype(emit, reshape(emit, context.value(2), (rows, blocks, 1)), F32)
    weights = emit(array.Multiply(steps, stretched(emit, scale, shape)))
    weights = slice_axis(emit, reshape(emit, weights, (rows, blocks * size)), 1, 0, columns)
    weights = in_dtype(emit, transpose(emit, weights, (1, 0)), context.type(0).dtype)
    y = matmul(context, context.value(0), weights)
    bias = context.optional(5)
    if bias is None:
        return y
    return emit(array.Add(y, stretched(emit, bias, array.tensor_type(y).shape)))


def _unpacked(context: NodeContext, packed: Value, bits: int) -> Value:
    """Numbers of 4 or 8 bits in u8; of two in a byte the first one has the lower bits."""
    emit, type = context.emit, array.tensor_type(packed)
    if type.dtype is not U8:
        raise context.unsupported(f"of {type.dtype.name} is not imported")
    if bits == 8:
        return packed
    low = emit(array.And(packed, array.constant_like(emit, 15, packed)))
    high = emit(array.ShiftRight(packed, array.constant_like(emit, 4, packed)))
    pair = tuple([reshape(emit, half, (*type.shape, 1)) for half in (low, high)])
    both = emit(array.Concatenate(pair, type.rank))
    return reshape(emit, both, (*type.shape[:-1], type.shape[-1] * 2))


def _zero_points(context: NodeContext, rows: int, blocks: int, bits: int) -> Value:
    """A zero point in f32 for each block, [N, blocks, 1]; the middle where they are left out."""
    emit, packed = context.emit, context.optional(3)
    if packed is None:
        return array.fill(emit, 1 << (bits - 1), TensorType(F32))
    if array.tensor_type(packed).dtype is U8:
        per_row = -(-blocks * bits // 8)
        numbers = _unpacked(context, reshape(emit, packed, (rows, per_row)), bits)
        packed = slice_axis(emit, numbers, 1, 0, blocks)
    return in_dtype(emit, reshape(emit, packed, (rows, blocks, 1)), F32)


IMPORTERS: dict[str, Importer] = {"MatMulNBits": _matmul_n_bits}
