"""Operators that draw random numbers: from a key of each call, not with the numbers that PyTorch draws."""

from __future__ import annotations

from dlc.dialects import array, rng
from dlc.dialects.array import tensor_type
from dlc.dialects.array.arithmetic import plus, times
from dlc.dialects.nn.rows import in_dtype
from dlc.importers.torch.node_context import Importer, NodeContext, Operand
from dlc.ir.types import BOOL, F32, F64


def _uniform(context: NodeContext) -> Operand:
    """Between 0 and 1, or between two other numbers."""
    emit, type = context.emit, context.type
    dtype = F64 if type.dtype is F64 else F32
    key = context.regions.random_key(emit)
    drawn = emit(rng.Uniform(key, type.shape, dtype))
    low, high = context.number("from", 0), context.number("to", 1)
    if (low, high) != (0, 1):
        drawn = plus(emit, times(emit, drawn, high - low), low)
    return in_dtype(emit, drawn, type.dtype)


def _normal(context: NodeContext) -> Operand:
    emit, type = context.emit, context.type
    dtype = F64 if type.dtype is F64 else F32
    drawn = emit(rng.Normal(context.regions.random_key(emit), type.shape, dtype))
    return in_dtype(emit, drawn, type.dtype)


def _bernoulli(context: NodeContext) -> Operand:
    """1 with the probability that is given, for all or for each element."""
    emit, type = context.emit, context.type
    drawn = emit(rng.Uniform(context.regions.random_key(emit), type.shape, F32))
    if context.given("p") is not None:
        chance = context.stretched("p", dtype=F32)
    else:
        chance = context.stretched("self", dtype=F32)
    return in_dtype(emit, emit(array.Compare(drawn, chance, "lt")), type.dtype)


def _dropout(context: NodeContext) -> Operand:
    """Each element is 0 with probability p, the others are divided by 1 - p; and which were kept."""
    emit, x = context.emit, context.value("input")
    rate = context.number("p", 0.5)
    type = tensor_type(x)
    if context.given("train") == 0 or rate == 0:
        return x, array.fill(emit, True, type.with_dtype(BOOL))
    if rate >= 1:
        return array.fill(emit, 0, type), array.fill(emit, False, type.with_dtype(BOOL))
    drawn = emit(rng.Uniform(context.regions.random_key(emit), type.shape, F32))
    kept = emit(array.Compare(drawn, array.constant_like(emit, rate, drawn), "ge"))
    scaled = times(emit, x, 1 / (1 - rate))
    return emit(array.Select(kept, scaled, array.constant_like(emit, 0, x))), kept


def _inference_dropout(context: NodeContext) -> Operand:
    if context.given("train") == 0 or context.number("p", 0.5) == 0:
        return context.value("input")
    dropped = _dropout(context)
    assert isinstance(dropped, tuple)
    return dropped[0]


IMPORTERS: dict[str, Importer] = {
    "aten.bernoulli": _bernoulli,
    "aten.dropout": _inference_dropout,
    "aten.native_dropout": _dropout,
    "aten.rand": _uniform,
    "aten.rand_like": _uniform,
    "aten.randn": _normal,
    "aten.randn_like": _normal,
    "aten.uniform": _uniform,
}
