"""Normalisations: over channels with statistics that were learnt or of the batch, and over rows."""

from __future__ import annotations

from dlc.dialects import array, nn
from dlc.dialects.array import tensor_type
from dlc.dialects.array.arithmetic import plus, square, times
from dlc.dialects.array.shape import reshape
from dlc.dialects.nn.rows import along, in_dtype, mean, numbers, spread, widened
from dlc.importers.torch.node_context import Importer, NodeContext, Operand
from dlc.ir.core import Value
from dlc.ir.dims import product
from dlc.ir.types import TensorType


def _channel_numbers(context: NodeContext, name: str, x: Value, number: int) -> Value:
    """One number for each channel; where they are left out, the same for all."""
    found = context.optional(name)
    if found is not None:
        return found
    type = tensor_type(x)
    return array.fill(context.emit, number, TensorType(type.dtype, (type.shape[1],)))


def _batch_norm(context: NodeContext) -> Operand:
    """With learnt statistics."""
    emit = context.emit
    x = context.value("input")
    dtype = tensor_type(x).dtype
    scale, shift, middle, variance = (
        in_dtype(emit, _channel_numbers(context, name, x, number), dtype)
        for name, number in (("weight", 1), ("bias", 0), ("running_mean", 0), ("running_var", 1))
    )
    eps = context.number("eps", 1e-5)
    y = nn.batch_norm(emit, x, scale, shift, middle, variance, axis=1, eps=eps)
    return (y, None, None) if len(context.node.types) > 1 else y


def _training_batch_norm(context: NodeContext) -> Operand:
    """With the statistics of the batch, which move those that are learnt; further results are these.

    The results are y, the mean and the inverse deviation of the batch, then the moved mean and variance.
    """
    if context.given("training") == 0:
        return _frozen_batch_norm(context)
    emit, x = context.emit, context.value("input")
    wide = widened(emit, x)
    type = tensor_type(wide)
    axes = tuple([axis for axis in range(type.rank) if axis != 1])
    middle = mean(emit, wide, axes)
    apart = emit(array.Subtract(wide, spread(emit, middle, wide, axes)))
    variance = mean(emit, square(emit, apart), axes)
    inverse = emit(array.Rsqrt(plus(emit, variance, context.number("eps", 1e-5))))
    y = emit(array.Multiply(apart, along(emit, inverse, wide, (1,))))
    y = _scaled(context, y, 1)
    return (
        in_dtype(emit, y, context.dtype),
        middle,
        inverse,
        *_moved(context, x, middle, variance),
    )


def _frozen_batch_norm(context: NodeContext) -> Operand:
    """The functional form with learnt statistics, which stay as they are."""
    emit, x = context.emit, context.value("input")
    middle, variance = context.value("running_mean"), context.value("running_var")
    dtype = tensor_type(x).dtype
    scale, shift = (
        in_dtype(emit, _channel_numbers(context, name, x, number), dtype)
        for name, number in (("weight", 1), ("bias", 0))
    )
    eps = context.number("eps", 1e-5)
    parts = (scale, shift, in_dtype(emit, middle, dtype), in_dtype(emit, variance, dtype))
    y = nn.batch_norm(emit, x, *parts, axis=1, eps=eps)
    return y, None, None, middle, variance


def _moved(context: NodeContext, x: Value, middle: Value, variance: Value) -> list[Value | None]:
    """The learnt statistics moved towards those of the batch, whose variance is the unbiased one."""
    if context.optional("running_mean") is None:
        return [None, None]
    emit, momentum = context.emit, context.number("momentum", 0.1)
    shape = tensor_type(x).shape
    count = product(size for axis, size in enumerate(shape) if axis != 1)
    whole = numbers(emit, count, tensor_type(variance))
    less = plus(emit, whole, -1)
    unbiased = emit(array.Multiply(variance, emit(array.Divide(whole, less))))
    moved: list[Value | None] = []
    for name, found in (("running_mean", middle), ("running_var", unbiased)):
        old = context.value(name)
        kept = times(emit, old, 1 - momentum)
        new = times(emit, in_dtype(emit, found, tensor_type(old).dtype), momentum)
        moved.append(emit(array.Add(kept, new)))
    return moved


