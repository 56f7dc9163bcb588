"""Computing with the sizes of tensors while importing: what operators do to constants with symbolic
sizes among their elements. Operators that are not here use them as numbers that the call will know.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial, reduce
from math import prod

import numpy as np

from dlc.importers.onnx.facts import DTYPES, Array
from dlc.importers.onnx.node_context import FOLDED, Constant, NodeContext
from dlc.importers.onnx.operators.shapes import reshaped, usually_negative
from dlc.ir.bounded import larger, never_negative, smaller
from dlc.ir.dims import Bounds, Dim, Size, floor_divide, product
from dlc.ir.equal_sizes import never_equal
from dlc.ir.types import BOOL, F32, F64, I64

Rule = Callable[[NodeContext], "Constant | None"]


def fold_sizes(context: NodeContext) -> Constant | None:
    """The result of a node on constants, some symbolic; None where that is not a size, or is much."""
    floats = any(isinstance(one, Constant) and one.dtype.is_float for one in context.operands)
    rule = None if floats and context.node.kind not in KEEPING else RULES.get(context.node.kind)
    return None if rule is None else rule(context)


def _made(array: Array, like: Constant) -> Constant:
    """An array of sizes, as plain integers where none is symbolic."""
    if array.dtype == object and not any(isinstance(item, Dim) for item in array.ravel().tolist()):
        return Constant(array.astype(like.dtype.numpy), like.dtype)
    return Constant(array, like.dtype)


def _elementwise(function: Callable[[Size, Size], Size]) -> Rule:
    return lambda context: _applied(context, function)


def _extreme(function: Callable[[Size, Size, Bounds], Size]) -> Rule:
    """The larger or the smaller sizes: an axis of an input has one element or more."""
    return lambda context: _applied(context, lambda x, y: function(x, y, context.regions.bounds))


def _applied(context: NodeContext, function: Callable[[Size, Size], Size]) -> Constant | None:
    if len(context.operands) != 2:
        return None
    x, y = context.constant(0), context.constant(1)
    if not (x.dtype.is_integer and y.dtype.is_integer):
        return None
    if prod(np.broadcast_shapes(x.array.shape, y.array.shape)) > FOLDED:
        return None
    try:
        whole = np.frompyfunc(function, 2, 1)(x.array.astype(object), y.array.astype(object))
    except ZeroDivisionError:
        raise context.wrong("divides a size by 0") from None
    return _made(np.asarray(whole, object), x)


def _compare(holds: Callable[[int, int], bool]) -> Rule:
    """The result of comparing sizes; None if it is not the same for all calls."""

    def apply(context: NodeContext) -> Constant | None:
        differences = _applied(context, lambda x, y: x - y)
        if differences is None:
            return None
        results = [_decided(holds, size, context.regions.bounds) for size in differences.sizes]
        if None in results:
            return None
        return Constant(np.asarray(results, np.bool_).reshape(differences.array.shape), BOOL)

    return apply


def _decided(holds: Callable[[int, int], bool], size: Size, bounds: Bounds) -> bool | None:
    """Whether a comparison with 0 holds for a size in all calls; None if in some only."""
    signs: set[int] = set()
    if not never_negative(size, bounds):
        signs.add(-1)
    if not never_equal(size, 0, bounds):
        signs.add(0)
    if not never_negative(-size, bounds):
        signs.add(1)
    outcomes = {holds(sign, 0) for sign in signs}
    return outcomes.pop() if len(outcomes) == 1 else None


def _division(context: NodeContext) -> Constant | None:
    return _applied(context, partial(_divide, context))


def _divide(context: NodeContext, one: Size, other: Size) -> Size:
    """Rounded toward zero: of a quotient below 0 the opposite is rounded down.

    Where the sign depends on the sizes of a call, it is that for usual ones, and each call is checked.
    """
    if _is_negative(context, other):
        one, other = -one, -other
    return -floor_divide(-one, other) if _is_negative(context, one) else floor_divide(one, other)


def _is_negative(context: NodeContext, size: Size) -> bool:
    bounds = context.regions.bounds
    if never_negative(size, bounds) or never_negative(-size, bounds):
        return not never_negative(size, bounds)
    is_negative = usually_negative(size)
    sign = "above" if is_negative else "below"
    context.require(-size if is_negative else size, f"divides {size}, which must not be {sign} 0")
    return is_negative


def _cast(context: NodeContext) -> Constant | None:
    """Sizes stay what they are in floats that hold them, to count with or to be cast back."""
    dtype = DTYPES.get(context.integer("to"))
    if dtype is None or not (dtype.is_integer or dtype in (F32, F64)):
        return None
    return Constant(context.constant(0).array, dtype)


def _slice(context: NodeContext) -> Constant | None:
    source = context.constant(0)
    if context.opset < 10:
        starts, ends = context.list("starts") or (), context.list("ends") or ()
        axes, steps = context.list("axes"), None
    else:
        starts, ends = _numbers(context, 1), _numbers(context, 2)
        axes = None if context.operand(3) is None else context.integers(3)
        steps = None if context.operand(4) is None else context.integers(4)
    if starts is None or ends is None:
        return None
    index = [slice(None)] * source.array.ndim
    every = steps or [1] * len(starts)
    for axis, start, end, stride in zip(
        axes or range(len(starts)), starts, ends, every, strict=True
    ):
        index[context.axis(axis, len(index))] = slice(start, end, stride)
    return _made(source.array[tuple(index)], source)


def _numbers(context: NodeContext, index: int) -> list[int] | None:
    """The elements of an operand, if all are numbers."""
    return None if context.constant(index).is_symbolic else context.integers(index)


def _gather(context: NodeContext) -> Constant | None:
    source, index = context.constant(0), context.constant(1)
    axis = context.axis(context.integer("axis", 0), source.array.ndim)
    if (
        index.is_symbolic
        or index.array.size * source.array.size > FOLDED * source.array.shape[axis]
    ):
        return None
    try:
        taken = np.take(source.array, np.asarray(index.array, np.int64), axis)
    except IndexError:
        raise context.wrong("takes an element that is not there") from None
    return _made(np.asarray(taken), source)


def _concat(context: NodeContext) -> Constant | None:
    parts = [context.constant(index) for index in range(len(context.operands))]
    axis = context.axis(context.integer("axis"), parts[0].array.ndim)
    if sum(part.array.size for part in parts) > FOLDED:
        return None
    whole = np.concatenate([part.array.astype(object) for part in parts], axis)
    return _made(whole, parts[0])


def _reshape(context: NodeContext) -> Constant | None:
    source = context.constant(0)
    target = _numbers(context, 1)
    if target is None:
        return None
    sizes = reshaped(context, source.array.shape, [*target])
    shape = [size for size in sizes if isinstance(size, int)]
    return Constant(source.array.reshape(shape), source.dtype)


def _squeeze(context: NodeContext) -> Constant | None:
    source = context.constant(0)
    return Constant(source.array.reshape([n for n in source.array.shape if n != 1]), source.dtype)


def _unsqueeze(context: NodeContext) -> Constant | None:
    source = context.constant(0)
    named_axes = context.list("axes") if context.opset < 13 else context.integers(1)
    axes = context.axes(named_axes or (), source.array.ndim + len(named_axes or ()))
    return Constant(np.expand_dims(source.array, axes), source.dtype)


def _reduction(whole: Callable[[NodeContext, list[Size]], Size]) -> Rule:
    """One size made of all sizes of a list."""

    def apply(context: NodeContext) -> Constant | None:
        source = context.constant(0)
        if source.array.ndim > 1 or source.dtype is not I64:
            return None
        kept = source.array.ndim if context.flag("keepdims", default=True) else 0
        return Constant.of_sizes([whole(context, source.sizes)], (1,) * kept)

    return apply


def _extreme_of(function: Callable[[Size, Size, Bounds], Size]) -> Rule:
    """The largest or the smallest size of a list."""
    return _reduction(
        lambda context, sizes: reduce(
            lambda one, other: function(one, other, context.regions.bounds), sizes
        )
    )


def _where(context: NodeContext) -> Constant | None:
    condition, yes, no = [context.constant(index) for index in range(3)]
    shapes = [one.array.shape for one in (condition, yes, no)]
    if condition.is_symbolic or prod(np.broadcast_shapes(*shapes)) > FOLDED:
        return None
    chosen = np.where(condition.array, yes.array.astype(object), no.array.astype(object))
    return _made(chosen, yes)


def _transpose(context: NodeContext) -> Constant | None:
    source = context.constant(0)
    axes = context.list("perm") or tuple(range(source.array.ndim))[::-1]
    return Constant(
        source.array.transpose(context.permutation(axes, source.array.ndim)), source.dtype
    )


def _modulo(context: NodeContext) -> Constant | None:
    return _applied(context, partial(_remainder, context))


def _remainder(context: NodeContext, one: Size, other: Size) -> Size:
    """With the sign of the divisor, or with `fmod` that of the dividend."""
    quotient = _divide(context, one, other) if context.flag("fmod") else floor_divide(one, other)
    return one - other * quotient


def _expand(context: NodeContext) -> Constant | None:
    source, shape = context.constant(0), _numbers(context, 1)
    if shape is None:
        return None
    whole = np.broadcast_shapes(source.array.shape, tuple(shape))
    return (
        None
        if prod(whole) > FOLDED
        else Constant(np.broadcast_to(source.array, whole), source.dtype)
    )


def _negative(context: NodeContext) -> Constant | None:
    source = context.constant(0)
    return _made(np.asarray(-source.array.astype(object), object), source)


KEEPING = frozenset(("Cast", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"))
"""Operators that give sizes back as they are, in floats too."""
RULES: dict[str, Rule] = {
    "Add": _elementwise(lambda x, y: x + y),
    "Cast": _cast,
    "Concat": _concat,
    "Div": _division,
    "Gather": _gather,
    "Expand": _expand,
    "Equal": _compare(operator.eq),
    "Greater": _compare(operator.gt),
    "GreaterOrEqual": _compare(operator.ge),
    "Identity": lambda context: context.constant(0),
    "Less": _compare(operator.lt),
    "LessOrEqual": _compare(operator.le),
    "Max": _extreme(larger),
    "Min": _extreme(smaller),
    "Mod": _modulo,
    "Mul": _elementwise(lambda x, y: x * y),
    "Neg": _negative,
    "ReduceMax": _extreme_of(larger),
    "ReduceMin": _extreme_of(smaller),
    "ReduceProd": _reduction(lambda _, sizes: product(sizes)),
    "ReduceSum": _reduction(lambda _, sizes: sum(sizes)),
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Sub": _elementwise(lambda x, y: x - y),
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
