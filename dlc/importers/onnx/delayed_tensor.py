"""Tensors some of whose sizes are computed when the model runs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from dlc.errors import DlcError
from dlc.importers.onnx.facts import Node
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Shape, Size
from dlc.ir.types import DType

Extent: TypeAlias = Size | Value
"""The size of an axis: known before the call, or a scalar of i64 that is computed in it."""
Formula: TypeAlias = Callable[[Builder, Shape, Sequence[Value]], Value]
"""The elements at some indices in a tensor of that shape: an i64 of that shape for each axis.

For indices outside of the axes it gives anything, and does not fail.
"""
DEEPEST = 64
"""Formulas of formulas: operators one after the other on such a tensor."""
MOST = 64
"""So often the elements of one tensor are computed, each time at other indices."""


class Maker(Protocol):
    """The context of a node that has a computed size as an operand."""

    @property
    def node(self) -> Node:
        """The node."""
        ...

    def undecided(self, index: int) -> DlcError:
        """The error for a shape that an operand decides in a call."""
        ...


class Undecided(Exception):
    """An operand of a node decides a shape, is computed when the model runs, and that is not imported."""

    def __init__(self, context: Maker, index: int) -> None:
        self.context, self.index = context, index


@dataclass(frozen=True, slots=True, eq=False)
class DelayedTensor:
    """A formula of the elements of a tensor, which are computed once operators have made all sizes known.

    A slice or a sum with another tensor does so, and a reduction. (Delayed, or pull, arrays: Keller et al.,
    Regular, Shape-polymorphic, Parallel Arrays in Haskell, 2010.)
    """

    dtype: DType
    sizes: tuple[Extent, ...]
    formula: Formula
    maker: Maker
    """Where such a size is an operand: that node is refused where the tensor is needed as a whole."""
    index: int
    """Which of its operands that is."""
    depth: int = 0
    _made: dict[Hashable, Value] = field(default_factory=dict[Hashable, Value])

    def element(self, emit: Builder, shape: Shape, indices: Sequence[Value]) -> Value:
        """What the formula gives, emitted once for each indices in a block."""
        key = emit.block, shape, *indices
        if key not in self._made:
            if len(self._made) >= MOST:
                raise self.undecided()
            self._made[key] = self.formula(emit, shape, indices)
        return self._made[key]

    def then(
        self,
        sizes: Sequence[Extent],
        formula: Formula,
        others: Sequence[DelayedTensor] = (),
        dtype: DType | None = None,
    ) -> DelayedTensor:
        """What an operator makes of this tensor, and of others."""
        depth = 1 + max([each.depth for each in (self, *others)])
        if depth > DEEPEST:
            raise self.undecided()
        return replace(
            self,
            dtype=dtype or self.dtype,
            sizes=tuple(sizes),
            formula=formula,
            depth=depth,
            _made={},
        )

    def undecided(self) -> Undecided:
        """Why the tensor is refused."""
        return Undecided(self.maker, self.index)
