"""Operations whose meaning is that of simpler ones."""

from __future__ import annotations

from collections.abc import Iterator

from dlc.dialects.func import Return
from dlc.ir.clone import clone, clone_block
from dlc.ir.core import Array, Block, Builder, Evaluation, Op, Value
from dlc.ir.needs import Need


class Decomposed(Op):
    """An operation with `decompose`; its value is by definition that of the decomposition.

    So is its gradient: reverse mode puts the decomposition in its place, unless the class has a
    `gradient` of its own.
    """

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        """The same results from simpler operations."""
        raise NotImplementedError(f"{self.name} has no decompose")

    def needs(self) -> Iterator[Need]:
        # What is in a region of its own is asked itself.
        for op in () if self.regions else decomposition(self):
            yield from op.needs()

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        return at.run(at.once(self, decomposition), inputs)


def decomposition(op: Op) -> Block:
    """A block that takes the operands and returns the results of an operation, from simpler ones."""
    block = Block([operand.type for operand in op.operands])
    copy = clone(op, block.arguments, [clone_block(region) for region in op.regions])
    emit = Builder(block, op.location)
    results = copy.decompose(emit)
    assert results is not None, f"{op.name} is a primitive"
    copy.erase()
    emit.place(Return(tuple(results)))
    return block
