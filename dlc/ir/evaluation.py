"""Evaluating IR with NumPy: the meaning of a program, for tests, `--interpret` and `dlc diff`.

Each operation says what it computes in `evaluate`; this runs blocks of them. Arrays hold f16 and the
other NumPy dtypes as they are, and bf16 as its bits in uint16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.ir.core import Block, Op, Value
from dlc.ir.dims import Shape, Size, evaluate

Array: TypeAlias = NDArray[np.generic]


class Evaluation:
    """One run: the numbers that the dims have, the weights, and who wants to see each value.

    `observe(value, array)` is called for every value computed. The IR stays as it is while it is run.
    """

    __slots__ = ("_made", "_observe", "_scopes", "dims", "weights")

    def __init__(
        self,
        dims: Mapping[str, int] | None = None,
        weights: Mapping[str, Array] | None = None,
        observe: Callable[[Value, Array], None] | None = None,
    ) -> None:
        self.dims: dict[str, int] = dict(dims or {})
        self.weights = weights or {}
        self._observe = observe
        self._made: dict[Op, Block] = {}
        self._scopes: list[dict[Value, Array]] = []

    def size(self, size: Size) -> int:
        """The number that a size is in this run."""
        return size if isinstance(size, int) else evaluate(size, self.dims)

    def shape(self, shape: Shape) -> tuple[int, ...]:
        return tuple([self.size(size) for size in shape])

    def run(
        self,
        block: Block,
        arguments: Sequence[Array],
        lift: Callable[[Value, Array], Array] | None = None,
    ) -> tuple[Array, ...]:
        """The operands of the block's terminator, from the arrays its arguments stand for.

        A block of an operation that is not isolated also sees the values around it, each through
        `lift` where that is given.
        """
        op = block.parent
        inherits = op is not None and not op.isolated and bool(self._scopes)
        known: dict[Value, Array] = dict(self._scopes[-1]) if inherits else {}
        if lift is not None:
            known = {value: lift(value, array) for value, array in known.items()}
        for argument, array in zip(block.arguments, arguments, strict=True):
            known[argument] = array
            self.see(argument, array)
        return self.run_ops(block, known)

    def run_ops(self, ops: Iterable[Op], known: dict[Value, Array]) -> tuple[Array, ...]:
        """The operands of the terminator that ends these operations of one block.

        `known` has what they use that comes before them, and gets what they compute.
        """
        self._scopes.append(known)
        try:
            return self._steps(ops, known)
        finally:
            self._scopes.pop()

    def _steps(self, ops: Iterable[Op], known: dict[Value, Array]) -> tuple[Array, ...]:
        for op in ops:
            if op.terminator:
                return tuple([known[operand] for operand in op.operands])
            results = op.evaluate(self, *[known[operand] for operand in op.operands])
            if not isinstance(results, tuple):
                results = (results,)
            for value, array in zip(op.results, results, strict=True):
                known[value] = array
                self.see(value, array)
        raise AssertionError("no terminator ends the operations")

    def once(self, op: Op, make: Callable[[Op], Block]) -> Block:
        """The block that stands for an operation: made when that is first run, not in each round."""
        if op not in self._made:
            self._made[op] = make(op)
        return self._made[op]

    def value(self, value: Value) -> Array:
        """The array that a value of the innermost block is."""
        return self._scopes[-1][value]

    def constant(self, value: Value, array: Array) -> Array:
        """What a value is that counts as a constant for derivatives: itself, where nobody takes any."""
        return array

    def see(self, value: Value, array: Array) -> None:
        """Show a value to whoever asked for it."""
        if self._observe is not None:
            self._observe(value, array)
