"""Integers that are known while importing: their numbers, or the sizes that they are in every call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dlc.dialects import array
from dlc.dialects.array import tensor_type
from dlc.dialects.measured import dims_of
from dlc.importers.stablehlo.facts import Array
from dlc.ir.attributes import decode
from dlc.ir.bounded import larger, never_negative, smaller
from dlc.ir.core import Evaluation, Op, Value
from dlc.ir.dims import Bounds, Dim, Size, floor_divide
from dlc.ir.equal_sizes import never_equal

MOST = 1 << 14
"""The most elements of a value that are computed while importing."""

Sizes: TypeAlias = tuple[Size, ...]
T = TypeVar("T")


class Known:
    """Numbers and sizes of values, computed once. `bounds` are those of the dims."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._arrays: dict[Value, Array | None] = {}
        self._sizes: dict[Value, Sizes | None] = {}
        self._at = Evaluation()

    def array(self, value: Value) -> Array | None:
        """The elements of a value, where they follow from constants and are few; bf16 as bits."""
        return _deep(value, self._arrays, _is_computable, self._evaluated)

    def integers(self, value: Value) -> NDArray[np.int64] | None:
        """The elements of a value of integers or bools."""
        found = self.array(value)
        return None if found is None else found.astype(np.int64)

    def is_number(self, value: Value, number: float) -> bool:
        """Whether every element of a value is known to be that number."""
        found = self.array(value)
        if found is None:
            return array.is_number(value, number)
        return bool(np.all(decode(found, tensor_type(value).dtype) == number))

    def sizes(self, value: Value) -> Sizes | None:
        """The elements of a tensor of integers as sizes, row-major; None where they are none."""
        return _deep(value, self._sizes, _is_size, self._size)

    def decided(self, value: Value) -> bool | None:
        """Whether a bool is true in every call, or false; None where only a call knows."""
        found = self.array(value)
        if found is not None:
            return bool(found.all()) if found.all() or not found.any() else None
        sizes = self.sizes(value)
        return bool(sizes[0]) if sizes is not None and isinstance(sizes[0], int) else None

    def _evaluated(self, op: Op) -> Array | None:
        inputs = [self._arrays[operand] for operand in op.operands]
        arrays = [each for each in inputs if each is not None]
        if len(arrays) != len(inputs):
            return None
        found = op.evaluate(self._at, *arrays)
        return None if isinstance(found, tuple) else np.asarray(found)

    def _size(self, op: Op) -> Sizes | None:
        match op:
            case array.Extent(size=size):
                return (size,)
            case array.Constant() | array.Fill() | array.Iota():
                found = self.integers(op.results[0])
                return None if found is None else tuple(found.ravel().tolist())
            case _:
                inputs = [self._sizes[operand] for operand in op.operands]
                if isinstance(op, array.And) and (0,) in inputs:
                    return (0,)
                if isinstance(op, array.Select) and inputs[0] is None:
                    return self._floored(op)
                sizes = [each for each in inputs if each is not None]
                rule = _RULES.get(type(op))
                if rule is None or len(sizes) != len(inputs):
                    return None
                return rule(self, op, *sizes)

    def _floored(self, op: array.Select) -> Sizes | None:
        """The quotient or the remainder of a division that rounds down, by a number above 0.

        JAX writes the one as `q - 1 where sign(x) != sign(y) and r != 0 else q`, with q rounded toward
        zero, and the other as `r + y where (r < 0) != (y < 0) and r != 0 else r`.
        """
        match op.condition.op:
            case array.And(lhs=Value(owner=array.Compare(predicate="ne"))):
                pass
            case _:
                return None
        match op.no.op, op.yes.op:
            case array.Divide(lhs=x, rhs=y), array.Subtract(lhs=whole) if whole is op.no:
                is_quotient = True
            case array.TruncatedRemainder(lhs=x, rhs=y), array.Add(lhs=left) if left is op.no:
                is_quotient = False
            case _:
                return None
        sizes, steps = self._sizes[x], self._sizes[y]
        if sizes is None or steps is None or len(sizes) != 1:
            return None
        (size,), (step,) = sizes, steps
        if not isinstance(step, int) or step < 1:
            return None
        quotient = floor_divide(size, step)
        return (quotient,) if is_quotient else (size - quotient * step,)

    def sign(self, size: Size) -> int | None:
        """-1, 0 or 1 as a size is below 0, 0 or above it in every call; None where that differs."""
        signs = self.signs(size)
        return signs.pop() if len(signs) == 1 else None

    def signs(self, size: Size) -> set[int]:
        """The signs that a size can have."""
        excluded = {
            -1: never_negative(size, self.bounds),
            0: never_equal(size, 0, self.bounds),
            1: never_negative(-size, self.bounds),
        }
        return {sign for sign, is_excluded in excluded.items() if not is_excluded}


