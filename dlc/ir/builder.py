"""Placing operations: a builder stands at a point of a block and gives each one its location."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from dlc.ir.core import Block, Op, Value
from dlc.ir.location import Location


class Builder:
    """Puts operations into a block, before a given one or at the end.

    Calling it with a new operation places that and gives back its single result, so that expressions
    read as mathematics: `emit(Add(emit(Multiply(x, y)), z))`.
    """

    __slots__ = ("before", "block", "location")

    def __init__(self, block: Block, location: Location, before: Op | None = None) -> None:
        self.block = block
        self.location = location
        self.before = before

    @classmethod
    def before_op(cls, op: Op, location: Location | None = None) -> Builder:
        """A builder that places just before an operation, by default with its location."""
        assert op.parent is not None
        return cls(op.parent, location or op.location, op)

    def place(self, op: Op) -> Op:
        """Put the operation at the point; later ones follow it."""
        op.location = self.location
        self.block.insert(op, self.before)
        return op

    def __call__(self, op: Op, name: str | None = None) -> Value:
        """Place an operation that has one result, perhaps name the result, and give it back."""
        self.place(op)
        (result,) = op.results
        if name is not None:
            result.name = name
        return result

    def all(self, op: Op) -> tuple[Value, ...]:
        """Place an operation and give back all its results."""
        return self.place(op).results

    def at(self, location: Location) -> Builder:
        """The same point with another location."""
        return Builder(self.block, location, self.before)

    @contextmanager
    def into(self, block: Block) -> Generator[None]:
        """Stand at the end of another block for a while, which thus gets a body."""
        outer = self.block, self.before
        self.block, self.before = block, None
        yield
        self.block, self.before = outer
