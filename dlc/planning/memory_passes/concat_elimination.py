"""Concatenations take no time where those who make the pieces write them where they belong.

A `kernel.concatenate` becomes a `kernel.join`: the whole is one array, and each piece lies in it. A piece
may be joined from others in its turn, as in a network that always appends to what it has, and may be read
by others, where it lies. What cannot be written there (an input, a constant, the result of a loop, what is
handed over or is a piece of something else already) is copied there by a kernel of its own, so at least
half of the whole must be written in place.

The whole is held from its first piece on. So this comes when the order of work is settled, and what would
raise the peak is not joined. A GPU moves 16 bytes at once only where they begin at a multiple of 16: what
it reads and writes so is joined only where that stays so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dlc.dialects import array, flow, func, kernel
from dlc.dialects.builtin import Module
from dlc.dialects.kernel.generic import array_type
from dlc.dialects.kernel.pieces import Concatenate, Join
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.dims import Size, evaluate
from dlc.ir.passes import Context, define_pass
from dlc.ir.types import row_major_strides
from dlc.ir.value_map import EQUAL, Gone
from dlc.passes.kernel.collapse import regroup_like
from dlc.planning.aliases import computed, origin, readers, reshaped_strides
from dlc.planning.copy_insertion import copy
from dlc.planning.liveness import Timeline
from dlc.planning.memory_passes.block_tasks import may_be_empty, peak_of, planned_blocks
from dlc.planning.memory_passes.subview_fit import Needs, fits, is_in_order, keeps_units

MOST_OPERATIONS = 10_000
"""In longer blocks nothing is joined: each attempt looks at all of them."""


@define_pass("eliminate_concats")
def eliminate_concats(module: Op, context: Context, *, unit: int = 1) -> None:
    """Let pieces be written where a concatenation wants them, where that holds no more.

    Rows of whole units of `unit` bytes must stay such: a GPU moves 16 bytes at once.
    """
    assert isinstance(module, Module)
    for each in planned_blocks(module, context):
        _Joiner(*each, context, unit).run()


@dataclass(slots=True)
class _Joiner:
    """Joins in a block, where `updates` are the arguments that values are written over."""

    function: func.Func
    block: Block
    updates: Mapping[Value, Value]
    sizes: Mapping[str, int]
    context: Context
    unit: int
    """Bytes that are moved at once only at multiples of so many."""
    copies: dict[Join, list[Value]] = field(default_factory=dict[Join, list[Value]])
    """Those pieces of each that a kernel of its own copies there."""
    _needs: Needs | None = None
    """What needs what, while no operation has come that it does not know."""

    def run(self) -> None:
        """Join what raises no peak."""
        found = [op for op in self.block if isinstance(op, Concatenate)]
        if not found or sum(1 for _ in self.block) > MOST_OPERATIONS:
            return
        for join in self._join_all(found, self._peak()):
            copied = len(self.copies[join])
            self.context.log.did("join in place", join, pieces=len(join.pieces), copied=copied)

    def _join_all(self, ops: Sequence[Concatenate], most: int) -> list[Join]:
        """Join them all if the block holds no more than `most` then, or else as many as that allows."""
        joined = self._joined(ops)
        return joined if not joined or self._peak() <= most else self._fewer(joined, most)

    def _fewer(self, joined: Sequence[Join], most: int) -> list[Join]:
        """Of joins with which the block holds more than `most` keep those that it has room for.

        The first half of them are tried without the others, then these by themselves.
        """
        middle = len(joined) // 2
        first, rest = joined[:middle], joined[middle:]
        others = [self._undo(join) for join in reversed(rest)][::-1]
        if len(joined) < 2:
            for op in others:
                self.context.log.refused("joined in place it would hold more", op)
            return []
        if self._peak() > most:
            return [*self._fewer(first, most), *self._join_all(others, most)]
        return [*first, *self._fewer(self._joined(others), most)]

    def _joined(self, ops: Iterable[Concatenate]) -> list[Join]:
        return [join for op in ops if (join := self._join(op)) is not None]

    def _join(self, op: Concatenate) -> Join | None:
        """Join what is concatenated; None, and all is as before, if that is not worth it."""
        if self._has_a_place(op.results[0]) or any(
            may_be_empty(piece, self.function) for piece in op.inputs
        ):
            return None
        if not self._keeps_units(op):
            reason = f"not all of its pieces would lie at multiples of {self.unit} bytes"
            self.context.log.refused(reason, op)
            return None
        for piece in list(op.inputs):
            self._spread(piece, op)
        placed = {computed(piece): piece for piece in reversed(op.inputs) if fits(piece, op)}
        if 2 * sum(map(self._bytes, placed.values())) < self._bytes(op.results[0]):
            reason = "less than half of it can be written in place"
            self.context.log.refused(reason, op, pieces=len(op.inputs), fit=len(placed))
            return None
        join = self._in_place_of(op, set(placed.values()))
        if self._needs is None or self.copies[join]:
            self._needs = Needs(self.block)
        if not is_in_order(origin(join.result), self._needs):
            reason = "who reads a piece would wait for those who make the rest"
            self.context.log.refused(reason, self._undo(join))
            return None
        return join

    def _keeps_units(self, op: Concatenate) -> bool:
        """Whether what is moved in units is so in the whole, too."""
        start: Size = 0
        _, pitch = array_type(op.results[0]).shape
        for piece in op.inputs:
            if not keeps_units(piece, start, pitch, self.unit):
                return False
            start += array_type(piece).shape[1]
        return True

    def _spread(self, piece: Value, op: Concatenate) -> None:
        """Let what computes a piece element by element go over its rows, which lie apart in the whole."""
        value, shape = computed(piece), array_type(piece).shape
        maker = value.op
        if not isinstance(maker, kernel.Generic) or len(maker.results) > 1 or not maker.arrays:
            return
        pitch = row_major_strides(array_type(op.results[0]).shape)
        looks = [use for use in value.uses if isinstance(use, array.Reshape)]
        apart = [reshaped_strides(shape, pitch, look.shape) for look in looks]
        if len(maker.domain) > 1 or len(looks) < len(value.uses) or None in apart:
            return
        rewriter = self.context.rewriter
        spread = regroup_like(maker, maker.arrays[0], shape, rewriter)
        if spread is None:
            return
        result = spread[0].results[0]
        (back,) = result.uses
        for look in looks:
            seen = Builder.before_op(look)(array.Reshape(result, look.shape))
            rewriter.replace(look, seen, relation=EQUAL)
        rewriter.erase(back, Gone("all see the rows"))
        self._needs = None

    def _in_place_of(self, op: Concatenate, placed: set[Value]) -> Join:
        """Put a join of what is placed, each once, and of copies of the rest, in its place."""
        emit = Builder.before_op(op)
        pieces: list[Value] = []
        copied: list[Value] = []
        for piece in op.inputs:
            if piece in placed:
                placed.remove(piece)
                pieces.append(piece)
            else:
                copied.append(copy(emit, piece))
                pieces.append(copied[-1])
        join = Join(pieces)
        self.context.rewriter.replace(op, emit(join), relation=EQUAL)
        self.copies[join] = copied
        return join

    def _undo(self, join: Join) -> Concatenate:
        """Put a concatenation back in place of a join."""
        self._needs = None
        copied = self.copies.pop(join)
        sources = [
            piece.op.operands[0] if piece in copied and piece.op else piece for piece in join.pieces
        ]
        op = Concatenate(sources, ())
        rewriter = self.context.rewriter
        rewriter.replace(join, Builder.before_op(join)(op), relation=EQUAL)
        for piece in copied:
            assert piece.op is not None
            rewriter.erase(piece.op, Gone("nothing is joined"))
        return op

    def _peak(self) -> int:
        return peak_of(Timeline(self.function, self.block, self.sizes), self.updates)

    def _has_a_place(self, value: Value) -> bool:
        """Whether one kernel writes a value over an argument, or where a loop hands it over."""
        in_loop = self.block is not self.function.body
        return value in self.updates or (
            in_loop and any(isinstance(reader, flow.Yield) for reader in readers(value))
        )

    def _bytes(self, value: Value) -> int:
        type = array_type(value)
        return evaluate(type.size, self.sizes) * type.dtype.bytes
