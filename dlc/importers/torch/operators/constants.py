"""Operators that make tensors from given numbers."""

from __future__ import annotations

from dlc.dialects import array
from dlc.dialects.nn.rows import in_dtype, numbers
from dlc.importers.torch.node_context import Importer, NodeContext, Operand
from dlc.ir.types import F32, F64, I64, TensorType


def _filled(name: str) -> Importer:
    def apply(context: NodeContext) -> Operand:
        given = context.given(name)
        if isinstance(given, int | float):
            return array.fill(context.emit, given, context.type)
        return context.stretched(name)

    return apply


def _all(number: int) -> Importer:
    return lambda context: array.fill(context.emit, number, context.type)


def _arange(context: NodeContext) -> Operand:
    """`start + k * step`; in floats computed in f64, as PyTorch does, and rounded once."""
    emit, type = context.emit, context.type
    start = context.given("start")
    step = context.given("step")
    step = 1 if step is None else step
    wide = F64 if type.dtype.is_float else I64
    count = array.iota(emit, type.with_dtype(I64), 0)
    count = in_dtype(emit, count, wide)
    if step != 1:
        count = emit(array.Multiply(count, context.stretched("step", dtype=wide)))
    if start not in (0, None):
        count = emit(array.Add(count, context.stretched("start", dtype=wide)))
    return in_dtype(emit, count, type.dtype)


def _linspace(context: NodeContext) -> Operand:
    """Numbers at equal distances; the second half is counted from the end, as in PyTorch."""
    emit, type = context.emit, context.type
    (count,) = type.shape
    dtype = type.dtype if type.dtype is F64 else F32
    index = in_dtype(emit, array.iota(emit, type.with_dtype(I64), 0), dtype)
    start, end = (context.stretched(name, dtype=dtype) for name in ("start", "end"))
    if count == 1:
        return in_dtype(emit, start, type.dtype)
    last = numbers(emit, count - 1, TensorType(dtype, type.shape))
    step = emit(array.Divide(emit(array.Subtract(end, start)), last))
    up = emit(array.Add(start, emit(array.Multiply(step, index))))
    left = emit(array.Subtract(last, index))
    down = emit(array.Subtract(end, emit(array.Multiply(step, left))))
    first = emit(array.Compare(index, left, "lt"))
    return in_dtype(emit, emit(array.Select(first, up, down)), type.dtype)


def _eye(context: NodeContext) -> Operand:
    emit, type = context.emit, context.type
    index = type.with_dtype(I64)
    same = array.Compare(array.iota(emit, index, 0), array.iota(emit, index, 1), "eq")
    return in_dtype(emit, emit(same), type.dtype)


IMPORTERS: dict[str, Importer] = {
    "aten.arange": _arange,
    "aten.empty": _all(0),
    "aten.empty_like": _all(0),
    "aten.empty_permuted": _all(0),
    "aten.empty_strided": _all(0),
    "aten.eye": _eye,
    "aten.fill": _filled("value"),
    "aten.full": _filled("fill_value"),
    "aten.full_like": _filled("fill_value"),
    "aten.linspace": _linspace,
    "aten.new_empty": _all(0),
    "aten.new_empty_strided": _all(0),
    "aten.new_full": _filled("fill_value"),
    "aten.new_ones": _all(1),
    "aten.new_zeros": _all(0),
    "aten.ones": _all(1),
    "aten.ones_like": _all(1),
    "aten.zeros": _all(0),
    "aten.zeros_like": _all(0),
    "prims.iota": _arange,
}
