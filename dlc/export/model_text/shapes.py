"""Spellings of what rearranges tensors, takes parts of them and combines elements along axes."""

from __future__ import annotations

from string import ascii_lowercase

from dlc.dialects import array
from dlc.dialects.array import tensor_type
from dlc.dialects.array.shape import inverse
from dlc.export.model_text.graph import ALL, Graph
from dlc.export.model_text.spelling import reads, spells
from dlc.export.model_text.terms import Call, Code, Cut, Index, Infix, Item, Term
from dlc.ir.core import Value
from dlc.ir.dims import Dim, Shape, Size, product
from dlc.ir.types import BOOL, F32, I32

REDUCTIONS: dict[type[array.Reduction], str] = {
    array.ReduceSum: "sum",
    array.ReduceProduct: "product",
    array.ReduceMax: "max",
    array.ReduceMin: "min",
    array.ReduceAnd: "all",
    array.ReduceOr: "any",
}
CUMULATIVE: dict[type[array.Cumulative], str] = {
    array.CumulativeSum: "cumsum",
    array.CumulativeProduct: "cumprod",
    array.CumulativeMax: "cummax",
    array.CumulativeMin: "cummin",
}
Named = tuple[tuple[str, Item], ...]


# The same elements ------------------------------------------------------------------------------


@reads(array.Reshape)
def _kept(graph: Graph, op: array.Reshape) -> Term | None:
    """A reduction whose axes stay with size 1."""
    inner = op.source.op
    if not isinstance(inner, array.Reduction) or not graph.is_used_only_by(op.source, {op}):
        return None
    source = tensor_type(inner.source).shape
    kept = tuple([1 if axis in inner.axes else size for axis, size in enumerate(source)])
    if op.shape != kept or type(inner) not in REDUCTIONS:
        return None
    return _reduced(inner, keepdims=True)


@reads(array.Reshape)
def _rows_times_matrix(graph: Graph, op: array.Reshape) -> Term | None:
    """`x @ w` where x has more axes than a matrix."""
    product_op = op.source.op
    if not isinstance(product_op, array.MatMul) or not graph.is_used_only_by(op.source, {op}):
        return None
    rows = product_op.lhs.op
    if not isinstance(rows, array.Reshape):
        return None
    left, right = tensor_type(rows.source).shape, tensor_type(product_op.rhs).shape
    if len(left) < 3 or len(right) != 2 or (*left[:-1], right[1]) != op.shape:
        return None
    if rows.shape != (product(left[:-1]), left[-1]):
        return None
    return Infix("@", rows.source, product_op.rhs)


@reads(array.Reshape)
def _element(graph: Graph, op: array.Reshape) -> Term | None:
    """A slice that takes one place of an axis, which then goes: `x[:, 2]`."""
    inner = op.source.op
    if not isinstance(inner, array.Slice) or not graph.is_used_only_by(op.source, {op}):
        return None
    sizes = tensor_type(inner.source).shape
    taken = {
        axis
        for axis, (size, start, limit) in enumerate(
            zip(sizes, inner.starts, inner.limits, strict=True)
        )
        if limit - start == 1 and size != 1
    }
    left = tuple([n for axis, n in enumerate(tensor_type(op.source).shape) if axis not in taken])
    if not taken or op.shape != left:
        return None
    places = [inner.starts[axis] if axis in taken else cut for axis, cut in enumerate(_cuts(inner))]
    while places[-1] == Cut():
        places.pop()
    return Index(inner.source, tuple(places))


@spells(array.Reshape)
def _reshape(graph: Graph, op: array.Reshape) -> Term:
    origin, shape = _origin(op), op.shape
    source = tensor_type(origin).shape
    if len(source) > 2 and len(shape) == 2 and shape == (source[0], product(source[1:])):
        return Call("flatten", (origin,))
    ones = [axis for axis, size in enumerate(source) if size == 1]
    if ones and shape == tuple([size for size in source if size != 1]):
        return Call("squeeze", (origin,), (("axis", _axes(ones)),))
    is_decided = product(source) == product(shape)
    return Call("reshape", (origin, _with_hole(shape) if is_decided else shape))


def _origin(op: array.Reshape) -> Value:
    """What is reshaped, perhaps several times."""
    source = op.source
    while isinstance(source.op, array.Reshape):
        source = source.op.source
    return source


def _with_hole(shape: Shape) -> Item:
    """The shape, with `_` for a size that is not a plain name or number and follows from the others."""
    texts = [str(size) for size in shape]
    hard = [
        k for k, text in enumerate(texts) if isinstance(shape[k], Dim) and not text.isidentifier()
    ]
    if not hard or 0 in shape:
        return shape
    return (*shape[: hard[0]], Code("_"), *shape[hard[0] + 1 :])


