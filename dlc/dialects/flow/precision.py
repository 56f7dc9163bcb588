"""Mixed precision: the products of a function in 16 bits, all the rest of it in f32.

A product (`Op.is_product`) takes its operands of f32 rounded to 16 bits, and its result is widened again.
It adds in f32 and rounds once, as every product of 16 bits. No other operation changes: reductions,
normalisations, softmax and losses are computed in f32, and values of other dtypes stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from dlc.dialects.array.elementwise import Cast
from dlc.dialects.decomposed import Decomposed, decomposition
from dlc.ir.clone import changed
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.types import F32, DType, TensorType

__all__ = ["narrow_products"]

Replace: TypeAlias = Callable[[Op, Sequence[Value]], None]
"""Puts values in the place of the results of an operation, and erases it."""


def narrow_products(block: Block, dtype: DType, replace: Replace) -> None:
    """Compute the products of f32 in a block and its regions in `dtype`.

    An operation that is made of products and others, as a recurrent network, is decomposed.
    """
    narrow: dict[Value, Value] = {}
    pending = list(reversed(list(block)))
    while pending:
        op = pending.pop()
        for region in op.regions:
            narrow_products(region, dtype, replace)
        if op.is_product and any(_is_single(value) for value in op.operands):
            replace(op, _narrowed(op, dtype, narrow))
        elif not op.regions and isinstance(op, Decomposed) and _has_products(decomposition(op)):
            pending.extend(reversed(_decomposed(op, replace)))


def _narrowed(op: Op, dtype: DType, narrow: dict[Value, Value]) -> list[Value]:
    """The results of a product that is computed in `dtype`; `narrow` has what is rounded already."""
    emit = Builder.before_op(op)
    operands: list[Value] = []
    for value in op.operands:
        if _is_single(value):
            if value not in narrow:
                narrow[value] = emit(Cast(value, dtype))
            operands.append(narrow[value])
        else:
            operands.append(value)
    results = emit.all(changed(op, operands))
    return [
        emit(Cast(new, F32)) if _is_single(old) and not _is_single(new) else new
        for old, new in zip(op.results, results, strict=True)
    ]


def _decomposed(op: Decomposed, replace: Replace) -> list[Op]:
    """The operations that one is made of, in its place."""
    block, before = op.parent, op.previous
    assert block is not None
    results = op.decompose(Builder.before_op(op))
    made: list[Op] = []
    new = block.first if before is None else before.next
    while new is not None and new is not op:
        made.append(new)
        new = new.next
    replace(op, results)
    return made


def _has_products(block: Block) -> bool:
    return any(inner.is_product for op in block for inner in op.walk())


def _is_single(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype is F32
