"""Parts of tensors as kernels: slices, pads, concatenations, gathers, reversals, index tensors."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array, kernel, scalar
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.interface import bounds_around
from dlc.dialects.kernel.formula import between, both, choose, convert, generic, plus, size, times
from dlc.ir.bounded import never_negative
from dlc.ir.core import Builder, Op, Value
from dlc.ir.dims import Bounds, Shape, Size, floor_divide, product
from dlc.ir.types import INDEX
from dlc.lowering.graph_to_kernel.arrays import lowers
from dlc.lowering.graph_to_kernel.negative_sizes import runs_always


@lowers(array.Iota)
def _iota(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, array.Iota)

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        return convert(inner, indices[op.axis], op.dtype)

    return (generic(emit, (), op.shape, formula),)


@lowers(array.Reverse)
def _reverse(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, array.Reverse)
    shape = tensor_type(op.source).shape

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        places = [
            inner(scalar.Subtract(size(inner, shape[axis] - 1), index))
            if axis in op.axes
            else index
            for axis, index in enumerate(indices)
        ]
        return inner(kernel.Load(arrays[0], places))

    return (generic(emit, op.operands, shape, formula),)


@lowers(array.Slice)
def _slice(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, array.Slice)
    return (taken(emit, op.source, op.starts, op.limits, op.steps, bounds_around(op)),)


def taken(
    emit: Builder, source: Value, starts: Shape, limits: Shape, steps: Sequence[int], bounds: Bounds
) -> Value:
    """A part of a tensor; where the bounds do not say that it is inside, a call outside fails."""
    extents = tensor_type(source).shape
    inside = [
        never_negative(start, bounds)
        and never_negative(limit - start, bounds)
        and never_negative(extent - limit, bounds)
        for start, limit, extent in zip(starts, limits, extents, strict=True)
    ]

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        places = [
            plus(inner, times(inner, index, step), start)
            for index, start, step in zip(indices, starts, steps, strict=True)
        ]
        checked = [
            place if known else inner(kernel.CheckIndex(place, extent))
            for place, known, extent in zip(places, inside, extents, strict=True)
        ]
        return inner(kernel.Load(arrays[0], checked))

    counts = [
        floor_divide(limit - start + (step - 1), step)
        for start, limit, step in zip(starts, limits, steps, strict=True)
    ]
    return generic(emit, (source,), tuple(counts), formula)


@lowers(array.Pad)
def _pad(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, array.Pad)
    shape = tensor_type(op.source).shape
    if 0 in shape:
        filled = tensor_type(op.result).shape
        return (generic(emit, (op.value,), filled, lambda e, i, a: e(kernel.Load(a[0], []))),)

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        source, filler = arrays
        conditions: list[Value] = []
        places: list[Value] = []
        for axis, index in enumerate(indices):
            place, inside = _unpadded(inner, op, axis, index, shape[axis])
            conditions += inside
            places.append(place)
        value = inner(kernel.Load(source, places))
        return choose(inner, both(inner, conditions), value, inner(kernel.Load(filler, [])))

    return (generic(emit, op.operands, tensor_type(op.result).shape, formula),)


def _unpadded(
    emit: Builder, op: array.Pad, axis: int, index: Value, extent: Size
) -> tuple[Value, list[Value]]:
    """Where an index of the padded tensor lies in the source, and when it does; else some place in it."""
    low, high, gap = op.low[axis], op.high[axis], op.interior[axis]
    if (low, high, gap) == (0, 0, 0):
        return index, []
    bounds = bounds_around(op)
    if runs_always(op) or (never_negative(low, bounds) and never_negative(high, bounds)):
        place = plus(emit, index, low * -1)
    else:
        checked = emit(kernel.CheckIndex(size(emit, low), low + high + 1))
        place = emit(scalar.Subtract(index, checked))
    conditions = [between(emit, place, 0, (extent - 1) * (gap + 1) + 1)]
    if gap:
        whole = emit(scalar.RawDivide(place, size(emit, gap + 1)))
        exact = emit(scalar.Compare(times(emit, whole, gap + 1), place, "eq"))
        conditions.append(exact)
        place = whole
    return clamp(emit, place, extent), conditions


def clamp(emit: Builder, index: Value, extent: Size) -> Value:
    """The index, or the nearest one that is inside; 0 if none is."""
    below = emit(scalar.Minimum(index, size(emit, extent - 1)))
    return emit(scalar.Maximum(below, size(emit, 0)))


MAX_PARTS = 8
"""So many tensors are put together by one kernel, whose arguments, pointers and sizes, are limited."""


@lowers(array.Concatenate)
def _concatenate(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, array.Concatenate)
    return (_joined(emit, op.sources, op.axis),)


MAX_PIECES = 12
"""Pieces of one `kernel.concatenate`: each takes four of the arguments that a kernel can have."""
STRETCH = 16
"""Elements of a piece from which on copying it beats asking for each element which piece it is from."""
FEW_ROWS = 16
"""So few rows, of further axes than the last, leave most threads nothing to copy."""


def _in_stretches(sources: Sequence[Value], axis: int) -> bool:
    """Whether tensors lie behind each other along rows, each with a good part of a row.

    A row is all that has the same indices along the axes before this one.
    """
    shapes = [tensor_type(source).shape for source in sources]
    lengths = [product(shape[axis:]) for shape in shapes]
    long = all(isinstance(length, int) and length >= STRETCH for length in lengths)
    rows, is_last = product(shapes[0][:axis]), axis == len(shapes[0]) - 1
    few = isinstance(rows, int) and rows < FEW_ROWS and not is_last
    return long and len(shapes) > 1 and axis > 0 and not few


def _side_by_side(emit: Builder, sources: Sequence[Value], axis: int) -> Value:
    """The tensors one after the other along an axis, as matrices of their rows."""
    shapes = [tensor_type(source).shape for source in sources]
    rows = product(shapes[0][:axis])
    matrices = [
        emit(array.Reshape(source, (rows, product(shape[axis:]))))
        for source, shape in zip(sources, shapes, strict=True)
    ]
    whole = emit(kernel.Concatenate(matrices, ()))
    extent: Size = sum((shape[axis] for shape in shapes[1:]), shapes[0][axis])
    return emit(array.Reshape(whole, (*shapes[0][:axis], extent, *shapes[0][axis + 1 :])))


def _joined(emit: Builder, sources: Sequence[Value], axis: int) -> Value:
    """The tensors one after the other along an axis; many of them in groups first."""
    most = MAX_PIECES if _in_stretches(sources, axis) else MAX_PARTS
    if len(sources) > most:
        starts = range(0, len(sources), most)
        groups = [_joined(emit, sources[k : k + most], axis) for k in starts]
        return _joined(emit, groups, axis)
    sources = [source for source in sources if tensor_type(source).shape[axis] != 0] or sources[:1]
    if _in_stretches(sources, axis):
        return _side_by_side(emit, sources, axis)
    extents = [tensor_type(source).shape[axis] for source in sources]

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        index = indices[axis]
        start: Size = 0
        result: Value | None = None
        for part, extent in zip(arrays, extents, strict=True):
            place = clamp(inner, plus(inner, index, start * -1), extent)
            value = inner(kernel.Load(part, [*indices[:axis], place, *indices[axis + 1 :]]))
            if result is None:
                result = value
            else:
                mine = inner(scalar.Compare(index, size(inner, start), "ge"))
                result = inner(scalar.Select(mine, value, result))
            start = start + extent
        assert result is not None
        return result

    whole: Size = 0
    for extent in extents:
        whole = whole + extent
    shape = tensor_type(sources[0]).shape
    return generic(emit, sources, (*shape[:axis], whole, *shape[axis + 1 :]), formula)


@lowers(array.Gather)
def _gather(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, array.Gather)
    source = tensor_type(op.source)
    rank = tensor_type(op.indices[0]).rank

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        found, rest = indices[:rank], iter(indices[rank:])
        places: list[Value] = []
        for axis, extent in enumerate(source.shape):
            if axis in op.axes:
                at = inner(kernel.Load(arrays[1 + op.axes.index(axis)], found))
                places.append(inner(kernel.CheckIndex(convert(inner, at, INDEX), extent)))
            else:
                places.append(next(rest))
        return inner(kernel.Load(arrays[0], places))

    return (generic(emit, op.operands, tensor_type(op.result).shape, formula),)


@lowers(array.DynamicSlice)
def _dynamic_slice(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, array.DynamicSlice)
    shape = tensor_type(op.source).shape

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        source, *starts = arrays
        places = [
            inner(scalar.Add(index, _start(inner, start, extent, part)))
            for index, start, extent, part in zip(indices, starts, shape, op.sizes, strict=True)
        ]
        return inner(kernel.Load(source, places))

    return (generic(emit, op.operands, op.sizes, formula),)


def _start(emit: Builder, start: Value, extent: Size, part: Size) -> Value:
    """A start that leaves room for the part, read from its scalar and checked."""
    value = convert(emit, emit(kernel.Load(start, [])), INDEX)
    return emit(kernel.CheckIndex(value, extent - part + 1))


@lowers(array.DynamicUpdateSlice)
def _dynamic_update_slice(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, array.DynamicUpdateSlice)
    shape, part = tensor_type(op.target).shape, tensor_type(op.update).shape
    if _is_small_part(op):
        return (emit(kernel.Update(op.operands, ())),)

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        target, update, *starts = arrays
        conditions: list[Value] = []
        places: list[Value] = []
        for index, start, extent, length in zip(indices, starts, shape, part, strict=True):
            place = inner(scalar.Subtract(index, _start(inner, start, extent, length)))
            conditions.append(between(inner, place, 0, length))
            places.append(clamp(inner, place, length))
        new = inner(kernel.Load(update, places))
        old = inner(kernel.Load(target, indices))
        return choose(inner, both(inner, conditions), new, old)

    return (generic(emit, op.operands, shape, formula),)


def _is_small_part(op: array.DynamicUpdateSlice) -> bool:
    """Whether an update is better put into its target than chosen for each element of a formula."""
    whole, part = tensor_type(op.target).size, tensor_type(op.update).size
    if isinstance(op.target.op, array.Fill | array.Constant) or not tensor_type(op.target).rank:
        return False
    return not (isinstance(whole, int) and isinstance(part, int)) or 2 * part <= whole


@lowers(array.Extent)
def _extent(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, array.Extent)
    type = tensor_type(op.result)

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        return convert(inner, size(inner, op.size), type.dtype)

    return (generic(emit, (), (), formula),)