@spells(array.Broadcast)
def _broadcast(graph: Graph, op: array.Broadcast) -> Term:
    (item,) = graph.operands([op.result], op.shape, all_numbers=True)
    if not isinstance(item, Value | Index):
        return Call("full", (op.shape, item), _dtype_unless_natural(op.result, item))
    if item is op.result:
        item = op.source
    return Call("broadcast", (item, op.shape))


def _dtype_unless_natural(value: Value, item: Item) -> Named:
    natural = BOOL if isinstance(item, bool) else I32 if isinstance(item, int) else F32
    dtype = tensor_type(value).dtype
    return () if dtype is natural else (("dtype", dtype),)


@reads(array.Transpose, array.Gather)
def _repeated(graph: Graph, op: array.Transpose | array.Gather) -> Term | None:
    """A gather of each place of an axis several times: nearest resizing by a whole number."""
    inner = op if isinstance(op, array.Gather) else op and op.operands[0].op
    if not isinstance(inner, array.Gather) or len(inner.axes) != 1:
        return None
    order = (
        op.axes if isinstance(op, array.Transpose) else tuple(range(tensor_type(op.result).rank))
    )
    times = _times(graph, inner.indices[0], tensor_type(inner.source).shape[inner.axes[0]])
    if times is None or order != _in_place(inner):
        return None
    return Call("repeat", (inner.source, times), (("axis", inner.axes[0]),))


def _times(graph: Graph, places: Value, size: Size) -> int | None:
    """How often `arange(times * size) // times` has each number."""
    op = places.op
    if not isinstance(op, array.FloorDivide) or not isinstance(op.lhs.op, array.Iota):
        return None
    times, counted = graph.number(op.rhs), tensor_type(op.lhs).shape
    return times if isinstance(times, int) and counted == (times * size,) else None


@reads(array.Transpose)
def _taken(graph: Graph, op: array.Transpose) -> Term | None:
    """A gather along one axis, whose index stands where the axis stood."""
    inner = op.source.op
    if not isinstance(inner, array.Gather) or len(inner.axes) != 1:
        return None
    if not graph.is_used_only_by(op.source, {op}) or op.axes != _in_place(inner):
        return None
    return _indexed(inner)


def _in_place(op: array.Gather) -> tuple[int, ...]:
    """The order of axes that puts those of the index where the first that it names was."""
    front, first = tensor_type(op.indices[0]).rank, op.axes[0]
    rest = tensor_type(op.source).rank - len(op.axes)
    return (*range(front, front + first), *range(front), *range(front + first, front + rest))


def _indexed(op: array.Gather) -> Term:
    named = dict(zip(op.axes, op.indices, strict=True))
    return Index(op.source, tuple([named.get(axis, ALL) for axis in range(op.axes[-1] + 1)]))


@spells(array.Gather)
def _gather(graph: Graph, op: array.Gather) -> Term | None:
    if list(op.axes) != sorted(op.axes):
        return None
    order = _in_place(op)
    if order == tuple(range(len(order))):
        return _indexed(op)
    return Call("permute", (_indexed(op), inverse(order)))


@spells(array.Scatter)
def _scatter(graph: Graph, op: array.Scatter) -> Term | None:
    if op.axes != tuple(range(len(op.axes))):
        return None
    named: Named = (("at", tuple(op.indices)),)
    named += () if op.mode == "set" else (("mode", op.mode),)
    return Call("update", (op.target, op.updates), named)


@spells(array.NonZero)
def _nonzero(graph: Graph, op: array.NonZero) -> Term:
    """The places and how many they are."""
    named: Named = () if op.bound is None else (("bound", op.bound),)
    return Call("nonzero", (op.source,), named)


@spells(array.Transpose)
def _transpose(graph: Graph, op: array.Transpose) -> Term:
    rank = len(op.axes)
    if rank >= 2 and op.axes == (*range(rank - 2), rank - 1, rank - 2):
        return Call("transpose", (op.source,))
    return Call("permute", (op.source, op.axes))


@spells(array.Reverse)
def _reverse(graph: Graph, op: array.Reverse) -> Term:
    return Call("flip", (op.source,), (("axis", _axes(op.axes)),))


# Parts ------------------------------------------------------------------------------------------


@spells(array.Slice)
def _slice(graph: Graph, op: array.Slice) -> Term:
    places = _cuts(op)
    while places and places[-1] == Cut():
        places.pop()
    return Index(op.source, tuple(places or [ALL]))