def _deep(
    value: Value,
    memory: dict[Value, T | None],
    is_of_kind: Callable[[Value], bool],
    of_op: Callable[[Op], T | None],
) -> T | None:
    """What `of_op` says of the operation that makes a value, after all that it reads."""
    stack = [value]
    while stack:
        top = stack[-1]
        if top in memory:
            stack.pop()
        elif top.op is None or not is_of_kind(top):
            memory[top] = None
        elif open := [each for each in top.op.operands if each not in memory]:
            stack += open
        else:
            memory[top] = of_op(top.op)
    return memory[value]


def _is_computable(value: Value) -> bool:
    op, type = value.op, tensor_type(value)
    if (
        not isinstance(op, Op)
        or op.regions
        or not op.name.startswith("array.")
        or not type.is_static
        or dims_of(op)
    ):
        return False
    return math.prod(int(size) for size in type.shape) <= MOST  # pyright: ignore[reportArgumentType]


def _is_size(value: Value) -> bool:
    type = tensor_type(value)
    return isinstance(value.op, Op) and not type.dtype.is_float


Rule: TypeAlias = Callable[..., "Sizes | None"]


def _elementwise(function: Callable[[Known, Size, Size], Size | None]) -> Rule:
    def apply(known: Known, op: Op, one: Sizes, other: Sizes) -> Sizes | None:
        made = [function(known, a, b) for a, b in zip(one, other, strict=True)]
        sizes = [size for size in made if size is not None]
        return tuple(sizes) if len(sizes) == len(made) else None

    return apply


def _quotient(known: Known, one: Size, other: Size) -> Size | None:
    """The quotient rounded toward zero, where the signs are known."""
    if other == 0:
        return None
    if isinstance(other, int) and other < 0:
        one, other = -one, -other
    if never_negative(one, known.bounds):
        return floor_divide(one, other)
    return -floor_divide(-one, other) if never_negative(-one, known.bounds) else None


def _remainder(known: Known, one: Size, other: Size) -> Size | None:
    quotient = _quotient(known, one, other)
    return None if quotient is None else one - quotient * other


HOLDS: dict[str, frozenset[int]] = {
    "eq": frozenset({0}),
    "ne": frozenset({-1, 1}),
    "lt": frozenset({-1}),
    "le": frozenset({-1, 0}),
    "gt": frozenset({1}),
    "ge": frozenset({0, 1}),
}
"""The signs of a difference for which a comparison holds."""


def _compared(known: Known, op: array.Compare, one: Sizes, other: Sizes) -> Sizes | None:
    results: list[int] = []
    for a, b in zip(one, other, strict=True):
        outcomes = {int(sign in HOLDS[op.predicate]) for sign in known.signs(a - b)}
        if len(outcomes) != 1:
            return None
        results += outcomes
    return tuple(results)


def _selected(known: Known, op: Op, condition: Sizes, yes: Sizes, no: Sizes) -> Sizes | None:
    if not all(isinstance(flag, int) for flag in condition):
        return None
    return tuple([a if flag else b for flag, a, b in zip(condition, yes, no, strict=True)])


def _sliced(known: Known, op: array.Slice, sizes: Sizes) -> Sizes | None:
    if len(op.starts) != 1:
        return None
    (start,), (limit,), (step,) = op.starts, op.limits, op.steps
    if isinstance(start, Dim) or isinstance(limit, Dim):
        return None
    return sizes[start:limit:step]


def _repeated(known: Known, op: array.Broadcast, sizes: Sizes) -> Sizes | None:
    count = tensor_type(op.result).size
    return sizes * count if len(sizes) == 1 and isinstance(count, int) else None


def _joined(known: Known, op: array.Concatenate, *parts: Sizes) -> Sizes | None:
    return sum(parts, ()) if op.axis == 0 else None


def _signed(known: Known, op: Op, sizes: Sizes) -> Sizes | None:
    signs = [known.sign(size) for size in sizes]
    kept = [sign for sign in signs if sign is not None]
    return tuple(kept) if len(kept) == len(signs) else None


def _both(known: Known, one: Size, other: Size) -> Size | None:
    """`and` of two bools."""
    return one * other if {one, other} <= {0, 1} else None


def _same(known: Known, op: Op, sizes: Sizes) -> Sizes:
    return sizes


def _negated(known: Known, op: Op, sizes: Sizes) -> Sizes:
    return tuple([-size for size in sizes])


_RULES: dict[type[Op], Rule] = {
    array.Add: _elementwise(lambda known, a, b: a + b),
    array.And: _elementwise(_both),
    array.Broadcast: _repeated,
    array.Cast: _same,
    array.Compare: _compared,
    array.Concatenate: _joined,
    array.Divide: _elementwise(_quotient),
    array.Maximum: _elementwise(lambda known, a, b: larger(a, b, known.bounds)),
    array.Minimum: _elementwise(lambda known, a, b: smaller(a, b, known.bounds)),
    array.Multiply: _elementwise(lambda known, a, b: a * b),
    array.Negate: _negated,
    array.Reshape: _same,
    array.Select: _selected,
    array.Sign: _signed,
    array.Slice: _sliced,
    array.Subtract: _elementwise(lambda known, a, b: a - b),
    array.TruncatedRemainder: _elementwise(_remainder),
}
"""How an operation on sizes makes sizes of them."""
