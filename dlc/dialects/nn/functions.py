"""Functions that consist of a few array operations, and therefore are not operations themselves."""

from __future__ import annotations

from dlc.dialects import array, rng
from dlc.dialects.array import tensor_type
from dlc.dialects.array.arithmetic import plus, square, times
from dlc.dialects.array.shape import reshape
from dlc.dialects.nn.loss import CrossEntropy
from dlc.dialects.nn.normalize import LayerNorm, RMSNorm, normalized
from dlc.dialects.nn.rows import along, in_dtype, mean, spread, total, widened
from dlc.dialects.nn.softmax import LogSoftmax
from dlc.ir.core import Builder, Value
from dlc.ir.types import DType

__all__ = [
    "batch_norm", "cross_entropy", "dropout", "embedding", "group_norm", "layer_norm",
    "local_response_norm", "moments", "mse", "one_hot", "rms_norm", "soft_cross_entropy",
]  # fmt: skip


def moments(emit: Builder, x: Value, axes: tuple[int, ...]) -> tuple[Value, Value]:
    """Mean and variance over the axes, which are reduced; the variance divides by the element count."""
    dtype, wide = tensor_type(x).dtype, widened(emit, x)
    middle = mean(emit, wide, axes)
    apart = emit(array.Subtract(wide, spread(emit, middle, wide, axes)))
    variance = mean(emit, square(emit, apart), axes)
    return in_dtype(emit, middle, dtype), in_dtype(emit, variance, dtype)


def layer_norm(
    emit: Builder,
    x: Value,
    scale: Value | None = None,
    shift: Value | None = None,
    *,
    axis: int,
    eps: float = 1e-5,
) -> Value:
    """`nn.layer_norm` with an optional scale and shift."""
    return emit(LayerNorm(x, _some(scale), _some(shift), axis, eps))


def rms_norm(
    emit: Builder, x: Value, scale: Value | None = None, *, axis: int, eps: float = 1e-5
) -> Value:
    """`nn.rms_norm` with an optional scale."""
    return emit(RMSNorm(x, _some(scale), axis, eps))


def _some(value: Value | None) -> tuple[Value, ...]:
    return () if value is None else (value,)


def batch_norm(
    emit: Builder,
    x: Value,
    scale: Value,
    shift: Value,
    middle: Value,
    variance: Value,
    *,
    axis: int,
    eps: float = 1e-5,
) -> Value:
    """`(x - mean) / sqrt(variance + eps) * scale + shift` with one number of each for every channel.

    The four are first combined to one factor and one summand: for trained weights these are constants,
    which can be folded into the preceding product (batch-norm folding).
    """
    factor = emit(array.Multiply(emit(array.Rsqrt(plus(emit, variance, eps))), scale))
    summand = emit(array.Subtract(shift, emit(array.Multiply(middle, factor))))
    scaled = emit(array.Multiply(x, along(emit, factor, x, (axis,))))
    return emit(array.Add(scaled, along(emit, summand, x, (axis,))))


def group_norm(
    emit: Builder,
    x: Value,
    scale: Value,
    shift: Value,
    *,
    groups: int,
    axis: int,
    eps: float = 1e-5,
) -> Value:
    """Normalise each example over the channels of a group and all axes but the first.

    Scale and shift have one number for each channel; as many groups as channels is instance
    normalisation.
    """
    type, wide = tensor_type(x), widened(emit, x)
    shape = type.shape
    parts = (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    axes = tuple([k for k in range(1, len(parts)) if k != axis])
    y = normalized(emit, reshape(emit, wide, parts), axes, eps)
    y = reshape(emit, y, shape)
    y = emit(array.Multiply(y, along(emit, widened(emit, scale), y, (axis,))))
    y = emit(array.Add(y, along(emit, widened(emit, shift), y, (axis,))))
    return in_dtype(emit, y, type.dtype)


def local_response_norm(
    emit: Builder,
    x: Value,
    *,
    size: int,
    alpha: float,
    beta: float,
    bias: float,
    axis: int,
) -> Value:
    """`x / (bias + alpha * sum of squares of the size channels around) ** beta`, with channels on `axis`.

    The `size` channels around a channel are itself, `(size - 1) // 2` before it and the others after it.
    """
    wide, rank = widened(emit, x), tensor_type(x).rank
    window = tuple([size if k == axis else 1 for k in range(rank)])
    before = (size - 1) // 2
    pads = tuple([(before, size - 1 - before) if k == axis else (0, 0) for k in range(rank)])
    ones = (1,) * rank
    summed = emit(array.ReduceWindow(square(emit, wide), "sum", window, ones, pads, ones))
    base = plus(emit, times(emit, summed, alpha), bias)
    # The base is positive, and exp and log cost less than a power of any base.
    power = emit(array.Exp(times(emit, emit(array.Log(base)), beta)))
    return in_dtype(emit, emit(array.Divide(wide, power)), tensor_type(x).dtype)


def cross_entropy(emit: Builder, logits: Value, labels: Value) -> Value:
    """The loss of each example, with integer labels: `-log softmax(logits)[label]`."""
    return emit(CrossEntropy(logits, labels))


def soft_cross_entropy(emit: Builder, logits: Value, target: Value) -> Value:
    """The loss of each example whose target is a distribution over the classes of the last axis."""
    last = tensor_type(logits).rank - 1
    logs = emit(LogSoftmax(logits, last))
    return emit(array.Negate(total(emit, emit(array.Multiply(target, logs)), (last,))))


def mse(emit: Builder, x: Value, y: Value) -> Value:
    """The mean of all squared differences, a scalar."""
    apart = emit(array.Subtract(widened(emit, x), widened(emit, y)))
    axes = tuple(range(tensor_type(x).rank))
    return in_dtype(emit, mean(emit, square(emit, apart), axes), tensor_type(x).dtype)


def embedding(emit: Builder, table: Value, ids: Value) -> Value:
    """The rows of the table that the ids name, `y[.., :] = table[ids[..], :]`."""
    return emit(array.Gather(table, (ids,), (0,)))


def one_hot(emit: Builder, ids: Value, classes: int, dtype: DType) -> Value:
    """1 at the index of each id along a new last axis, else 0; all 0 for an id outside the classes."""
    type = tensor_type(ids)
    places = type.with_shape((*type.shape, classes))
    wide = emit(array.Broadcast(ids, places.shape, tuple(range(type.rank))))
    # The dtype of the ids may be too narrow for the number of classes.
    index = array.iota(emit, places, type.rank)
    here = emit(array.Compare(index, in_dtype(emit, wide, tensor_type(index).dtype), "eq"))
    return emit(array.Cast(here, dtype))


def dropout(emit: Builder, x: Value, key: Value, rate: float) -> Value:
    """x with each element set to 0 with probability `rate`, and the others divided by `1 - rate`."""
    keep = 1 - rate
    kept = emit(rng.Bernoulli(key, array.constant_like(emit, keep, x)))
    zero = array.constant_like(emit, 0, x)
    return emit(array.Select(kept, times(emit, x, 1 / keep) if keep else x, zero))
