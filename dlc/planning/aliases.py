"""Alias analysis: which arrays lie in the memory of which.

A reshape shares the memory of its source, a `kernel.subview` lies in its source, and a piece of a
`kernel.join` lies in the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlc.dialects import array
from dlc.dialects.array.shape import without_reshapes
from dlc.dialects.kernel.generic import array_type
from dlc.dialects.kernel.pieces import Join, Subview
from dlc.ir.core import Block, Op, Value
from dlc.ir.dims import Shape, Size
from dlc.ir.types import row_major_strides


def whole_of(value: Value) -> Join | None:
    """The join of which an array, or a reshape of it, is a piece; None if there is none."""
    for use in value.uses:
        match use:
            case Join():
                return use
            case array.Reshape(result=view):
                join = whole_of(view)
                if join is not None:
                    return join
            case _:
                pass
    return None


def origin(value: Value) -> Value:
    """The array that owns the memory of a value: itself, the source of a view, or the whole of a piece."""
    while True:
        if isinstance(value.op, array.Reshape | Subview):
            value = value.op.source
        elif (join := whole_of(value)) is not None:
            value = join.result
        else:
            return value


def origins(block: Block) -> dict[Value, Value]:
    """The origin of each view and each piece in a block, in one pass; other values own their memory.

    A piece of a piece lies in the outermost whole: so the last joins are visited first.
    """
    ops = list(block)
    origin_of: dict[Value, Value] = {}
    for op in reversed(ops):
        if isinstance(op, Join):
            whole = origin_of.get(op.result, op.result)
            origin_of.update((without_reshapes(piece), whole) for piece in op.pieces)
    for op in ops:
        if isinstance(op, array.Reshape | Subview):
            origin_of[op.result] = origin_of.get(op.source, op.source)
    return origin_of


def makers(value: Value) -> Iterator[Op]:
    """The operations that compute a value or its pieces; none for arguments."""
    pending = [value]
    while pending:
        op = without_reshapes(pending.pop()).op
        match op:
            case Join():
                pending += op.pieces
            case Subview():
                pending.append(op.source)
            case None:
                pass
            case _:
                yield op


def readers(value: Value) -> Iterator[Op]:
    """The operations that read an array, whole or through views, with terminators that yield it."""
    pending = [value]
    while pending:
        for user in pending.pop().uses:
            if is_view(user):
                pending += user.results
            else:
                yield user


def is_view(op: Op) -> bool:
    """Whether an operation computes nothing: its result is a view of memory that others write."""
    return isinstance(op, array.Reshape | Join | Subview)


# Strides.


def strides_of(value: Value) -> Shape:
    """The strides of an array, in elements: those of a subview are those of its source.

    Other arrays are row-major, since there are no joins yet.
    """
    type = array_type(value)
    match value.op:
        case Subview(source=source):
            return strides_of(source)
        case array.Reshape(source=source):
            strides = reshaped_strides(array_type(source).shape, strides_of(source), type.shape)
            assert strides is not None, (
                "a subview is reshaped only where strides describe the result"
            )
            return strides
        case _:
            return row_major_strides(type.shape)


def reshaped_strides(shape: Shape, strides: Shape, new: Shape) -> Shape | None:
    """The strides of an array reshaped to `new`; None if no strides describe that.

    >>> reshaped_strides((6, 8), (20, 1), (2, 3, 8)), reshaped_strides((6, 8), (20, 1), (48,))
    ((60, 20, 1), None)
    """
    axes_left = list(new)
    strides_found: list[Size] = []
    axis_stride: Size = 1
    for size, stride in _runs(shape, strides):
        axis_stride = stride
        while axis_stride != stride * size:
            if not axes_left:
                return None
            strides_found.append(axis_stride)
            axis_stride = axis_stride * axes_left.pop()
    if any(axis != 1 for axis in axes_left):
        return None
    return (*[axis_stride] * len(axes_left), *reversed(strides_found))


def _runs(shape: Shape, strides: Shape) -> Sequence[tuple[Size, Size]]:
    """The longest runs of contiguous axes, from the innermost: elements, and the innermost stride."""
    runs: list[tuple[Size, Size]] = []
    for size, stride in reversed(list(zip(shape, strides, strict=True))):
        if size == 1:
            continue
        if runs and runs[-1][0] * runs[-1][1] == stride:
            runs[-1] = runs[-1][0] * size, runs[-1][1]
        else:
            runs.append((size, stride))
    return runs
