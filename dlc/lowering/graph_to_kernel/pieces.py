"""Parts of tensors as kernels: slices, pads, concatenations, gathers, reversals, index tensors."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array, kernel
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.expr import Condition, Expr, all_of, as_index, select
from dlc.dialects.formulas import Array, check_index, clamp, generic, shift, size, within
from dlc.dialects.interface import bounds_around
from dlc.ir.bounded import never_negative
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Bounds, Shape, Size, floor_divide, product
from dlc.lowering.graph_to_kernel.arrays import lowers
from dlc.lowering.graph_to_kernel.call_conditions import runs_always


@lowers(array.Iota)
def _iota(op: array.Iota, emit: Builder) -> Sequence[Value]:
    return (generic(emit, (), op.shape, lambda indices, _: indices[op.axis].cast(op.dtype)),)


@lowers(array.Reverse)
def _reverse(op: array.Reverse, emit: Builder) -> Sequence[Value]:
    shape = tensor_type(op.source).shape

    def formula(indices: list[Expr], arrays: list[Array]) -> Expr:
        mirrored = [
            size(emit, shape[axis] - 1) - index if axis in op.axes else index
            for axis, index in enumerate(indices)
        ]
        return arrays[0][mirrored]

    return (generic(emit, op.operands, shape, formula),)


@lowers(array.Slice)
def _slice(op: array.Slice, emit: Builder) -> Sequence[Value]:
    return (take_slice(emit, op.source, op.starts, op.limits, op.steps, bounds_around(op)),)


def take_slice(
    emit: Builder, source: Value, starts: Shape, limits: Shape, steps: Sequence[int], bounds: Bounds
) -> Value:
    """`source[start:limit:step, ...]`; calls check what the bounds of the dims do not prove."""
    extents = tensor_type(source).shape
    in_bounds = [
        never_negative(start, bounds)
        and never_negative(limit - start, bounds)
        and never_negative(extent - limit, bounds)
        for start, limit, extent in zip(starts, limits, extents, strict=True)
    ]

    def formula(indices: list[Expr], arrays: list[Array]) -> Expr:
        source_index = [
            shift(index * step, start)
            for index, start, step in zip(indices, starts, steps, strict=True)
        ]
        checked = [
            index if inside else check_index(index, extent)
            for index, inside, extent in zip(source_index, in_bounds, extents, strict=True)
        ]
        return arrays[0][checked]

    counts = [
        floor_divide(limit - start + (step - 1), step)
        for start, limit, step in zip(starts, limits, steps, strict=True)
    ]
    return generic(emit, (source,), tuple(counts), formula)


@lowers(array.Pad)
def _pad(op: array.Pad, emit: Builder) -> Sequence[Value]:
    shape = tensor_type(op.source).shape
    if 0 in shape:
        shape = tensor_type(op.result).shape
        return (generic(emit, (op.value,), shape, lambda _, arrays: arrays[0][[]]),)

    def formula(indices: list[Expr], arrays: list[Array]) -> Expr:
        source, padding = arrays
        conditions: list[Condition] = []
        source_index: list[Expr] = []
        for axis, index in enumerate(indices):
            unpadded, inside = _unpadded(op, axis, index, shape[axis])
            conditions += inside
            source_index.append(unpadded)
        value = source[source_index]
        in_source = all_of(conditions)
        return select(in_source, value, padding[[]])

    return (generic(emit, op.operands, tensor_type(op.result).shape, formula),)


def _unpadded(op: array.Pad, axis: int, index: Expr, extent: Size) -> tuple[Expr, list[Condition]]:
    """The source's index for one of the padded tensor, and the conditions that it is not padding.

    Where they do not hold, the index is that of some other element, so that it can be loaded.
    """
    low, high, gap = op.low[axis], op.high[axis], op.interior[axis]
    if (low, high, gap) == (0, 0, 0):
        return index, []
    bounds = bounds_around(op)
    if runs_always(op) or (never_negative(low, bounds) and never_negative(high, bounds)):
        offset = shift(index, low * -1)
    else:
        offset = index - check_index(size(index.emit, low), low + high + 1)
    conditions: list[Condition] = [within(offset, 0, (extent - 1) * (gap + 1) + 1)]
    if gap:
        quotient = offset // (gap + 1)
        conditions.append((quotient * (gap + 1)).equals(offset))
        offset = quotient
    return clamp(offset, extent), conditions


MAX_SELECTED = 8
"""Tensors that one formula concatenates: the pointers and sizes that a kernel takes are limited."""


@lowers(array.Concatenate)
def _concatenate(op: array.Concatenate, emit: Builder) -> Sequence[Value]:
    return (_concatenated(emit, op.sources, op.axis),)


MAX_COPIED = 12
"""Tensors of one `kernel.concatenate`: each takes four of the arguments that a kernel can have."""
COPIED_ELEMENTS = 16
"""Contiguous elements of a tensor from which on copying them beats selecting a tensor for each element."""
FEW_ROWS = 16
"""With fewer rows, unless the axis is the last one, most threads would have nothing to copy."""


def _copies_rows(sources: Sequence[Value], axis: int) -> bool:
    """Whether a concatenation copies contiguous rows instead of selecting each element's tensor.

    A row is all that has the same indices along the axes before this one.
    """
    shapes = [tensor_type(source).shape for source in sources]
    lengths = [product(shape[axis:]) for shape in shapes]
    long = all(isinstance(length, int) and length >= COPIED_ELEMENTS for length in lengths)
    rows, is_last = product(shapes[0][:axis]), axis == len(shapes[0]) - 1
    few = isinstance(rows, int) and rows < FEW_ROWS and not is_last
    return long and len(shapes) > 1 and axis > 0 and not few


def _concatenate_rows(emit: Builder, sources: Sequence[Value], axis: int) -> Value:
    """The tensors concatenated along an axis by `kernel.concatenate`, which copies rows of matrices."""
    shapes = [tensor_type(source).shape for source in sources]
    rows = product(shapes[0][:axis])
    matrices = [
        emit(array.Reshape(source, (rows, product(shape[axis:]))))
        for source, shape in zip(sources, shapes, strict=True)
    ]
    whole = emit(kernel.Concatenate(matrices, ()))
    extent: Size = sum((shape[axis] for shape in shapes[1:]), shapes[0][axis])
    return emit(array.Reshape(whole, (*shapes[0][:axis], extent, *shapes[0][axis + 1 :])))


def _concatenated(emit: Builder, sources: Sequence[Value], axis: int) -> Value:
    """The tensors concatenated along an axis; many of them in groups first."""
    limit = MAX_COPIED if _copies_rows(sources, axis) else MAX_SELECTED
    if len(sources) > limit:
        starts = range(0, len(sources), limit)
        groups = [_concatenated(emit, sources[k : k + limit], axis) for k in starts]
        return _concatenated(emit, groups, axis)
    sources = [source for source in sources if tensor_type(source).shape[axis] != 0] or sources[:1]
    if _copies_rows(sources, axis):
        return _concatenate_rows(emit, sources, axis)
    extents = [tensor_type(source).shape[axis] for source in sources]

    def formula(indices: list[Expr], arrays: list[Array]) -> Expr:
        index = indices[axis]
        start: Size = 0
        result: Expr | None = None
        for source, extent in zip(arrays, extents, strict=True):
            offset = clamp(shift(index, start * -1), extent)
            value = source[[*indices[:axis], offset, *indices[axis + 1 :]]]
            result = value if result is None else select(index >= start, value, result)
            start = start + extent
        assert result is not None
        return result

    whole: Size = 0
    for extent in extents:
        whole = whole + extent
    shape = tensor_type(sources[0]).shape
    return generic(emit, sources, (*shape[:axis], whole, *shape[axis + 1 :]), formula)


@lowers(array.Gather)
def _gather(op: array.Gather, emit: Builder) -> Sequence[Value]:
    source = tensor_type(op.source)
    rank = tensor_type(op.indices[0]).rank

    def formula(indices: list[Expr], arrays: list[Array]) -> Expr:
        row, rest = indices[:rank], iter(indices[rank:])
        source_index: list[Expr] = []
        for axis, extent in enumerate(source.shape):
            if axis in op.axes:
                index = as_index(arrays[1 + op.axes.index(axis)][row])
                source_index.append(check_index(index, extent, decided=op.decided))
            else:
                source_index.append(next(rest))
        return arrays[0][source_index]

    return (generic(emit, op.operands, tensor_type(op.result).shape, formula),)


@lowers(array.DynamicSlice)
def _dynamic_slice(op: array.DynamicSlice, emit: Builder) -> Sequence[Value]:
    shape = tensor_type(op.source).shape

    def formula(indices: list[Expr], arrays: list[Array]) -> Expr:
        source, *starts = arrays
        source_index = [
            index + _checked_start(start, extent, length, op.decided)
            for index, start, extent, length in zip(indices, starts, shape, op.sizes, strict=True)
        ]
        return source[source_index]

    return (generic(emit, op.operands, op.sizes, formula),)


def _checked_start(start: Array, extent: Size, length: Size, decided: bool) -> Expr:
    """The start of a slice of `length` along an axis of `extent`, read from its scalar and checked."""
    return check_index(as_index(start[[]]), extent, length, decided=decided)


@lowers(array.CheckIndex)
def _check_index(op: array.CheckIndex, emit: Builder) -> Sequence[Value]:
    def formula(indices: list[Expr], arrays: list[Array]) -> Expr:
        place = check_index(as_index(arrays[0][indices]), op.extent, op.part)
        return place >= 0

    return (generic(emit, op.operands, tensor_type(op.index).shape, formula),)


@lowers(array.DynamicUpdateSlice)
def _dynamic_update_slice(op: array.DynamicUpdateSlice, emit: Builder) -> Sequence[Value]:
    shape, lengths = tensor_type(op.target).shape, tensor_type(op.update).shape
    if _is_small(op):
        return (emit(kernel.Update(op.operands, (), op.decided)),)

    def formula(indices: list[Expr], arrays: list[Array]) -> Expr:
        target, update, *starts = arrays
        conditions: list[Condition] = []
        update_index: list[Expr] = []
        for index, start, extent, length in zip(indices, starts, shape, lengths, strict=True):
            offset = index - _checked_start(start, extent, length, op.decided)
            conditions.append(within(offset, 0, length))
            update_index.append(clamp(offset, length))
        new, old = update[update_index], target[indices]
        return select(all_of(conditions), new, old)

    return (generic(emit, op.operands, shape, formula),)


def _is_small(op: array.DynamicUpdateSlice) -> bool:
    """Whether an update is better written into its target than selected for each element."""
    whole, part = tensor_type(op.target).size, tensor_type(op.update).size
    if isinstance(op.target.op, array.Fill | array.Constant) or not tensor_type(op.target).rank:
        return False
    return not (isinstance(whole, int) and isinstance(part, int)) or 2 * part <= whole


@lowers(array.Extent)
def _extent(op: array.Extent, emit: Builder) -> Sequence[Value]:
    type = tensor_type(op.result)

    return (generic(emit, (), (), lambda _indices, _arrays: size(emit, op.size).cast(type.dtype)),)
