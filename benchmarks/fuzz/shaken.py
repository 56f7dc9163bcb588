"""Evaluating a function with every result rounded at random: what rounding may do to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.fuzz.closeness import Array, changed
from dlc.ir.core import Block, Evaluation, Value

SUMS = (
    "array.convolution",
    "array.cumulative_sum",
    "array.dot_general",
    "array.matmul",
    "array.reduce_sum",
)
"""Sums whose terms are products of elements: with magnitudes for operands they give that of the terms."""


class _Shaken(Evaluation):
    """An evaluation that changes each float by up to `eps` of itself as soon as it is computed.

    A sum is changed by up to `eps` of the sum of its terms' magnitudes, which bounds the running error of a
    sum in any order (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 3.3 and 4.2).
    """

    __slots__ = ("_eps", "_stream")

    def __init__(
        self, dims: Mapping[str, int], weights: Mapping[str, Array], shake: int, eps: float
    ) -> None:
        super().__init__(dims, weights)
        self._stream = np.random.default_rng(shake)
        self._eps = eps

    def see(self, value: Value, array: Array) -> None:
        scope = self._scopes[-1] if self._scopes else {}
        if scope.get(value) is array:
            scope[value] = changed(array, self._stream, self._eps, self._terms(value))

    def _terms(self, value: Value) -> Array | None:
        """The sum of the magnitudes of the terms of each element; None if they are not sums."""
        op = value.op
        if op is None or op.name not in SUMS:
            return None
        found = op.evaluate(self, *[np.abs(self.value(operand)) for operand in op.operands])
        (magnitudes,) = found if isinstance(found, tuple) else (found,)
        return np.asarray(magnitudes)


def evaluated(
    block: Block,
    arguments: Sequence[Array],
    dims: Mapping[str, int],
    weights: Mapping[str, Array] | None = None,
    shake: int = 0,
    eps: float = 0.0,
) -> list[Array]:
    """The results of a function; with another shake than 0 the k-th of what rounding to `eps` may give."""
    run = _Shaken(dims, weights or {}, shake, eps) if shake else Evaluation(dims, weights)
    with np.errstate(all="ignore"):
        return [np.asarray(one) for one in run.run(block, list(arguments))]
