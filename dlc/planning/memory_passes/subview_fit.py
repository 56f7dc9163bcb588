"""Subviews that fit: which arrays can lie inside a larger one, written and read with its strides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dlc.dialects import array, kernel
from dlc.dialects.array.shape import without_reshapes
from dlc.dialects.kernel.pieces import Concatenate, Join, Subview
from dlc.dialects.kernel.products import Product
from dlc.ir.core import Block, Op, Value
from dlc.ir.dims import Shape, Size, divides
from dlc.ir.types import row_major_strides
from dlc.planning.aliases import makers, reshaped_strides, whole_of

WRITERS = kernel.Generic | Product | Concatenate | Join
"""The operations whose results may have strides."""


def fits(piece: Value, op: Concatenate) -> bool:
    """Whether a piece of a concatenation can be written, and read, inside the whole."""
    value = without_reshapes(piece)
    if not isinstance(value.op, WRITERS) or value.op.parent is not op.parent:
        return False
    if whole_of(value) is not None:
        return False
    whole_strides = row_major_strides(kernel.array_type(op.results[0]).shape)
    shape = kernel.array_type(value).shape
    strides = reshaped_strides(kernel.array_type(piece).shape, whole_strides, shape)
    return (
        strides is not None
        and _is_writable(value, strides)
        and is_readable(value, strides, value.op.parent, joined=op)
    )


def _is_writable(value: Value, strides: Shape) -> bool:
    """Whether the producer of an array, or of each of its pieces, can write it with these strides."""
    match value.op:
        case kernel.Kernel() as op:
            return op.writes.allows(kernel.array_type(value).shape, strides)
        case Join() as join:
            return all(_is_piece(piece, strides, join) for piece in join.pieces)
        case _:
            return False


def _is_piece(piece: Value, whole_strides: Shape, join: Join) -> bool:
    """Whether a piece can be written, and read, inside a whole with these strides."""
    value = without_reshapes(piece)
    shapes = kernel.array_type(piece).shape, kernel.array_type(value).shape
    strides = reshaped_strides(shapes[0], whole_strides, shapes[1])
    return (
        strides is not None
        and _is_writable(value, strides)
        and is_readable(value, strides, join.parent, joined=join)
    )


def is_readable(
    value: Value, strides: Shape, block: Block | None, joined: Op | None = None
) -> bool:
    """Whether all readers of an array are in this block and can read it with these strides.

    `joined`, the operation that joins it to others, does not count as a reader.
    """
    for use in value.uses:
        if use is joined:
            continue
        match use:
            case array.Reshape(result=view):
                shapes = kernel.array_type(value).shape, kernel.array_type(view).shape
                view_strides = reshaped_strides(shapes[0], strides, shapes[1])
                if view_strides is None or not is_readable(view, view_strides, block, joined):
                    return False
            case Subview(result=view):
                if not is_readable(view, strides, block, joined):
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
    """Whether a kernel can read an array with these strides, at each operand where it appears."""
    shape = kernel.array_type(value).shape
    return all(
        op.reads(index).allows(shape, strides)
        for index, operand in enumerate(op.operands)
        if operand is value
    )


def keeps_units(piece: Value, start: Size, row_elements: Size, unit: int) -> bool:
    """Whether rows of whole `unit`-byte vectors stay so at `start` in rows of `row_elements` elements."""
    type = kernel.array_type(piece)
    elements = max(1, unit // type.dtype.bytes)
    return not divides(elements, type.shape[-1]) or (
        divides(elements, start) and divides(elements, row_elements)
    )


class Dependences:
    """The transitive dependences among the operations of a block, as bitsets.

    They stay valid where a concatenation becomes a join of the same pieces, which computes nothing.
    """

    def __init__(self, block: Block) -> None:
        self._bit: dict[Op, int] = {}
        self._reachable: dict[Op, int] = {}
        for position, op in enumerate(block):
            needed = self._bit[op] = 1 << position
            for operand in op.operands:
                if operand.op is not None:
                    needed |= self._reachable.get(operand.op, 0)
            self._reachable[op] = needed

    def bits_of(self, ops: Iterable[Op]) -> int:
        """Some operations as a bitset."""
        bits = 0
        for op in ops:
            bits |= self._bit[op]
        return bits

    def ancestors(self, op: Op) -> int:
        """An operation and all that it depends on, as a bitset."""
        return self._reachable[op]


def is_in_order(whole: Value, dependences: Dependences) -> bool:
    """Whether each reader of a piece runs before the producers of the other pieces, or depends on them.

    Otherwise joining would add a dependence: the reader would wait for producers that write the same
    buffer.
    """
    producers = [*makers(whole)]
    all_bits = dependences.bits_of(producers)
    for piece in _pieces(whole):
        missing = all_bits & ~dependences.bits_of(makers(piece))
        for reader in _readers(piece):
            unordered = missing & ~dependences.ancestors(reader)
            for producer in producers if unordered else ():
                if unordered & dependences.bits_of((producer,)) and not reader.is_before(producer):
                    return False
    return True


def _pieces(whole: Value) -> Iterator[Value]:
    """The pieces of an array, and theirs in turn."""
    pending = [whole]
    while pending:
        op = pending.pop().op
        if isinstance(op, Join):
            pieces = [without_reshapes(piece) for piece in op.pieces]
            yield from pieces
            pending += pieces


def _readers(value: Value) -> Iterator[Op]:
    """The operations that read an array, directly or through reshapes and subviews."""
    for use in value.uses:
        if isinstance(use, array.Reshape | Subview):
            yield from _readers(use.result)
        elif not isinstance(use, Join):
            yield use
