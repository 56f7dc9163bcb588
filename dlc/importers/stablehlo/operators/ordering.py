"""Sorting by a comparison, and the k largest elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects import array
from dlc.dialects.array import tensor_type
from dlc.dialects.array.shape import inverse, transpose
from dlc.dialects.nn.rows import in_dtype
from dlc.importers.stablehlo.node_context import Importer, Made, NodeContext
from dlc.importers.stablehlo.operators.elementwise import evened, total_order
from dlc.importers.stablehlo.operators.formulas import Formula, Part, formulas
from dlc.ir.core import Value
from dlc.ir.types import BOOL, I64, U8, TensorType

MOST = 1 << 11
"""So long an axis may be that is sorted by comparing each two of its elements."""


@dataclass(frozen=True, slots=True)
class _Key:
    """One of the operands as a key. `total` is whether -0 comes before 0, and -NaN before all."""

    operand: int
    descending: bool
    total: bool


def _sort(context: NodeContext) -> Made:
    axis, xs = context.integer("dimension"), list(context.operands)
    rank = tensor_type(xs[0]).rank
    axis %= max(rank, 1)
    if rank == 0 or tensor_type(xs[0]).shape[axis] in (0, 1):
        return xs
    keys = _keys(formulas(context.region())[0])
    if keys is None:
        return _by_ranks(context, xs, axis)
    for key in reversed(keys):
        xs = _sorted(context, xs, key, axis)
    return xs


def _sorted(context: NodeContext, xs: Sequence[Value], key: _Key, axis: int) -> list[Value]:
    """The operands in the order of one of them; what is equal keeps its order."""
    emit, chosen = context.emit, xs[key.operand]
    dtype = tensor_type(chosen).dtype
    others = [x for place, x in enumerate(xs) if place != key.operand]
    if key.total and dtype.is_float:
        _, *made = emit.all(array.Sort(total_order(emit, chosen), tuple(xs), axis, key.descending))
        return list(made)
    if dtype is BOOL:
        chosen = emit(array.Cast(chosen, U8))
    first, *made = emit.all(array.Sort(chosen, tuple(others), axis, key.descending))
    made.insert(key.operand, in_dtype(emit, first, dtype))
    return made


def _keys(found: Formula) -> list[_Key] | None:
    """The keys of a comparison, the most important first; None for another function."""
    match found:
        case ("compare", "LT" | "GT" as direction, kind, one, other):
            key = _key(one, other)
            if key is None:
                return None
            place, normal, swapped = key
            total = kind == "TOTALORDER" and not normal
            return [_Key(place, (direction == "GT") != swapped, total)]
        case ("or", one, other):
            return _chained(one, other) or _chained(other, one)
        case ("select", ("compare", "EQ", _, one, other), later, earlier):
            return _then(earlier, (one, other), later)
        case _:
            return None


def _chained(first: Part, second: Part) -> list[_Key] | None:
    """`x < y or (x == y and ...)`."""
    match second:
        case ("and", ("compare", "EQ", _, one, other), rest):
            return _then(first, (one, other), rest)
        case ("and", rest, ("compare", "EQ", _, one, other)):
            return _then(first, (one, other), rest)
        case _:
            return None


def _then(first: Part, equal: tuple[Part, Part], rest: Part) -> list[_Key] | None:
    if not isinstance(first, tuple) or not isinstance(rest, tuple):
        return None
    one, more, same = _keys(first), _keys(rest), _key(*equal)
    if one is None or more is None or same is None or len(one) != 1:
        return None
    return [*one, *more] if one[0].operand == same[0] else None


def _key(one: Part, other: Part) -> tuple[int, bool, bool] | None:
    """The operand that two expressions are elements of, whether they are made normal, and are swapped."""
    left, right = _argument(one), _argument(other)
    if left is None or right is None or left[0] // 2 != right[0] // 2 or left[0] == right[0]:
        return None
    return left[0] // 2, left[1] and right[1], left[0] > right[0]


def _argument(found: Part) -> tuple[int, bool] | None:
    """The argument that an expression is, and whether its zeros and NaNs are made alike before."""
    match found:
        case ("argument", int(index)):
            return index, False
        case ("select", ("compare", "EQ" | "NE", _, *_), ("constant" | "outer", _), rest):
            inner = _argument(rest)
            return inner and (inner[0], True)
        case _:
            return None


def _by_ranks(context: NodeContext, xs: Sequence[Value], axis: int) -> list[Value]:
    """By any comparison: the place of an element is the number of those that come before it."""
    emit = context.emit
    shape = tensor_type(xs[0]).shape
    count = shape[axis]
    if not isinstance(count, int) or count > MOST:
        raise context.unsupported(f"by such a comparison of {count} elements is not imported")
    order = (*[k for k in range(len(shape)) if k != axis], axis)
    rows = [transpose(emit, x, order) for x in xs]
    kept = tuple([shape[k] for k in order[:-1]])
    square = (*kept, count, count)
    front = tuple(range(len(kept)))
    mine = [emit(array.Broadcast(row, square, (*front, len(kept)))) for row in rows]
    other = [emit(array.Broadcast(row, square, (*front, len(kept) + 1))) for row in rows]
    before = _compared(context, other, mine)
    after = _compared(context, mine, other)
    index = TensorType(I64, square)
    earlier = emit(
        array.Compare(
            array.iota(emit, index, len(kept) + 1), array.iota(emit, index, len(kept)), "lt"
        )
    )
    tied = emit(array.And(emit(array.Not(after)), earlier))
    first = emit(array.Cast(emit(array.Or(before, tied)), I64))
    ranks = emit(array.ReduceSum(first, (len(kept) + 1,)))
    _, *made = emit.all(array.Sort(ranks, tuple(rows), len(kept)))
    return [transpose(emit, row, inverse(order)) for row in made]


def _compared(context: NodeContext, one: Sequence[Value], other: Sequence[Value]) -> Value:
    pairs = [value for pair in zip(one, other, strict=True) for value in pair]
    (found,) = context.regions.applied(context.region(), pairs, context.emit)
    return evened(context.emit, [found, one[0]])[0]


IMPORTERS: dict[str, Importer] = {"stablehlo.sort": _sort}
