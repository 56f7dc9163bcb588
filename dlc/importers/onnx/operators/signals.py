"""Operators on signals: `DFT`, `STFT` and `MelWeightMatrix`.

A discrete Fourier transform is a product with a matrix of cosines and sines, computed while importing, or
in each call where the size of the axis is that of an input.
Complex numbers are pairs along a last axis of size 2; one of size 1 holds real parts alone.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dlc.dialects import array
from dlc.dialects.array.arithmetic import times
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.nn.rows import along, in_dtype, numbers
from dlc.importers.onnx.node_context import Constant, Importer, NodeContext, NodeResults
from dlc.ir.attributes import encode
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Dim, Shape, Size, product
from dlc.ir.types import F32, F64, I64, DType, TensorType

LONGEST = 1 << 12
"""Elements of the longest transform: its matrix has the square of them."""


def _dft(context: NodeContext) -> NodeResults:
    """Since opset 20 the axis is an operand."""
    x = context.value(0)
    rank = context.type(0).rank
    if context.opset >= 20:
        signed = -2 if context.operand(2) is None else context.integers(2)[0]
    else:
        signed = context.integer("axis", 1)
    axis = context.axis(signed, rank)
    if axis == rank - 1:
        raise context.wrong("transforms the axis of real and imaginary parts")
    inverse, onesided = context.flag("inverse"), context.flag("onesided")
    size = context.type(0).shape[axis]
    whole = 2 * (size - 1) if inverse and onesided else size
    length = whole if context.operand(1) is None else context.sizes(1)[0]
    last = (*[k for k in range(rank - 1) if k != axis], axis, rank - 1)
    moved = transpose(context.emit, x, last)
    if isinstance(size, Dim) and length == size and not onesided:
        found = _transformed_in_a_call(context, moved, inverse)
    else:
        found = _transformed(context, moved, _length(context, length), inverse, onesided)
    return transpose(context.emit, found, tuple(np.argsort(last).tolist()))


def _length(context: NodeContext, length: Size) -> int:
    if not isinstance(length, int):
        raise context.unsupported("of an axis whose size is not a number is not imported")
    if not 0 < length <= LONGEST:
        raise context.unsupported(f"of {length} elements; 1 to {LONGEST} are imported")
    return length


def _transformed(
    context: NodeContext, x: Value, length: int, inverse: bool, onesided: bool
) -> Value:
    """The transform along the last axis but one, first brought to a length: `[.., n, parts]`."""
    emit, type = context.emit, array.tensor_type(x)
    *outer, size, parts = type.shape
    if not isinstance(parts, int) or parts not in (1, 2):
        raise context.wrong(f"takes real or complex numbers in a last axis, found {type.text}")
    if onesided and not inverse and parts == 2:
        raise context.wrong("gives one side of the transform of complex numbers")
    taken = length // 2 + 1 if inverse and onesided else length
    x = _fitted(context, x, size, taken)
    matrix = _fourier_matrix(length, parts, inverse, onesided)
    bins, kept = matrix.shape[2:]
    # Sums of many terms that cancel: f64 leaves little of what should be 0.
    rows = in_dtype(emit, reshape(emit, x, (product(outer), taken * parts)), F64)
    weights = context.as_value(Constant(matrix.reshape(taken * parts, bins * kept), F64))
    found = emit(array.MatMul(rows, weights))
    shape: Shape = (*outer, bins, kept)
    return in_dtype(emit, reshape(emit, found, shape), type.dtype)


def _transformed_in_a_call(context: NodeContext, x: Value, inverse: bool) -> Value:
    """The transform along an axis whose size a call has, by a matrix that is computed in the call."""
    emit, type = context.emit, array.tensor_type(x)
    *outer, size, parts = type.shape
    if not isinstance(parts, int) or parts not in (1, 2):
        raise context.wrong(f"takes real or complex numbers in a last axis, found {type.text}")
    context.require(LONGEST - size, f"transforms an axis of {size}, of {LONGEST} elements at most")
    matrix = _matrix_in_a_call(emit, size, inverse)[:parts]
    weights = reshape(emit, emit(array.Concatenate(tuple(matrix), 1)), (size * parts, size * 2))
    rows = in_dtype(emit, reshape(emit, x, (product(outer), size * parts)), F64)
    found = reshape(emit, emit(array.MatMul(rows, weights)), (*outer, size, 2))
    return in_dtype(emit, found, type.dtype)


def _matrix_in_a_call(emit: Builder, size: Size, inverse: bool) -> list[Value]:
    """What `_fourier_matrix` gives for two sides: of the real and of the imaginary parts `[n, 1, n, 2]`."""
    turns = TensorType(I64, (size, size))
    product_of_places = emit(array.Multiply(array.iota(emit, turns, 0), array.iota(emit, turns, 1)))
    remainder = emit(array.Remainder(product_of_places, numbers(emit, size, turns)))
    angles = turns.with_dtype(F64)
    count = numbers(emit, size, angles)
    full = times(emit, in_dtype(emit, remainder, F64), 2 * math.pi)
    angle = emit(array.Divide(full, count))
    cosine, sine = emit(array.Cos(angle)), emit(array.Sin(angle))
    if inverse:
        cosine, sine = [emit(array.Divide(part, count)) for part in (cosine, sine)]
    opposite = emit(array.Negate(sine))
    pairs = ((cosine, opposite), (sine, cosine))
    if inverse:
        pairs = ((cosine, sine), (opposite, cosine))
    return [
        emit(
            array.Concatenate(tuple([reshape(emit, part, (size, 1, size, 1)) for part in pair]), 3)
        )
        for pair in pairs
    ]


def _fitted(context: NodeContext, x: Value, size: Size, length: int) -> Value:
    """The last axis but one cut off, or filled with zeros, to a length."""
    emit, type = context.emit, array.tensor_type(x)
    if size == length:
        return x
    if not isinstance(size, int):
        raise context.unsupported("of an axis whose size is not a number is not imported")
    if size > length:
        return array.slice_axis(emit, x, type.rank - 2, 0, length)
    zeros, more = (0,) * type.rank, [0] * type.rank
    more[-2] = length - size
    zero = array.fill(emit, 0, type.with_shape(()))
    return emit(array.Pad(x, zero, zeros, tuple(more), zeros))


def _fourier_matrix(length: int, parts: int, inverse: bool, onesided: bool) -> NDArray[np.float64]:
    """Of `[n, parts]` numbers those of the transform: `[n, parts, bins, parts]`, in f64.

    `X[k] = sum of x[t] * exp(-2 pi i k t / n)`; the inverse has the other sign and is divided by n. The
    inverse of one side counts its elements twice but for those that are their own conjugates.
    """
    bins = length // 2 + 1 if onesided else length
    # The product modulo n keeps the angles small, and so exact.
    turns = np.outer(np.arange(length), np.arange(bins)) % length
    angle = 2 * math.pi / length * turns
    cosine, sine = np.cos(angle), np.sin(angle)
    if not inverse:
        pairs = np.stack([np.stack([cosine, -sine], -1), np.stack([sine, cosine], -1)], 1)
        return pairs[:, :parts]
    if not onesided:
        pairs = np.stack([np.stack([cosine, sine], -1), np.stack([-sine, cosine], -1)], 1)
        return pairs[:, :parts] / length
    twice = np.full(bins, 2.0)
    twice[0] = 1
    if length % 2 == 0:
        twice[-1] = 1
    pairs = np.stack([cosine * twice, -sine * twice], 0) / length  # [parts, n, bins]
    return np.ascontiguousarray(pairs.transpose(2, 0, 1)[:, :parts, :, None])


def _stft(context: NodeContext) -> NodeResults:
    """The transform of each frame of a signal `[batch, length, parts]`, multiplied by a window."""
    emit, signal, type = context.emit, context.value(0), context.type(0)
    if type.rank != 3:
        raise context.wrong(f"takes a signal of 3 axes, found {type.text}")
    size = type.shape[1]
    window = context.optional(2)
    (step,) = context.integers(1)
    if context.operand(3) is not None:
        (length,) = context.sizes(3)
    else:
        length = size if window is None else array.tensor_type(window).shape[0]
    length = _length(context, length)
    if window is not None and array.tensor_type(window).shape != (length,):
        raise context.wrong(f"has frames of {length} elements and another window")
    if step < 1 or (isinstance(size, int) and size < length):
        raise context.wrong(f"takes frames of {length} by steps of {step} from {size} elements")
    frames = (size - length) // step + 1
    index_type = TensorType(I64, (frames, length))
    start = times(emit, array.iota(emit, index_type, 0), step)
    index = emit(array.Add(start, array.iota(emit, index_type, 1)))
    taken = transpose(emit, emit(array.Gather(signal, (index,), (1,))), (2, 0, 1, 3))
    if window is not None:
        window = in_dtype(emit, window, type.dtype)
        taken = emit(array.Multiply(taken, along(emit, window, taken, (2,))))
    onesided = context.flag("onesided", default=True)
    return _transformed(context, taken, length, inverse=False, onesided=onesided)


def _mel_weight_matrix(context: NodeContext) -> NodeResults:
    """Triangles over the bins of a transform, evenly spaced by `2595 log10(1 + f / 700)`."""
    bins, length, rate = (context.integers(k)[0] for k in range(3))
    low, high = (context.floats(k)[0] for k in (3, 4))
    if not (0 < bins <= LONGEST and 0 < length <= LONGEST and rate > 0 and 0 <= low < high):
        raise context.wrong(f"makes {bins} bands of {length} bins from {low} to {high} hertz")
    first, last = (2595 * math.log10(1 + edge / 700) for edge in (low, high))
    # ONNX's own definition divides by the number of ends, one more than there are steps.
    mels = first + (last - first) / (bins + 2) * np.arange(bins + 2)
    hertz = 700 * (10 ** (mels / 2595) - 1)
    ends: list[int] = np.floor((length + 1) * hertz / rate).astype(np.int64).tolist()
    weights = np.zeros((length // 2 + 1, bins))
    if ends[-1] > len(weights):
        raise context.wrong(f"has bands beyond half of the rate {rate}")
    for band, (left, middle, right) in enumerate(zip(ends, ends[1:], ends[2:], strict=False)):
        rise, fall = np.arange(left, middle + 1), np.arange(middle, right)
        weights[rise, band] = (rise - left) / (middle - left) if middle > left else 1
        weights[fall, band] = (right - fall) / (right - middle) if right > middle else 0
    dtype = F32 if "output_datatype" not in context.node.attributes else _datatype(context)
    return Constant(encode(weights, dtype), dtype)


def _datatype(context: NodeContext) -> DType:
    dtype = context.dtype("output_datatype")
    if not dtype.is_float:
        raise context.unsupported(f"in {dtype.name} is not imported")
    return dtype


IMPORTERS: dict[str, Importer] = {
    "DFT": _dft,
    "MelWeightMatrix": _mel_weight_matrix,
    "STFT": _stft,
}
