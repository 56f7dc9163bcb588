"""Sparse embedding gradients: rows scattered into zeros and then added are scattered into the sum directly.

The derivative by a table of which few rows were read is zero elsewhere. Where it is only scaled by a
constant and added to an array, its rows are scaled and scattered into that array: the table of zeros never
exists, and an update in place touches only the rows that were read. Terms are added in another order.
"""

from __future__ import annotations

import math

from dlc.dialects import array
from dlc.dialects.array.elementwise import is_number
from dlc.ir.core import Op, Value
from dlc.ir.rewrite import EQUAL, Rewriter
from dlc.passes.graph.canonicalize import number

__all__ = ["add_scattered", "scale_scattered", "subtract_scattered"]


def add_scattered(op: array.Add, rewriter: Rewriter) -> bool:
    """`x + scatter(0, u)` is `scatter(x, u)`."""
    for scattered, target in ((op.rhs, op.lhs), (op.lhs, op.rhs)):
        scatter = _into_zeros(scattered)
        if scatter is not None:
            return _put(op, rewriter, scatter, target, scatter.updates)
    return False


def subtract_scattered(op: array.Subtract, rewriter: Rewriter) -> bool:
    """`x - scatter(0, u)` is `scatter(x, -u)`."""
    scatter = _into_zeros(op.rhs)
    if scatter is None:
        return False
    updates = rewriter.before(op)(array.Negate(scatter.updates))
    return _put(op, rewriter, scatter, op.lhs, updates)


def scale_scattered(op: array.Multiply, rewriter: Rewriter) -> bool:
    """`scatter(0, u) * a` is `scatter(0, u * a)` for a finite constant."""
    scatter, factor = _into_zeros(op.lhs), number(op.rhs)
    if scatter is None or factor is None or not math.isfinite(factor):
        return False
    emit = rewriter.before(op)
    constant = array.constant_like(emit, factor, scatter.updates)
    updates = emit(array.Multiply(scatter.updates, constant))
    return _put(op, rewriter, scatter, scatter.target, updates)


def _into_zeros(value: Value) -> array.Scatter | None:
    """The scatter into zeros that computes a value with one reader; None if it is computed otherwise."""
    match value.op:
        case array.Scatter(mode="add", target=target) as scatter if len(
            value.uses
        ) == 1 and is_number(target, 0):
            return scatter
        case _:
            return None


def _put(op: Op, rewriter: Rewriter, scatter: array.Scatter, target: Value, updates: Value) -> bool:
    emit = rewriter.before(op)
    scattered = emit(
        array.Scatter(target, updates, scatter.indices, scatter.axes, "add", scatter.unique)
    )
    rewriter.replace(op, scattered, relation=EQUAL)
    return True
