"""Which arrays lie in whose memory.

A reshape is its source, a `kernel.subview` is in its source, and a piece of a `kernel.join` is in the
whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlc.dialects import array
from dlc.dialects.kernel.generic import array_type
from dlc.dialects.kernel.pieces import Join, Subview
from dlc.ir.core import Block, Op, Value
from dlc.ir.dims import Shape, Size
from dlc.ir.types import row_major_strides


def computed(value: Value) -> Value:
    """The array that a value is, behind all reshapes."""
    while isinstance(value.op, array.Reshape):
        value = value.op.source
    return value


def whole_of(value: Value) -> Join | None:
    """The operation of which an array is a piece, itself or reshaped; None if it is none."""
    for use in value.uses:
        match use:
            case Join():
                return use
            case array.Reshape(result=seen):
                found = whole_of(seen)
                if found is not None:
                    return found
            case _:
                pass
    return None


def origin(value: Value) -> Value:
    """The array in whose memory a value is: itself, what it is a view of, or the whole of its pieces."""
    while True:
        if isinstance(value.op, array.Reshape | Subview):
            value = value.op.source
        elif (join := whole_of(value)) is not None:
            value = join.result
        else:
            return value


def origins(block: Block) -> dict[Value, Value]:
    """The origin of each view and each piece in a block, found at once; all else there is its own.

    A piece of a piece is in the whole of both: so the last wholes come first.
    """
    ops = list(block)
    found: dict[Value, Value] = {}
    for op in reversed(ops):
        if isinstance(op, Join):
            whole = found.get(op.result, op.result)
            found.update((computed(piece), whole) for piece in op.pieces)
    for op in ops:
        if isinstance(op, array.Reshape | Subview):
            found[op.result] = found.get(op.source, op.source)
    return found


def makers(value: Value) -> Iterator[Op]:
    """The operations that compute what a value consists of; none for arguments."""
    pending = [value]
    while pending:
        op = computed(pending.pop()).op
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
    """The operations that read an array, whole or through views; a function that hands it over reads it."""
    pending = [value]
    while pending:
        for user in pending.pop().uses:
            if is_view(user):
                pending += user.results
            else:
                yield user


def is_view(op: Op) -> bool:
    """Whether an operation computes nothing: its result is memory that others write."""
    return isinstance(op, array.Reshape | Join | Subview)


# Strides.


def strides_of(value: Value) -> Shape:
    """The strides with which an array lies, in elements: those of a part are those of its source.

    What is no view is row-major; nothing is joined yet.
    """
    type = array_type(value)
    match value.op:
        case Subview(source=source):
            return strides_of(source)
        case array.Reshape(source=source):
            found = reshaped_strides(array_type(source).shape, strides_of(source), type.shape)
            assert found is not None, "a part is reshaped only where it has strides"
            return found
        case _:
            return row_major_strides(type.shape)


def reshaped_strides(shape: Shape, strides: Shape, new: Shape) -> Shape | None:
    """The strides with which an array is seen in another shape; None if no strides do that.

    >>> reshaped_strides((6, 8), (20, 1), (2, 3, 8)), reshaped_strides((6, 8), (20, 1), (48,))
    ((60, 20, 1), None)
    """
    axes = list(new)
    found: list[Size] = []
    step: Size = 1
    for size, stride in _runs(shape, strides):
        step = stride
        while step != stride * size:
            if not axes:
                return None
            found.append(step)
            step = step * axes.pop()
    if any(axis != 1 for axis in axes):
        return None
    return (*[step] * len(axes), *reversed(found))


def _runs(shape: Shape, strides: Shape) -> Sequence[tuple[Size, Size]]:
    """The longest stretches of axes with one stride, from the innermost: elements, and the stride."""
    runs: list[tuple[Size, Size]] = []
    for size, stride in reversed(list(zip(shape, strides, strict=True))):
        if size == 1:
            continue
        if runs and runs[-1][0] * runs[-1][1] == stride:
            runs[-1] = runs[-1][0] * size, runs[-1][1]
        else:
            runs.append((size, stride))
    return runs
