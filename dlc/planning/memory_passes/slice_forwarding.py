"""What takes a part of an array reads it where it lies, without a kernel that copies it first.

Where elements are computed by a formula, the part was moved into the formula long ago. This is for products
and convolutions, whose operands are arrays: of the channels of a picture, say, one half goes one way, the
other another. The whole is held as long as a part of it is read, and where that would raise the peak, the
part is copied as before; so it is where a GPU would have to read it number by number then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dlc.dialects import flow, func, kernel, scalar
from dlc.dialects.builtin import Module
from dlc.dialects.kernel.generic import array_type
from dlc.dialects.kernel.pieces import Subview
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.dims import Size
from dlc.ir.passes import Context, define_pass
from dlc.ir.value_map import EQUAL, Gone
from dlc.planning.aliases import computed, strides_of
from dlc.planning.liveness import Timeline
from dlc.planning.memory_passes.block_tasks import may_be_empty, peak_of, planned_blocks
from dlc.planning.memory_passes.subview_fit import is_readable, keeps_units

MOST_PARTS = 1_000
"""So many are looked at in a block."""


@define_pass("forward_slices")
def forward_slices(module: Op, context: Context, *, unit: int = 1) -> None:
    """Let parts of arrays be read where they lie, where that holds no more.

    Rows of whole units of `unit` bytes must stay such: a GPU moves 16 bytes at once.
    """
    assert isinstance(module, Module)
    for each in planned_blocks(module, context):
        _Viewer(*each, context, unit).run()


@dataclass(frozen=True, slots=True)
class _Viewer:
    """Makes views in a block, where `updates` are the arguments that values are written over."""

    function: func.Func
    block: Block
    updates: Mapping[Value, Value]
    sizes: Mapping[str, int]
    context: Context
    unit: int
    """Bytes that are moved at once only at multiples of so many."""

    def run(self) -> None:
        """See a part where it lies, one after the other, unless that raises the peak."""
        found = [each for op in self.block if (each := self._copies(op)) is not None]
        if not found:
            return
        peak = self._peak()
        for op, starts in found[:MOST_PARTS]:
            # Looked at one by one: the source of a part may be a part by now, and lie in other strides.
            if not self._is_readable(op, starts):
                continue
            part = Subview(op.operands[0], starts, op.domain)
            seen = Builder.before_op(op)(part)
            op.results[0].replace_by(seen)
            self.block.unlink(op)
            then = self._peak()
            self.block.insert(op, part)
            if then > peak:
                seen.replace_by(op.results[0])
                part.erase()
                self.context.log.refused(
                    "the whole would be held for longer", op, peak_before=peak, peak_then=then
                )
                continue
            peak = then
            self.context.log.did("see a part in place", op)
            self.context.values.replaced(op.results[0], seen, EQUAL)
            self.context.rewriter.erase(op, Gone("it is seen where it is"))

    def _copies(self, op: Op) -> tuple[kernel.Generic, tuple[Size, ...]] | None:
        """A kernel that only copies a part of an array, and where that begins."""
        if not isinstance(op, kernel.Generic) or len(op.inputs) != 1 or len(op.results) != 1:
            return None
        (source,), (result,) = op.inputs, op.results
        starts = _starts(op)
        if starts is None or not result.uses or not self._is_array(computed(source)):
            return None
        return None if may_be_empty(result, self.function) else (op, starts)

    def _is_readable(self, op: kernel.Generic, starts: Sequence[Size]) -> bool:
        """Whether those who read the copy can read the part where it lies."""
        (source,), (result,) = op.inputs, op.results
        if not is_readable(result, strides_of(source), self.block):
            self.context.log.refused("its readers do not take the strides of the whole", op)
            return False
        if starts and not keeps_units(result, starts[-1], array_type(source).shape[-1], self.unit):
            reason = f"it does not lie at multiples of {self.unit} bytes"
            self.context.log.refused(reason, op)
            return False
        return True

    def _is_array(self, source: Value) -> bool:
        """Whether it is no constant and no weight, but computed here, or an argument of the function."""
        computes = kernel.Kernel | flow.Scan | flow.While | flow.If
        return source in self.function.body.arguments or isinstance(source.op, computes)

    def _peak(self) -> int:
        return peak_of(Timeline(self.function, self.block, self.sizes), self.updates)


def _starts(op: kernel.Generic) -> tuple[Size, ...] | None:
    """Where the part begins that a kernel copies, one index along each axis; None if it does more."""
    (given,) = op.body.terminator.operands
    match given.op:
        case kernel.Load(array=array, indices=indices) if array is op.arrays[0]:
            found = list(_steps(op, indices))
            return tuple(found) if len(found) == len(op.domain) == len(indices) else None
        case _:
            return None


def _steps(op: kernel.Generic, indices: Sequence[Value]) -> Iterator[Size]:
    """By how much each index of a load is above that of the element; it ends where that is not so."""
    for own, index in zip(op.indices, indices, strict=False):
        match index.op:
            case scalar.Add(operands=(lhs, rhs)) if lhs is own:
                by = _number(rhs)
                if by is None:
                    return
                yield by
            case _ if index is own:
                yield 0
            case _:
                return


def _number(value: Value) -> Size | None:
    match value.op:
        case scalar.Constant(value=int() as number):
            return number
        case kernel.ExtentOf(size=size):
            return size
        case _:
            return None
