"""A function with one number as its result, around a point: what `dlc gradcheck` takes differences of.

What does not depend on the argument that moves is computed once. What `stop_gradient` gives stays what it
is at the point, wherever the arguments move: the derivative is that of the function in which these values
are constants, and differences must be of the same function. In a loop there is one for each round. Where a
move leads into a round or a branch that the point does not have, nothing says what its constants are. They
are NaN then, so that nobody takes a slope there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dlc.ir.core import Array, Block, Evaluation, Op, Value


class Neighbourhood(Evaluation):
    """A function at a point, where it is `here`, and near it."""

    __slots__ = ("_at_point", "_block", "_constants", "_dependents", "_known", "_rounds", "here")

    def __init__(self, block: Block, point: Sequence[Array], dims: Mapping[str, int]) -> None:
        super().__init__(dims)
        self._block = block
        self._dependents: dict[int, list[Op]] = {}
        self._constants: dict[tuple[Value, int], Array] = {}
        self._rounds: Counter[Value] = Counter()
        self._known = dict(zip(block.arguments, point, strict=True))
        self._at_point = True
        self.here = self._number(block, self._known)
        self._at_point = False

    def moved(self, index: int, to: Array) -> float:
        """The function with another value for one of its arguments."""
        if index not in self._dependents:
            self._dependents[index] = _dependents(self._block, index)
        values = self._known | {self._block.arguments[index]: to}
        return self._number(self._dependents[index], values)

    def constant(self, value: Value, array: Array) -> Array:
        """Its value at the point."""
        place = (value, self._rounds[value])
        self._rounds[value] += 1
        if self._at_point:
            self._constants[place] = array
        elif place in self._constants:
            return self._constants[place]
        elif array.dtype.kind == "f":
            return np.full_like(array, np.nan)
        return array

    def _number(self, ops: Iterable[Op], values: dict[Value, Array]) -> float:
        self._rounds.clear()
        with np.errstate(all="ignore"):
            (number,) = self.run_ops(ops, values)
        return float(number)


def _dependents(block: Block, index: int) -> list[Op]:
    """The operations that depend on an argument, and the terminator."""
    reached = {block.arguments[index]}
    found: list[Op] = []
    for op in block:
        if op.terminator or not reached.isdisjoint(op.operands):
            found.append(op)
            reached.update(op.results)
    return found
