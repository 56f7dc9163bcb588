"""Slice forwarding: products read slices in place, as strided views, instead of copying them.

Element-wise kernels have their slices fused into the formula by now. This pass is for products and
convolutions, whose operands are arrays: half of the channels of a picture may go one way, half another. The
source stays live as long as a view of it is read; where that would raise the peak, the slice is copied as
before. So it is where a GPU could no longer read it in vectors of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dlc.dialects import flow, func, kernel, scalar
from dlc.dialects.array.shape import without_reshapes
from dlc.dialects.builtin import Module
from dlc.dialects.kernel.generic import array_type
from dlc.dialects.kernel.pieces import Subview
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.dims import Size
from dlc.ir.passes import Context, define_pass
from dlc.ir.value_map import EQUAL, Gone
from dlc.planning.aliases import strides_of
from dlc.planning.liveness import Timeline
from dlc.planning.memory_passes.block_tasks import may_be_empty, peak_of, planned_blocks
from dlc.planning.memory_passes.subview_fit import is_readable, keeps_units

MOST_SLICES = 1_000
"""The most slices that are tried in a block."""


@define_pass("forward_slices")
def forward_slices(module: Op, context: Context, *, unit: int = 1) -> None:
    """Read slices in place, where that does not raise the memory peak.

    Rows that are whole vectors of `unit` bytes must stay so: a GPU moves 16 bytes at once.
    """
    assert isinstance(module, Module)
    for each in planned_blocks(module, context):
        _SliceForwarding(*each, context, unit).run()


@dataclass(frozen=True, slots=True)
class _SliceForwarding:
    """Replaces copies of slices in a block by views; `updates` are the arguments updated in place."""

    function: func.Func
    block: Block
    updates: Mapping[Value, Value]
    sizes: Mapping[str, int]
    context: Context
    unit: int
    """The bytes of a vector access, which must be aligned to as many."""

    def run(self) -> None:
        """Forward one slice after the other, unless that raises the peak."""
        slices = [each for op in self.block if (each := self._slice_of(op)) is not None]
        if not slices:
            return
        peak = self._peak()
        for op, starts in slices[:MOST_SLICES]:
            # Checked one by one: the source of a slice may be a view by now, with other strides.
            if not self._is_readable(op, starts):
                continue
            subview = Subview(op.operands[0], starts, op.domain)
            view = Builder.before_op(op)(subview)
            op.results[0].replace_by(view)
            self.block.unlink(op)
            peak_after = self._peak()
            self.block.insert(op, subview)
            if peak_after > peak:
                view.replace_by(op.results[0])
                subview.erase()
                self.context.log.refused(
                    "its source would live longer and raise the peak",
                    op,
                    peak_bytes_before=peak,
                    peak_bytes_after=peak_after,
                )
                continue
            peak = peak_after
            self.context.log.did("read the slice in place", op)
            self.context.values.replaced(op.results[0], view, EQUAL)
            self.context.rewriter.erase(op, Gone("its readers read the source in place"))

    def _slice_of(self, op: Op) -> tuple[kernel.Generic, tuple[Size, ...]] | None:
        """A kernel that only copies a slice of an array, with the start of the slice along each axis."""
        if not isinstance(op, kernel.Generic) or len(op.inputs) != 1 or len(op.results) != 1:
            return None
        (source,), (result,) = op.inputs, op.results
        starts = _starts(op)
        if starts is None or not result.uses or not self._is_array(without_reshapes(source)):
            return None
        return None if may_be_empty(result, self.function) else (op, starts)

    def _is_readable(self, op: kernel.Generic, starts: Sequence[Size]) -> bool:
        """Whether the readers of the copy can read the slice in place."""
        (source,), (result,) = op.inputs, op.results
        if not is_readable(result, strides_of(source), self.block):
            self.context.log.refused("a reader cannot use the strides of the source", op)
            return False
        if starts and not keeps_units(result, starts[-1], array_type(source).shape[-1], self.unit):
            reason = f"its rows are not aligned to {self.unit} bytes"
            self.context.log.refused(reason, op)
            return False
        return True

    def _is_array(self, source: Value) -> bool:
        """Whether a value is an argument of the function or computed, and neither constant nor weight."""
        computes = kernel.Kernel | flow.Scan | flow.While | flow.If
        return source in self.function.body.arguments or isinstance(source.op, computes)

    def _peak(self) -> int:
        return peak_of(Timeline(self.function, self.block, self.sizes), self.updates)


def _starts(op: kernel.Generic) -> tuple[Size, ...] | None:
    """The start of the slice that a kernel copies, along each axis; None if it does anything else."""
    (yielded,) = op.body.terminator.operands
    match yielded.op:
        case kernel.Load(array=array, indices=indices) if array is op.arrays[0]:
            starts = list(_index_offsets(op, indices))
            return tuple(starts) if len(starts) == len(op.domain) == len(indices) else None
        case _:
            return None


def _index_offsets(op: kernel.Generic, indices: Sequence[Value]) -> Iterator[Size]:
    """The constant that each index of a load adds to that of the element; ends at any other index."""
    for own, index in zip(op.indices, indices, strict=False):
        match index.op:
            case scalar.Add(operands=(lhs, rhs)) if lhs is own:
                offset = _constant_size(rhs)
                if offset is None:
                    return
                yield offset
            case _ if index is own:
                yield 0
            case _:
                return


def _constant_size(value: Value) -> Size | None:
    match value.op:
        case scalar.Constant(value=int() as number):
            return number
        case kernel.ExtentOf(size=size):
            return size
        case _:
            return None
