"""Reductions by any function of two numbers, or of two rows of numbers."""

from __future__ import annotations

from collections.abc import Callable

from dlc.dialects import array, numeric
from dlc.dialects.array import tensor_type
from dlc.dialects.array.shape import reshape, transpose
from dlc.importers.stablehlo.facts import Region
from dlc.importers.stablehlo.node_context import Importer, Made, NodeContext
from dlc.importers.stablehlo.operators.elementwise import evened
from dlc.importers.stablehlo.operators.formulas import Formula, combined_by, formulas
from dlc.ir.core import Builder, Op, Value
from dlc.ir.dims import product
from dlc.ir.types import BOOL, DType

REDUCTIONS: dict[str, Callable[[Value, tuple[int, ...]], Op]] = {
    "add": array.ReduceSum,
    "multiply": array.ReduceProduct,
    "maximum": array.ReduceMax,
    "minimum": array.ReduceMin,
    "and": array.ReduceAnd,
    "or": array.ReduceOr,
}
ON_BOOLS = {"add": "or", "maximum": "or", "multiply": "and", "minimum": "and"}


def combination(region: Region, dtype: DType) -> str | None:
    """The operation that a region is on numbers of a dtype; those of bools are `and` and `or`."""
    found = combined_by(region)
    return ON_BOOLS.get(found, found) if found is not None and dtype is BOOL else found


def identity(kind: str, dtype: DType) -> float | None:
    """The number that an operation leaves others as they are with."""
    match kind:
        case "add" | "or" | "xor":
            return 0
        case "multiply":
            return 1
        case "maximum":
            return numeric.lowest(dtype)
        case "minimum":
            return numeric.highest(dtype)
        case "and":
            return 1 if dtype is BOOL else -1 if dtype.kind == "int" else (1 << dtype.bits) - 1
        case _:
            return None


def _reduce(context: NodeContext) -> Made:
    axes = tuple(sorted(context.integers("dimensions")))
    count = len(context.operands) // 2
    if count == 1:
        return _of_one(context, axes)
    xs, initial = context.operands[:count], context.operands[count:]
    extremes = _index_of_extreme(context, axes) if count == 2 else None
    return extremes or reduced(context, list(xs), list(initial), axes)


def _of_one(context: NodeContext, axes: tuple[int, ...]) -> Made:
    emit, x, initial = context.emit, context.value(0), context.value(1)
    dtype = tensor_type(x).dtype
    kind = combination(context.region(), dtype)
    if kind not in REDUCTIONS:
        return reduced(context, [x], [initial], axes)
    result = emit(REDUCTIONS[kind](x, axes)) if axes else x
    return with_initial(context, context.region(), kind, result, initial)


def with_initial(
    context: NodeContext, region: Region, kind: str, result: Value, initial: Value
) -> Value:
    """A result combined with the first value, unless that changes nothing."""
    neutral = identity(kind, tensor_type(result).dtype)
    if neutral is not None and context.known.is_number(initial, neutral):
        return result
    emit = context.emit
    (found,) = context.regions.applied(region, evened(emit, [initial, result]), emit)
    return found


def reduced(
    context: NodeContext, xs: list[Value], initial: list[Value], axes: tuple[int, ...]
) -> list[Value]:
    """Tensors reduced by the region: neighbours are combined, until one is left."""
    emit = context.emit
    shape = tensor_type(xs[0]).shape
    kept = tuple([axis for axis in range(len(shape)) if axis not in axes])
    rest = tuple([shape[axis] for axis in kept])
    count = product(shape[axis] for axis in axes)
    if not isinstance(count, int):
        raise context.unsupported("by such a function along a size of the call is not imported")
    rows = [reshape(emit, transpose(emit, x, (*axes, *kept)), (count, *rest)) for x in xs]
    started = [emit(array.Broadcast(value, rest, ())) for value in initial]
    if count == 0:
        return started
    last = [reshape(emit, row, rest) for row in paired(context, context.region(), rows)]
    found = context.regions.applied(context.region(), [*started, *last], emit)
    return evened(emit, [*found, *started])[: len(found)]


def paired(context: NodeContext, region: Region, rows: list[Value]) -> list[Value]:
    """Tensors whose first axes were combined to one row."""
    emit = context.emit
    count = tensor_type(rows[0]).shape[0]
    assert isinstance(count, int)
    while count > 1:
        even = count - count % 2
        first, second = (
            [_every_second(emit, row, start, even) for row in rows] for start in (0, 1)
        )
        made = context.regions.applied(region, [*first, *second], emit)
        made = evened(emit, [*made, *first])[: len(rows)]
        if count % 2:
            left = [array.slice_axis(emit, row, 0, even, count) for row in rows]
            pairs = zip(made, left, strict=True)
            made = [emit(array.Concatenate((one, other), 0)) for one, other in pairs]
        rows, count = made, (count + 1) // 2
    return rows


def _every_second(emit: Builder, row: Value, start: int, limit: int) -> Value:
    shape = tensor_type(row).shape
    zeros = (0,) * (len(shape) - 1)
    ones = (1,) * len(zeros)
    return emit(array.Slice(row, (start, *zeros), (limit, *shape[1:]), (2, *ones)))


# Indices of extremes ------------------------------------------------------------------------------


def _index_of_extreme(context: NodeContext, axes: tuple[int, ...]) -> list[Value] | None:
    """The extreme and its index, where the second tensor numbers the places along the one axis."""
    which = _extreme(formulas(context.region()))
    x, index = context.value(0), context.value(1)
    dtype = tensor_type(index).dtype
    if which is None or len(axes) != 1 or not _is_iota(index, axes[0]) or dtype.bits < 32:
        return None
    if tensor_type(x).shape[axes[0]] == 0:
        return None
    emit = context.emit
    worst = numeric.lowest if which == "GT" else numeric.highest
    if not context.known.is_number(context.value(2), worst(tensor_type(x).dtype)):
        return None
    reduction, place = (
        (array.ReduceMax, array.ArgMax) if which == "GT" else (array.ReduceMin, array.ArgMin)
    )
    found = emit(place(x, axes[0]))
    found = found if tensor_type(found).dtype is dtype else emit(array.Cast(found, dtype))
    return [emit(reduction(x, axes)), found]


def _is_iota(value: Value, axis: int) -> bool:
    op = value.op
    while isinstance(op, array.Cast):
        op = op.source.op
    return isinstance(op, array.Iota) and op.axis == axis


def _extreme(found: tuple[Formula, ...]) -> str | None:
    """`GT` or `LT` for the function by which JAX finds the index of a maximum or minimum."""
    x, i, y, j = (("argument", k) for k in range(4))
    for which in ("GT", "LT"):
        for kind in ("FLOAT", "SIGNED", "UNSIGNED", ""):
            better = ("compare", which, kind, x, y)
            unordered = ("compare", "NE", kind, x, x)
            equal = ("compare", "EQ", kind, x, y)
            for number in ("SIGNED", "UNSIGNED", ""):
                earlier = ("compare", "LT", number, i, j)
                keep = _either(better, unordered)
                first = _either(keep, ("and", *sorted((equal, earlier), key=repr)))
                if found == (("select", keep, x, y), ("select", first, i, j)):
                    return which
    return None


def _either(one: Formula, other: Formula) -> Formula:
    return ("or", *sorted((one, other), key=repr))


IMPORTERS: dict[str, Importer] = {"stablehlo.reduce": _reduce}
