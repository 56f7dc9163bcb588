"""What can be a piece of a larger array: written in its place there, and read where it lies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dlc.dialects import array, kernel
from dlc.dialects.kernel.pieces import Concatenate, Join, Subview
from dlc.dialects.kernel.products import Product
from dlc.ir.core import Block, Op, Value
from dlc.ir.dims import Shape, Size, divides
from dlc.ir.types import row_major_strides
from dlc.planning.aliases import computed, makers, reshaped_strides, whole_of

WRITERS = kernel.Generic | Product | Concatenate | Join
"""What can write rows that lie apart."""


def fits(piece: Value, op: Concatenate) -> bool:
    """Whether a piece of a concatenation can be written where it belongs, and be read there."""
    value = computed(piece)
    if not isinstance(value.op, WRITERS) or value.op.parent is not op.parent:
        return False
    if whole_of(value) is not None:
        return False
    pitch = row_major_strides(kernel.array_type(op.results[0]).shape)
    shape = kernel.array_type(value).shape
    strides = reshaped_strides(kernel.array_type(piece).shape, pitch, shape)
    return (
        strides is not None
        and _is_writable(value, strides)
        and is_readable(value, strides, value.op.parent, joined=op)
    )


def _is_writable(value: Value, strides: Shape) -> bool:
    """Whether what computes an array, or the pieces of it, can write it with these strides."""
    match value.op:
        case kernel.Kernel() as op:
            return op.writes.allows(kernel.array_type(value).shape, strides)
        case Join() as join:
            return all(_is_piece(piece, strides, join) for piece in join.pieces)
        case _:
            return False


def _is_piece(piece: Value, pitch: Shape, join: Join) -> bool:
    """Whether a piece of a whole that has strides `pitch` can be written there, and be read."""
    value = computed(piece)
    shapes = kernel.array_type(piece).shape, kernel.array_type(value).shape
    strides = reshaped_strides(shapes[0], pitch, shapes[1])
    return (
        strides is not None
        and _is_writable(value, strides)
        and is_readable(value, strides, join.parent, joined=join)
    )


def is_readable(
    value: Value, strides: Shape, block: Block | None, joined: Op | None = None
) -> bool:
    """Whether all readers of an array are in this block, and can do with strides like these.

    The operation that joins it to others, `joined`, does not read it.
    """
    for use in value.uses:
        if use is joined:
            continue
        match use:
            case array.Reshape(result=seen):
                shapes = kernel.array_type(value).shape, kernel.array_type(seen).shape
                found = reshaped_strides(shapes[0], strides, shapes[1])
                if found is None or not is_readable(seen, found, block, joined):
                    return False
            case Subview(result=seen):
                if not is_readable(seen, strides, block, joined):
                    return False
            case kernel.Generic() | Concatenate() | Product():
                if not _can_read(use, value, strides):
                    return False
            case _:
                return False
        if use.parent is not block:
            return False
    return True


def _can_read(op: kernel.Kernel, value: Value, strides: Shape) -> bool:
    """Whether a kernel can read an array wherever it takes it, if the array has these strides."""
    shape = kernel.array_type(value).shape
    return all(
        op.reads(number).allows(shape, strides)
        for number, operand in enumerate(op.operands)
        if operand is value
    )


def keeps_units(piece: Value, start: Size, pitch: Size, unit: int) -> bool:
    """Whether rows that are whole units of so many bytes are such as parts of rows of `pitch` elements."""
    type = kernel.array_type(piece)
    each = max(1, unit // type.dtype.bytes)
    return not divides(each, type.shape[-1]) or (divides(each, start) and divides(each, pitch))


class Needs:
    """Which operations of a block need the results of which others, directly or not.

    It stays true where a concatenation becomes a join of the same pieces, which computes nothing. A set of
    operations is a number with a bit for each.
    """

    def __init__(self, block: Block) -> None:
        self._own: dict[Op, int] = {}
        self._known: dict[Op, int] = {}
        for number, op in enumerate(block):
            found = self._own[op] = 1 << number
            for operand in op.operands:
                if operand.op is not None:
                    found |= self._known.get(operand.op, 0)
            self._known[op] = found

    def among(self, ops: Iterable[Op]) -> int:
        """These operations as a set."""
        found = 0
        for op in ops:
            found |= self._own[op]
        return found

    def by(self, op: Op) -> int:
        """An operation and all that it needs, as a set."""
        return self._known[op]


def is_in_order(whole: Value, needed: Needs) -> bool:
    """Whether everyone who reads a part of an array runs before those who make the rest, or needs them.

    Else it would seem that he waits for them, as he reads the memory that they write.
    """
    everyone = [*makers(whole)]
    all_of_it = needed.among(everyone)
    for part in _parts(whole):
        others = all_of_it & ~needed.among(makers(part))
        for reader in _users(part):
            free = others & ~needed.by(reader)
            for other in everyone if free else ():
                if free & needed.among((other,)) and not reader.is_before(other):
                    return False
    return True


def _parts(whole: Value) -> Iterator[Value]:
    """The pieces of an array, and their pieces."""
    pending = [whole]
    while pending:
        op = pending.pop().op
        if isinstance(op, Join):
            parts = [computed(piece) for piece in op.pieces]
            yield from parts
            pending += parts


def _users(value: Value) -> Iterator[Op]:
    """The operations that read an array itself, or reshaped, or a part of it."""
    for use in value.uses:
        if isinstance(use, array.Reshape | Subview):
            yield from _users(use.result)
        elif not isinstance(use, Join):
            yield use
