"""Operators that gather, scatter or locate elements."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array, nn
from dlc.dialects.array import tensor_type
from dlc.dialects.array.arithmetic import plus, times
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.nn.rows import in_dtype, numbers
from dlc.importers.broadcasting import stretched
from dlc.importers.torch.facts import Ref
from dlc.importers.torch.node_context import Importer, NodeContext, Operand
from dlc.importers.torch.operators.shapes import taken
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Dim, Shape, Size
from dlc.ir.types import BOOL, F64, I64, TensorType

MODES = {"sum": "add", "prod": "multiply", "amax": "max", "amin": "min", "add": "add",
         "multiply": "multiply"}  # fmt: skip
"""The ways of combining an update with the element in its place, by their names in PyTorch."""


def from_start(emit: Builder, index: Value, size: Size) -> Value:
    """Indices of an axis, of which negative ones count from the end, as such that do not."""
    index = in_dtype(emit, index, I64)
    negative = emit(array.Compare(index, array.constant_like(emit, 0, index), "lt"))
    behind = emit(array.Add(index, numbers(emit, size, tensor_type(index))))
    return emit(array.Select(negative, behind, index))


# Taking -------------------------------------------------------------------------------------------


def _embedding(context: NodeContext) -> Operand:
    """Rows of a table; the padding's row is one like others.

    The first rows in their order, as of a table of positions, are a slice: it bounds their number.
    """
    emit, table, index = context.emit, context.value("weight"), context.value("indices")
    if not _counts_from_zero(index):
        return nn.embedding(emit, table, index)
    type = tensor_type(index)
    rows = array.slice_axis(emit, table, 0, 0, type.size)
    return reshape(emit, rows, (*type.shape, tensor_type(table).shape[1]))


def _counts_from_zero(index: Value) -> bool:
    """Whether indices are 0, 1, 2 and so on, in any shape."""
    while isinstance(index.op, array.Reshape | array.Cast):
        index = index.op.source
    return isinstance(index.op, array.Iota) and tensor_type(index).rank == 1


def _index_select(context: NodeContext) -> Operand:
    x = context.value("self")
    axis = context.axis("dim", tensor_type(x).rank)
    index = context.value("index")
    return taken(context.emit, x, reshape(context.emit, index, (tensor_type(index).size,)), axis)


def _gather(context: NodeContext) -> Operand:
    """Along one axis; the others may be shorter in the index than in the tensor."""
    emit, x, index = context.emit, context.value("self"), context.value("index")
    if not tensor_type(x).rank:
        return x
    return array.take_along(emit, x, index, context.axis("dim", tensor_type(x).rank))


def _index(context: NodeContext) -> Operand:
    """Advanced indexing: axes that stand side by side stay where the first was, others go to the front."""
    emit, x = context.emit, context.value("self")
    indices, axes = _indices(context, x)
    if not axes:
        return x
    found = emit(array.Gather(x, tuple(indices), tuple(axes)))
    first = axes[0]
    if axes != list(range(first, first + len(axes))) or first == 0:
        return found
    front, rank = tensor_type(indices[0]).rank, tensor_type(found).rank
    order = (*range(front, front + first), *range(front), *range(front + first, rank))
    return transpose(emit, found, order)


def _indices(context: NodeContext, x: Value) -> tuple[list[Value], list[int]]:
    """The index tensors in one shape, and the axis of each; a mask counts as one for each of its axes."""
    emit = context.emit
    found: list[Value] = []
    axes: list[int] = []
    axis = 0
    given = context.given("indices")
    for part in given if isinstance(given, tuple) else ():
        if part is None:
            axis += 1
            continue
        index = context.as_value(part, "indices")
        if tensor_type(index).dtype is BOOL:
            for places in _where_true(context, index):
                found.append(places)
                axes.append(axis)
                axis += 1
            continue
        found.append(from_start(emit, index, tensor_type(x).shape[axis]))
        axes.append(axis)
        axis += 1
    shape = _common_shape([tensor_type(index).shape for index in found])
    return [stretched(emit, index, shape) for index in found], axes


def _common_shape(shapes: Sequence[Shape]) -> Shape:
    rank = max(map(len, shapes), default=0)
    sizes: list[Size] = []
    for axis in range(-rank, 0):
        others = [shape[axis] for shape in shapes if len(shape) >= -axis and shape[axis] != 1]
        sizes.append(others[0] if others else 1)
    return tuple(sizes)


def _where_true(context: NodeContext, mask: Value) -> list[Value]:
    """The places of a mask, one tensor for each axis; their number is the size that the result has."""
    shape = context.type.shape
    if "values" in context.node.arguments:
        shape = context.tensor("values").shape
    fresh = [str(size) for size in shape if isinstance(size, Dim) and _is_counted(str(size))]
    return _columns(context.emit, context.regions.places(context.emit, mask, fresh))


def _is_counted(name: str) -> bool:
    """Whether a size is one that PyTorch counts while the model runs."""
    return name[:1] == "u" and name[1:].isdigit()


def _columns(emit: Builder, rows: Value) -> list[Value]:
    count, width = tensor_type(rows).shape
    assert isinstance(width, int)
    return [
        reshape(emit, array.slice_axis(emit, rows, 1, k, k + 1), (count,)) for k in range(width)
    ]


def _masked_select(context: NodeContext) -> Operand:
    """The elements where the mask is true, in one row."""
    x, mask = context.value("self"), context.value("mask")
    shape = _common_shape([tensor_type(x).shape, tensor_type(mask).shape])
    x, mask = (stretched(context.emit, each, shape) for each in (x, mask))
    axes = tuple(range(len(shape)))
    return context.emit(array.Gather(x, tuple(_where_true(context, mask)), axes))


def _nonzero(context: NodeContext) -> Operand:
    name = str(context.type.shape[0])
    return context.regions.places(context.emit, context.value("self"), [name])


def _where(context: NodeContext) -> Operand:
    """The places where a tensor is not 0, one tensor for each axis."""
    names = [str(type.shape[0]) for type in context.node.types if type is not None]
    mask = context.value("condition")
    return tuple(_columns(context.emit, context.regions.places(context.emit, mask, names[:1])))


def _counted_part(context: NodeContext) -> Operand:
    """As many elements as the call counts: fails where the tensor has fewer."""
    emit, x = context.emit, context.value("source")
    for axis, size in enumerate(context.type.shape):
        if tensor_type(x).shape[axis] != size:
            x = taken(emit, x, array.iota(emit, TensorType(I64, (size,)), 0), axis)
    return x


# Putting ------------------------------------------------------------------------------------------


def _index_put(context: NodeContext) -> Operand:
    emit, x = context.emit, context.value("self")
    mask = _only_mask(context)
    if mask is not None:
        return _masked_put(context, x, mask)
    indices, axes = _indices(context, x)
    shape = tensor_type(x).shape
    front = tensor_type(indices[0]).shape
    first = axes[0]
    rest = [size for axis, size in enumerate(shape) if axis not in axes]
    updates = context.value("values", tensor_type(x).dtype)
    if axes == list(range(first, first + len(axes))) and first > 0:
        # The updates have the indexed axes where the first of them was; a scatter has them in front.
        before = first
        laid = (*shape[:before], *front, *shape[first + len(axes) :])
        updates = stretched(emit, updates, laid)
        order = (
            *range(before, before + len(front)),
            *range(before),
            *range(before + len(front), len(laid)),
        )
        updates = transpose(emit, updates, order)
    else:
        updates = stretched(emit, updates, (*front, *rest))
    mode = "add" if context.flag("accumulate") else "set"
    return emit(array.Scatter(x, updates, tuple(indices), tuple(axes), mode))


def _only_mask(context: NodeContext) -> Value | None:
    """The mask, where one of all leading axes is the only index and one number goes to its places."""
    given = context.given("indices")
    if not (isinstance(given, tuple) and len(given) == 1 and isinstance(given[0], Ref)):
        return None
    index = context.as_value(given[0], "indices")
    is_mask = tensor_type(index).dtype is BOOL
    return index if is_mask and context.tensor("values").size == 1 else None


def _masked_put(context: NodeContext, x: Value, mask: Value) -> Value:
    emit, type = context.emit, tensor_type(x)
    kept = tuple(range(tensor_type(mask).rank))
    wide = emit(array.Broadcast(mask, type.shape, kept)) if type.rank > len(kept) else mask
    value = reshape(emit, context.value("values", type.dtype), ())
    value = stretched(emit, value, type.shape)
    if context.flag("accumulate"):
        value = emit(array.Add(x, value))
    return emit(array.Select(wide, value, x))


def _scatter(mode: str | None = None) -> Importer:
    """Along one axis; a number is put everywhere."""

    def apply(context: NodeContext) -> Operand:
        emit, x, index = context.emit, context.value("self"), context.value("index")
        type, places = tensor_type(x), tensor_type(index)
        name = "src" if "src" in context.node.arguments else "value"
        updates = context.value(name, type.dtype)
        if tensor_type(updates).rank == 0:
            updates = stretched(emit, updates, places.shape)
        elif tensor_type(updates).shape != places.shape:
            # The index may be shorter than the updates: the others are left out.
            updates = emit(
                array.Slice(updates, (0,) * places.rank, places.shape, (1,) * places.rank)
            )
        reduce = context.text("reduce")
        how = mode or (MODES.get(reduce, "set") if reduce else "set")
        if reduce == "mean" or context.given("include_self") == 0:
            raise context.unsupported(
                f"with reduce={reduce!r} without the old values is not imported"
            )
        axis = context.axis("dim", type.rank)
        return array.put_along(emit, x, updates, index, axis, how, unique=False)

    return apply


def _index_add(context: NodeContext) -> Operand:
    emit, x, source = context.emit, context.value("self"), context.value("source", context.dtype)
    axis = context.axis("dim", tensor_type(x).rank)
    order = (axis, *[k for k in range(tensor_type(x).rank) if k != axis])
    rows = transpose(emit, source, order)
    return emit(array.Scatter(x, rows, (context.value("index"),), (axis,), "add"))


def _masked_scatter(context: NodeContext) -> Operand:
    """The elements of the source, in order, at the places of the mask."""
    emit, type = context.emit, context.type
    x, source = context.value("self"), context.value("source")
    mask = context.stretched("mask", dtype=BOOL)
    size = type.size
    flat = reshape(emit, emit(array.Cast(mask, I64)), (size,))
    rank = emit(array.CumulativeSum(flat, 0, False, True))
    count = tensor_type(source).size
    last = numbers(emit, count - 1, tensor_type(rank))
    place = emit(array.Minimum(rank, last))
    found = emit(array.Gather(reshape(emit, source, (count,)), (place,), (0,)))
    return emit(array.Select(mask, reshape(emit, found, type.shape), x))


def _one_hot(context: NodeContext) -> Operand:
    classes = context.integer("num_classes")
    return nn.one_hot(context.emit, context.value("self"), classes, I64)


def _bucketize(context: NodeContext) -> Operand:
    """How many of the boundaries are below each number, or not above it with `right`."""
    emit, x = context.emit, context.value("self")
    boundaries = context.value("boundaries", tensor_type(x).dtype)
    type = tensor_type(x)
    (count,) = tensor_type(boundaries).shape
    shape = (*type.shape, count)
    wide = emit(array.Broadcast(x, shape, tuple(range(type.rank))))
    limits = emit(array.Broadcast(boundaries, shape, (type.rank,)))
    predicate = "le" if context.flag("right") else "lt"
    below = emit(array.Cast(emit(array.Compare(limits, wide, predicate)), I64))
    return in_dtype(emit, emit(array.ReduceSum(below, (type.rank,))), context.dtype)


def _histogram(context: NodeContext) -> Operand:
    """How many numbers fall into each of equal parts of a range; its upper end belongs to the last."""
    emit, x = context.emit, context.value("self")
    bins, low, high = context.integer("bins", 100), context.number("min"), context.number("max")
    if low == high:
        raise context.unsupported("between the extremes of the tensor is not imported")
    type = tensor_type(x)
    flat = reshape(emit, in_dtype(emit, x, F64), (type.size,))
    place = emit(array.Floor(times(emit, plus(emit, flat, -low), bins / (high - low))))
    last = array.constant_like(emit, bins - 1, place)
    ends = emit(array.Compare(flat, array.constant_like(emit, high, flat), "eq"))
    place = emit(array.Select(ends, last, place))
    shape = (type.size, bins)
    wide = emit(array.Broadcast(place, shape, (0,)))
    bin = in_dtype(emit, array.iota(emit, TensorType(I64, shape), 1), F64)
    hits = in_dtype(emit, emit(array.Compare(wide, bin, "eq")), context.dtype)
    return emit(array.ReduceSum(hits, (0,)))


def _diagonal(context: NodeContext) -> Operand:
    """The elements whose indices along two axes differ by an offset, along a new last axis."""
    emit, x = context.emit, context.value("self")
    rank = tensor_type(x).rank
    one, other = context.axis("dim1", rank, 0), context.axis("dim2", rank, 1)
    offset = context.integer("offset", 0)
    place = TensorType(I64, (context.type.shape[-1],))
    count = array.iota(emit, place, 0)
    rows = emit(array.Add(count, array.constant_like(emit, max(-offset, 0), count)))
    columns = emit(array.Add(count, array.constant_like(emit, max(offset, 0), count)))
    found = emit(array.Gather(x, (rows, columns), (one, other)))
    return transpose(emit, found, (*range(1, rank - 1), 0))


IMPORTERS: dict[str, Importer] = {
    "aten._unsafe_index": _index,
    "aten._unsafe_index_put": _index_put,
    "aten.bucketize": _bucketize,
    "aten.diagonal": _diagonal,
    "aten.embedding": _embedding,
    "aten.gather": _gather,
    "aten.histc": _histogram,
    "aten.index": _index,
    "aten.index_add": _index_add,
    "aten.index_put": _index_put,
    "aten.index_select": _index_select,
    "aten.masked_scatter": _masked_scatter,
    "aten.masked_select": _masked_select,
    "aten.nonzero": _nonzero,
    "aten.one_hot": _one_hot,
    "aten.scatter": _scatter(),
    "aten.scatter_add": _scatter("add"),
    "aten.scatter_reduce": _scatter(),
    "aten.where.default": _where,
    "dlc.counted_part": _counted_part,
}
