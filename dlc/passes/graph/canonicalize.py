"""Canonicalization: fold constants, drop identities, put constants to the right.

Every rule here keeps all bits, but for the sign of a zero. Rules that round differently are in
`dlc.passes.graph.algebra`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from dlc.dialects import array
from dlc.dialects.array.elementwise import tensor_type
from dlc.ir.attributes import Dense, decode
from dlc.ir.core import OPS, Array, Block, Evaluation, Op, Value
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL, Pattern, Rewriter
from dlc.ir.types import TensorType

OpT = TypeVar("OpT", bound=Op)

RULES: dict[type[Op], list[Pattern[Any]]] = {}
"""The rules of this pass, by the operation that they look at."""


def rule(*classes: type[OpT]) -> Callable[[Pattern[OpT]], Pattern[OpT]]:
    """Register a rule for operations of exactly these classes."""

    def apply(pattern: Pattern[OpT]) -> Pattern[OpT]:
        for cls in classes:
            RULES.setdefault(cls, []).append(pattern)
        return pattern

    return apply


@define_pass("canonicalize")
def canonicalize(module: Op, context: Context) -> None:
    """Fold constants and drop identities; no bit changes but the sign of zero."""
    context.rewriter.run(graph_blocks(module), folding_rules())


def graph_blocks(module: Op) -> list[Block]:
    """Every block of the module that holds graph operations, outer ones first."""
    return [region for op in module.walk() for region in op.regions if op is not module]


def folding_rules() -> dict[type[Op], list[Pattern[Any]]]:
    """The rules of this pass, and those of operations that fold themselves."""
    folding = {cls: (fold,) for cls in OPS.values() if cls.fold is not Op.fold}
    return {cls: [*RULES.get(cls, ()), *folding.get(cls, ())] for cls in {**RULES, **folding}}


def fold(op: Op, rewriter: Rewriter) -> bool:
    """An operation that is a constant, or one of its operands, as its class says."""
    if len(op.results) != 1 or not op.pure:
        return False
    folded = op.fold()
    match folded:
        case None:
            return False
        case Dense():
            new = rewriter.before(op)(constant(folded))
        case Value():
            new = folded
    rewriter.replace(op, new, relation=EQUAL)
    return True


def constant(value: Dense) -> Op:
    """The constant in its canonical form: a fill if all elements are the same."""
    if value.is_splat and value.type.size != 0:
        element = decode(value.array.reshape(-1)[:1], value.type.dtype)[0].item()
        if element == element and element != 0:  # neither NaN nor a zero with a sign to lose
            return array.Fill(element, value.type)
        if element == 0 and not math.copysign(1, element) < 0:
            return array.Fill(element, value.type)
    return array.Constant(value)


def number(value: Value) -> bool | int | float | None:
    """The number that is everywhere in a tensor, if that is known."""
    return value.op.value if isinstance(value.op, array.Fill) else None


@rule(array.Constant)
def splat_is_fill(op: array.Constant, rewriter: Rewriter) -> bool:
    """A constant with one number everywhere is a fill."""
    new = constant(op.value)
    if not isinstance(new, array.Fill):
        return False
    rewriter.replace(op, rewriter.before(op)(new), relation=EQUAL)
    return True


@rule(*[cls for cls in OPS.values() if issubclass(cls, array.Elementwise)], array.Compare)
def fold_of_fills(op: Op, rewriter: Rewriter) -> bool:
    """A function of fills is a fill, whatever its size."""
    new = known_result(op)
    if new is None:
        return False
    rewriter.replace(op, rewriter.before(op)(new), relation=EQUAL)
    return True


def known_result(op: Op) -> array.Fill | None:
    """The fill that an element-wise operation on fills amounts to; None where that is not known."""
    if isinstance(op, array.Elementwise) and not op.is_exact:
        return None
    elements: list[Array] = []
    for operand in op.operands:
        value = number(operand)
        if value is None:
            return None
        splat = Dense.splat(value, TensorType(tensor_type(operand).dtype))
        elements.append(np.asarray(splat.array))
    result = op.evaluate(Evaluation(), *elements)
    assert not isinstance(result, tuple)
    type = tensor_type(op.result)
    found = constant(Dense.of(np.asarray(result), type.dtype))
    return array.Fill(found.value, type) if isinstance(found, array.Fill) else None


@rule(*[cls for cls in OPS.values() if cls.commutative])
def constant_to_the_right(op: Op, rewriter: Rewriter) -> bool:
    """`2 + x` is written `x + 2`."""
    lhs, rhs = op.operands
    if not _is_constant(lhs) or _is_constant(rhs):
        return False
    op.set_operands([rhs, lhs])
    return True


def _is_constant(value: Value) -> bool:
    return isinstance(value.op, array.Fill | array.Constant)


NEUTRAL_RIGHT: dict[type[Op], float] = {
    array.Add: 0,
    array.Subtract: 0,
    array.Multiply: 1,
    array.Divide: 1,
    array.Power: 1,
}
"""The number that changes nothing as right operand (`-0 + 0` is `+0`: the sign of zero may change)."""


@rule(*NEUTRAL_RIGHT)
def neutral_operand(op: Op, rewriter: Rewriter) -> bool:
    """`x + 0`, `x - 0`, `x * 1`, `x / 1` and `x ** 1` are x."""
    lhs, rhs = op.operands
    if number(rhs) != NEUTRAL_RIGHT[type(op)] or isinstance(number(rhs), bool):
        return False
    rewriter.replace(op, lhs, relation=EQUAL)
    return True


@rule(array.Multiply)
def times_zero(op: Op, rewriter: Rewriter) -> bool:
    """`x * 0` is 0 for integers; floats may be infinite or NaN."""
    lhs, rhs = op.operands
    if number(rhs) != 0 or not tensor_type(lhs).dtype.is_integer:
        return False
    rewriter.replace(op, rhs, relation=EQUAL)
    return True


@rule(array.Add)
def twice(op: Op, rewriter: Rewriter) -> bool:
    """`x + x` is `x * 2`, which meets other factors."""
    lhs, rhs = op.operands
    if lhs is not rhs or _is_constant(lhs):
        return False
    emit = rewriter.before(op)
    two = array.constant_like(emit, 2, lhs)
    rewriter.replace(op, emit(array.Multiply(lhs, two)), relation=EQUAL)
    return True


@rule(array.Add)
def parts_side_by_side(op: Op, rewriter: Rewriter) -> bool:
    """Parts of an array with zeros around them, of which one begins where the other ends, are concatenated.

    The gradients of its slices add up to that of an array.
    """
    match [operand.op for operand in op.operands]:
        case [array.Pad() as one, array.Pad() as other]:
            pairs = ((one, other), (other, one))
        case _:
            return False
    for first, second in pairs:
        axis = _axis_between(first, second)
        if axis is not None:
            emit = rewriter.before(op)
            pieces = [piece for part in (first, second) for piece in _pieces(part.source, axis)]
            joined = emit(array.Concatenate(pieces, axis))
            whole = array.Pad(joined, first.value, first.low, second.high, first.interior)
            rewriter.replace(op, emit(whole), relation=EQUAL)
            return True
    return False


def _axis_between(first: array.Pad, second: array.Pad) -> int | None:
    """The axis along which the second part begins where the first ends; None where it does not."""
    if any((*first.interior, *second.interior)):
        return None
    if number(first.value) != 0 or number(second.value) != 0:
        return None
    first_around, second_around = (
        list(zip(part.low, part.high, strict=True)) for part in (first, second)
    )
    axes = [k for k, pair in enumerate(first_around) if pair != second_around[k]]
    if len(axes) != 1:
        return None
    (axis,) = axes
    end = first.low[axis] + tensor_type(first.source).shape[axis]
    return axis if second.low[axis] == end else None


def _pieces(value: Value, axis: int) -> list[Value]:
    """What a value was concatenated from along an axis; itself if it was not."""
    joined = value.op
    if isinstance(joined, array.Concatenate) and joined.axis == axis:
        return list(joined.operands)
    return [value]


@rule(array.Multiply)
def merge_powers_of_two(op: Op, rewriter: Rewriter) -> bool:
    """`(x * 2) * 4` is `x * 8`: exact, as long as both factors scale in the same direction."""
    lhs, rhs = op.operands
    outer = number(rhs)
    if not isinstance(lhs.op, array.Multiply) or not isinstance(outer, float):
        return False
    inner = number(lhs.op.rhs)
    if not isinstance(inner, float) or not _grow_exactly(inner, outer):
        return False
    emit = rewriter.before(op)
    merged = array.fill(emit, inner * outer, tensor_type(op.result))
    rewriter.replace(op, emit(array.Multiply(lhs.op.lhs, merged)), relation=EQUAL)
    return True


def _grow_exactly(inner: float, outer: float) -> bool:
    """Whether both are powers of two above 1, with a product that every float dtype holds."""
    return (
        all(factor > 1 and math.frexp(factor)[0] == 0.5 for factor in (inner, outer))
        and inner * outer <= 2.0**15
    )


@rule(array.Select)
def known_condition(op: array.Select, rewriter: Rewriter) -> bool:
    """A choice whose condition is known everywhere."""
    condition = number(op.condition)
    if condition is None:
        return False
    rewriter.replace(op, op.yes if condition else op.no, relation=EQUAL)
    return True


@rule(array.Reshape)
def merge_reshapes(op: array.Reshape, rewriter: Rewriter) -> bool:
    """A reshape of a reshape, of a fill, or of a small constant."""
    emit = rewriter.before(op)
    match op.source.op:
        case array.Reshape(source=origin):
            new = emit(array.Reshape(origin, op.shape))
        case array.Fill(value=value):
            new = emit(array.Fill(value, tensor_type(op.result)))
        case array.Constant(value=value):
            new = emit(array.Constant(Dense(tensor_type(op.result), value.data)))
        case _:
            return False
    rewriter.replace(op, new, relation=EQUAL)
    return True


@rule(array.Transpose)
def merge_transposes(op: array.Transpose, rewriter: Rewriter) -> bool:
    """A transpose of a transpose or of a fill; one that moves only axes of size 1 is a reshape."""
    emit = rewriter.before(op)
    shape = tensor_type(op.source).shape
    long = [axis for axis in op.axes if shape[axis] != 1]
    match op.source.op:
        case array.Transpose(source=origin, axes=inner):
            new = emit(array.Transpose(origin, tuple([inner[axis] for axis in op.axes])))
        case array.Fill(value=value):
            new = emit(array.Fill(value, tensor_type(op.result)))
        case _ if long == sorted(long):
            new = emit(array.Reshape(op.source, tensor_type(op.result).shape))
        case _:
            return False
    rewriter.replace(op, new, relation=EQUAL)
    return True


@rule(array.Broadcast)
def merge_broadcasts(op: array.Broadcast, rewriter: Rewriter) -> bool:
    """A broadcast of a broadcast or of a fill; one that only adds axes of size 1 is a reshape."""
    emit = rewriter.before(op)
    match op.source.op:
        case array.Fill(value=value):
            new = emit(array.Fill(value, tensor_type(op.result)))
        case array.Broadcast(source=origin, axes=inner):
            axes = tuple([op.axes[axis] for axis in inner])
            new = emit(array.Broadcast(origin, op.shape, axes))
        case _ if tensor_type(op.result).size == tensor_type(op.source).size:
            new = emit(array.Reshape(op.source, op.shape))
        case _:
            return False
    rewriter.replace(op, new, relation=EQUAL)
    return True


@rule(array.ReduceSum)
def sum_of_one(op: array.ReduceSum, rewriter: Rewriter) -> bool:
    """A sum along axes of size 1 is a reshape."""
    shape = tensor_type(op.source).shape
    if any(shape[axis] != 1 for axis in op.axes):
        return False
    new = rewriter.before(op)(array.Reshape(op.source, tensor_type(op.result).shape))
    rewriter.replace(op, new, relation=EQUAL)
    return True