def _scaled(context: NodeContext, y: Value, axis: int) -> Value:
    """Times the weight and plus the bias, where they are there."""
    emit = context.emit
    dtype = tensor_type(y).dtype
    for name, step in (("weight", array.Multiply), ("bias", array.Add)):
        found = context.optional(name, dtype)
        if found is not None:
            y = emit(step(y, along(emit, found, y, (axis,))))
    return y


def _layer_norm(context: NodeContext) -> Operand:
    """Over the last axes; further results are the mean and the inverse deviation of each row."""
    emit, x = context.emit, context.value("input")
    rank = tensor_type(x).rank
    axis = rank - len(context.sizes("normalized_shape"))
    scale, shift = (context.optional(name, tensor_type(x).dtype) for name in ("weight", "bias"))
    eps = context.number("eps", 1e-5)
    if scale is None and shift is not None:
        row = tensor_type(shift)
        scale = array.fill(emit, 1, row)
    y = nn.layer_norm(emit, x, scale, shift, axis=axis, eps=eps)
    if len(context.node.types) == 1:
        return y
    if context.node.types[1] is None and context.node.types[2] is None:
        return y, None, None
    wide = widened(emit, x)
    axes = tuple(range(axis, rank))
    middle = mean(emit, wide, axes)
    apart = emit(array.Subtract(wide, spread(emit, middle, wide, axes)))
    variance = mean(emit, square(emit, apart), axes)
    inverse = emit(array.Rsqrt(plus(emit, variance, eps)))
    return y, _kept(context, 1, middle), _kept(context, 2, inverse)


def _kept(context: NodeContext, index: int, value: Value) -> Value | None:
    if context.node.types[index] is None:
        return None
    type = context.type_of(index)
    return reshape(context.emit, in_dtype(context.emit, value, type.dtype), type.shape)


def _group_norm(context: NodeContext) -> Operand:
    """Over the channels of each group; `native_group_norm` also gives means and inverse deviations."""
    emit = context.emit
    x = context.value("input")
    groups = context.integer("group" if "group" in context.node.arguments else "num_groups")
    scale, shift = (
        _channel_numbers(context, name, x, number) for name, number in (("weight", 1), ("bias", 0))
    )
    eps = context.number("eps", 1e-5)
    y = nn.group_norm(emit, x, scale, shift, groups=groups, axis=1, eps=eps)
    if len(context.node.types) == 1:
        return y
    if context.node.types[1] is None and context.node.types[2] is None:
        return y, None, None
    type = tensor_type(x)
    rows = reshape(
        emit, widened(emit, x), (type.shape[0], groups, product(type.shape[1:]) // groups)
    )
    middle = mean(emit, rows, (2,))
    apart = emit(array.Subtract(rows, spread(emit, middle, rows, (2,))))
    variance = mean(emit, square(emit, apart), (2,))
    inverse = emit(array.Rsqrt(plus(emit, variance, eps)))
    return y, _kept(context, 1, middle), _kept(context, 2, inverse)


def _rms_norm(context: NodeContext) -> Operand:
    """Over the last axes; without an eps the smallest step of the dtype, as PyTorch has it."""
    x = context.value("input")
    type = tensor_type(x)
    axis = type.rank - len(context.sizes("normalized_shape"))
    eps = context.number("eps", EPSILON.get(type.dtype.name, 1.1920928955078125e-07))
    scale = context.optional("weight", type.dtype)
    y = nn.rms_norm(context.emit, x, scale, axis=axis, eps=eps)
    if len(context.node.types) == 1:
        return y
    emit, axes = context.emit, tuple(range(axis, type.rank))
    wide = widened(emit, x)
    inverse = emit(array.Rsqrt(plus(emit, mean(emit, square(emit, wide), axes), eps)))
    return y, _kept(context, 1, inverse)


EPSILON = {"f64": 2.220446049250313e-16, "f16": 0.0009765625, "bf16": 0.0078125}
"""The distance from 1 to the next number, for dtypes other than f32."""


IMPORTERS: dict[str, Importer] = {
    "aten._fused_rms_norm": _rms_norm,
    "aten._native_batch_norm_legit": _training_batch_norm,
    "aten._native_batch_norm_legit_functional": _training_batch_norm,
    "aten._native_batch_norm_legit_no_training": _batch_norm,
    "aten.group_norm": _group_norm,
    "aten.layer_norm": _layer_norm,
    "aten.native_group_norm": _group_norm,
    "aten.native_layer_norm": _layer_norm,
    "aten.rms_norm": _rms_norm,
}
