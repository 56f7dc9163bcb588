"""Concat elimination: producers write straight into their slice of a concatenation's result.

A `kernel.concatenate` becomes a `kernel.join`: one array in which each piece lies. A piece may itself be a
join, as in a network that keeps appending to its features (DenseNet), and other kernels may read it in
place. A piece that cannot be written in place (an input, a constant, the result of a loop, a value that a
region yields, a piece of another join) is copied there by a kernel; so at least half of the bytes must be
written in place.

The whole is live from its first piece on. So this pass comes when the order of kernels is settled, and a
join that would raise the peak is not made. A GPU moves 16 bytes at once only at multiples of 16: pieces
accessed so are joined only where they stay aligned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dlc.dialects import array, flow, func, kernel
from dlc.dialects.array.shape import without_reshapes
from dlc.dialects.builtin import Module
from dlc.dialects.kernel.generic import array_type
from dlc.dialects.kernel.pieces import Concatenate, Join
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.dims import Size, evaluate
from dlc.ir.passes import Context, define_pass
from dlc.ir.types import row_major_strides
from dlc.ir.value_map import EQUAL, Gone
from dlc.passes.kernel.collapse import regroup_like
from dlc.planning.aliases import origin, readers, reshaped_strides
from dlc.planning.copy_insertion import copy
from dlc.planning.liveness import Timeline
from dlc.planning.memory_passes.block_tasks import may_be_empty, peak_of, planned_blocks
from dlc.planning.memory_passes.subview_fit import Dependences, fits, is_in_order, keeps_units

MOST_OPERATIONS = 10_000
"""Longer blocks are left alone: each attempt visits all of their operations."""


@define_pass("eliminate_concats")
def eliminate_concats(module: Op, context: Context, *, unit: int = 1) -> None:
    """Write the pieces of concatenations in place, where that does not raise the memory peak.

    Rows that are whole vectors of `unit` bytes must stay so: a GPU moves 16 bytes at once.
    """
    assert isinstance(module, Module)
    for planned_block in planned_blocks(module, context):
        _ConcatElimination(*planned_block, context, unit).run()


@dataclass(slots=True)
class _ConcatElimination:
    """Joins the concatenations of a block; `updates` are the arguments updated in place."""

    function: func.Func
    block: Block
    updates: Mapping[Value, Value]
    sizes: Mapping[str, int]
    context: Context
    unit: int
    """The bytes of a vector access, which must be aligned to as many."""
    copies: dict[Join, list[Value]] = field(default_factory=dict[Join, list[Value]])
    """The pieces of each join that a kernel copies there."""
    _dependences: Dependences | None = None
    """The dependences of the block; None when operations have changed since."""

    def run(self) -> None:
        """Join the concatenations that do not raise the peak."""
        concats = [op for op in self.block if isinstance(op, Concatenate)]
        if not concats or sum(1 for _ in self.block) > MOST_OPERATIONS:
            return
        for join in self._join_all(concats, self._peak()):
            copied = len(self.copies[join])
            self.context.log.did(
                "write the pieces in place", join, pieces=len(join.pieces), copied=copied
            )

    def _join_all(self, ops: Sequence[Concatenate], limit: int) -> list[Join]:
        """Join all of them, or as many as keep the peak within `limit` bytes."""
        joins = self._try_all(ops)
        return joins if not joins or self._peak() <= limit else self._join_most(joins, limit)

    def _join_most(self, joins: Sequence[Join], limit: int) -> list[Join]:
        """Of joins that together exceed a peak of `limit` bytes keep some that do not, by bisection.

        The first half is tried without the second, then the second beside what is kept of the first.
        """
        middle = len(joins) // 2
        first_half, second_half = joins[:middle], joins[middle:]
        undone = [self._undo(join) for join in reversed(second_half)][::-1]
        if len(joins) < 2:
            for op in undone:
                self.context.log.refused("in place it would live longer and raise the peak", op)
            return []
        if self._peak() > limit:
            return [*self._join_most(first_half, limit), *self._join_all(undone, limit)]
        return [*first_half, *self._join_most(self._try_all(undone), limit)]

    def _try_all(self, ops: Iterable[Concatenate]) -> list[Join]:
        return [join for op in ops if (join := self._join(op)) is not None]

    def _join(self, op: Concatenate) -> Join | None:
        """The join in place of a concatenation; None, with nothing changed, if it is not worth it."""
        if self._has_destination(op.results[0]) or any(
            may_be_empty(piece, self.function) for piece in op.inputs
        ):
            return None
        if not self._keeps_units(op):
            reason = f"its pieces would not all be aligned to {self.unit} bytes"
            self.context.log.refused(reason, op)
            return None
        for piece in list(op.inputs):
            self._regroup_producer(piece, op)
        placed = {
            without_reshapes(piece): piece for piece in reversed(op.inputs) if fits(piece, op)
        }
        if 2 * sum(map(self._bytes, placed.values())) < self._bytes(op.results[0]):
            reason = "less than half of its bytes can be written in place"
            self.context.log.refused(reason, op, pieces=len(op.inputs), in_place=len(placed))
            return None
        join = self._in_place_of(op, set(placed.values()))
        if self._dependences is None or self.copies[join]:
            self._dependences = Dependences(self.block)
        if not is_in_order(origin(join.result), self._dependences):
            reason = "a reader of one piece would wait for the producers of the others"
            self.context.log.refused(reason, self._undo(join))
            return None
        return join

    def _keeps_units(self, op: Concatenate) -> bool:
        """Whether pieces of whole vectors stay aligned in the whole."""
        start: Size = 0
        _, row_elements = array_type(op.results[0]).shape
        for piece in op.inputs:
            if not keeps_units(piece, start, row_elements, self.unit):
                return False
            start += array_type(piece).shape[1]
        return True

    def _regroup_producer(self, piece: Value, op: Concatenate) -> None:
        """Regroup an element-wise producer over the rows of its piece, which the whole sets apart."""
        value, shape = without_reshapes(piece), array_type(piece).shape
        producer = value.op
        if (
            not isinstance(producer, kernel.Generic)
            or len(producer.results) > 1
            or not producer.arrays
        ):
            return
        whole_strides = row_major_strides(array_type(op.results[0]).shape)
        views = [use for use in value.uses if isinstance(use, array.Reshape)]
        view_strides = [reshaped_strides(shape, whole_strides, view.shape) for view in views]
        if len(producer.domain) > 1 or len(views) < len(value.uses) or None in view_strides:
            return
        rewriter = self.context.rewriter
        spread = regroup_like(producer, producer.arrays[0], shape, rewriter)
        if spread is None:
            return
        result = spread[0].results[0]
        (reshaped,) = result.uses
        for view in views:
            new_view = Builder.before_op(view)(array.Reshape(result, view.shape))
            rewriter.replace(view, new_view, relation=EQUAL)
        rewriter.erase(reshaped, Gone("its readers read the rows"))
        self._dependences = None

    def _in_place_of(self, op: Concatenate, in_place: set[Value]) -> Join:
        """Replace a concatenation by a join of the `in_place` pieces, each once, and copies of the rest."""
        emit = Builder.before_op(op)
        pieces: list[Value] = []
        copies: list[Value] = []
        for piece in op.inputs:
            if piece in in_place:
                in_place.remove(piece)
                pieces.append(piece)
            else:
                copies.append(copy(emit, piece))
                pieces.append(copies[-1])
        join = Join(pieces)
        self.context.rewriter.replace(op, emit(join), relation=EQUAL)
        self.copies[join] = copies
        return join

    def _undo(self, join: Join) -> Concatenate:
        """Replace a join by its concatenation again."""
        self._dependences = None
        copied_pieces = self.copies.pop(join)
        sources = [
            piece.op.operands[0] if piece in copied_pieces and piece.op else piece
            for piece in join.pieces
        ]
        op = Concatenate(sources, ())
        rewriter = self.context.rewriter
        rewriter.replace(join, Builder.before_op(join)(op), relation=EQUAL)
        for piece in copied_pieces:
            assert piece.op is not None
            rewriter.erase(piece.op, Gone("its concatenation is not a join"))
        return op

    def _peak(self) -> int:
        return peak_of(Timeline(self.function, self.block, self.sizes), self.updates)

    def _has_destination(self, value: Value) -> bool:
        """Whether a value has a destination: an argument that it updates, or the result of a loop."""
        in_loop = self.block is not self.function.body
        return value in self.updates or (
            in_loop and any(isinstance(reader, flow.Yield) for reader in readers(value))
        )

    def _bytes(self, value: Value) -> int:
        type = array_type(value)
        return evaluate(type.size, self.sizes) * type.dtype.bytes