def _cuts(op: array.Slice) -> list[Cut]:
    """The selection along each axis."""
    places: list[Cut] = []
    for size, start, limit, step in zip(
        tensor_type(op.source).shape, op.starts, op.limits, op.steps, strict=True
    ):
        stop: Item = None if limit == size else limit
        places.append(Cut(None if start == 0 else start, stop, step))
    return places


@spells(array.Concatenate)
def _concatenate(graph: Graph, op: array.Concatenate) -> Term:
    return Call("concat", (tuple(op.sources),), (("axis", op.axis),))


@spells(array.Pad)
def _pad(graph: Graph, op: array.Pad) -> Term | None:
    if any(op.interior):
        return None
    number = graph.number(op.value)
    pairs = tuple(zip(op.low, op.high, strict=True))
    filler: Item = op.value if number is None else number
    return Call("pad", (op.source, pairs), () if number == 0 else (("value", filler),))


@spells(array.Iota)
def _iota(graph: Graph, op: array.Iota) -> Term:
    named: Named = () if op.dtype is I32 else (("dtype", op.dtype),)
    if len(op.shape) == 1:
        return Call("arange", (op.shape[0],), named)
    return Call("iota", (op.shape, op.axis), named)


# Along axes -------------------------------------------------------------------------------------


@spells(*REDUCTIONS)
def _reduction(graph: Graph, op: array.Reduction) -> Term:
    return _reduced(op)


def _reduced(op: array.Reduction, *, keepdims: bool = False) -> Term:
    named: list[tuple[str, Item]] = []
    if len(op.axes) < tensor_type(op.source).rank:
        named.append(("axis", _axes(op.axes)))
    if keepdims:
        named.append(("keepdims", True))
    return Call(REDUCTIONS[type(op)], (op.source,), tuple(named))


@spells(*CUMULATIVE)
def _cumulative(graph: Graph, op: array.Cumulative) -> Term:
    flags = (("reverse", op.reverse), ("exclusive", op.exclusive))
    named = tuple([(name, flag) for name, flag in flags if flag])
    return Call(CUMULATIVE[type(op)], (op.source,), (("axis", op.axis), *named))


@spells(array.ArgMax, array.ArgMin)
def _arg(graph: Graph, op: array.ArgMax | array.ArgMin) -> Term:
    name = "argmax" if isinstance(op, array.ArgMax) else "argmin"
    places = Call(name, (op.source,), (("axis", op.axis),))
    return places if op.dtype is I32 else Call(op.dtype.name, (places,))


@spells(array.TopK)
def _top_k(graph: Graph, op: array.TopK) -> Term:
    named: Named = (("axis", op.axis),) if op.largest else (("axis", op.axis), ("largest", False))
    return Call("top_k", (op.source, op.k), named)


@spells(array.Sort)
def _sort(graph: Graph, op: array.Sort) -> Term | None:
    if len(op.values) > 1:
        return None
    named: Named = (("axis", op.axis),)
    named += (("descending", True),) if op.descending else ()
    return Call("sort_pairs" if op.values else "sort", (op.keys, *op.values), named)


# Products ---------------------------------------------------------------------------------------


@spells(array.MatMul)
def _matmul(graph: Graph, op: array.MatMul) -> Term:
    return Infix("@", op.lhs, op.rhs)


@spells(array.DotGeneral)
def _dot_general(graph: Graph, op: array.DotGeneral) -> Term:
    """A product along any axes, with letters for them."""
    letters = iter(ascii_lowercase)
    left = {axis: next(letters) for axis in range(tensor_type(op.lhs).rank)}
    shared = dict(
        zip(
            (*op.rhs_batch, *op.rhs_contract),
            [left[axis] for axis in (*op.lhs_batch, *op.lhs_contract)],
            strict=True,
        )
    )
    right = {axis: shared.get(axis) or next(letters) for axis in range(tensor_type(op.rhs).rank)}
    batch = "".join(left[axis] for axis in op.lhs_batch)
    used = (*op.lhs_batch, *op.lhs_contract)
    rows = "".join(left[axis] for axis in left if axis not in used)
    columns = "".join(right[axis] for axis in right if axis not in shared)
    sides = f"{''.join(left.values())},{''.join(right.values())}->{batch}{rows}{columns}"
    return Call("einsum", (sides, op.lhs, op.rhs))


def _axes(axes: list[int] | tuple[int, ...]) -> Item:
    return axes[0] if len(axes) == 1 else tuple(axes)
