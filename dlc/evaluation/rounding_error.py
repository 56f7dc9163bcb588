"""How far rounding may move what a kernel computes: Monte Carlo arithmetic on its formula.

The kernel is evaluated a few times more with every float that its formula computes moved at random by an
ulp, by the square root of the number of terms as many where terms are summed, in the terms as well as in
the sum (N. J. Higham and T. Mary, "A New Approach to Probabilistic Rounding Error Analysis", SIAM J. Sci.
Comput. 41, 2019). How far the results spread is what another order of the same operations, a fused
multiplication and addition, or wider registers may change; where terms cancel that is more than the
result's own rounding (D. S. Parker, "Monte Carlo Arithmetic", UCLA CSD-970002, 1997). What a kernel loads
is the same in every form of it, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import prod, sqrt
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.dialects import kernel, scalar
from dlc.dialects.kernel.generic import Inner, array_type
from dlc.errors import DlcError
from dlc.ir.attributes import decode, encode
from dlc.ir.core import Array, Evaluation, Op, Value
from dlc.ir.types import DType, TensorType

Numbers: TypeAlias = NDArray[np.float64]

SAMPLES = 3
"""Evaluations with random errors."""
SAFETY = 16.0
"""The tolerance as a multiple of the spread: samples see part of it."""
UNITS = {"f64": 2.0**-53, "f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
"""The unit roundoff of each dtype: half an ulp of 1."""
SMALLEST = {"f64": 1e-300, "f32": 2.0**-120, "f16": 2.0**-20, "bf16": 2.0**-120}
"""Differences that never count, of numbers so small that they have fewer digits."""
_SUMS = (
    *(kernel.Product, kernel.Attention, kernel.CachedAttention, kernel.AttentionGradient),
    *(kernel.PrefixScan, kernel.Scatter, kernel.WinogradGradient, kernel.WinogradKernel),
)
"""Kernels that sum what they load."""
_EXACT = (
    *("kernel.load", "kernel.stage", "scalar.constant", "scalar.select", "scalar.negate"),
    *("scalar.absolute", "scalar.maximum", "scalar.minimum", "scalar.bitcast"),
)
"""Operations that round nothing."""


def slack_of(
    op: kernel.Kernel, inputs: Sequence[Array], results: Sequence[Array], at: Evaluation
) -> list[Numbers]:
    """By how much each element of the results of a kernel may differ, for results computed from inputs.

    Infinite where the samples do not agree at all, as about a comparison of nearly equal numbers.
    """
    types = op.result_types()
    exact = [_numbers(one, type.dtype) for one, type in zip(results, types, strict=True)]
    spreads = [np.zeros(one.shape) for one in exact]
    for seed in range(1, SAMPLES + 1):
        with suppress(DlcError), np.errstate(all="ignore"):  # an index that errors put outside
            for k, sample in enumerate(_sample(op, inputs, at, np.random.default_rng(seed))):
                apart = np.abs(_numbers(sample, types[k].dtype) - exact[k])
                spreads[k] = np.maximum(spreads[k], np.where(np.isnan(apart), np.inf, apart))
    return [_slack(*each) for each in zip(exact, spreads, [t.dtype for t in types], strict=True)]


def _numbers(array: Array, dtype: DType) -> Numbers:
    return decode(array, dtype).astype(np.float64)


def _slack(exact: Numbers, spread: Numbers, dtype: DType) -> Numbers:
    if not dtype.is_float:
        return np.where(spread > 0, np.inf, 0.5)
    finite = np.isfinite(exact)
    spread = np.where(finite, spread, 0.0)  # what is not finite must be the same
    known = spread[np.isfinite(spread)]
    typical = sqrt(float(np.sum(np.square(known))) / max(1, known.size))
    least = UNITS[dtype.name] * np.abs(np.where(finite, exact, 0.0)) + SMALLEST[dtype.name]
    return SAFETY * (spread + typical + least)


def _sample(
    op: kernel.Kernel, inputs: Sequence[Array], at: Evaluation, random: np.random.Generator
) -> tuple[Array, ...]:
    """The results with random errors."""
    moved = list(inputs)
    if isinstance(op, _SUMS):
        terms = _summed(op, at)
        for k, (value, array) in enumerate(zip(op.operands, inputs, strict=False)):
            dtype = array_type(value).dtype
            if dtype.is_float and dtype.bits >= 32:  # 16 bits are summed in 32
                moved[k] = _moved(array, dtype, terms, random)
    found = op.evaluate(_Shaken(at, random), *moved)
    return found if isinstance(found, tuple) else (found,)


def _summed(op: kernel.Kernel, at: Evaluation) -> int:
    """About how many terms an element of the result of a kernel sums."""
    if isinstance(op, kernel.Gemm):
        return at.size(op.inner)
    shapes = [at.shape(array_type(value).shape) for value in op.operands]
    if isinstance(op, kernel.Conv):
        weights = shapes[1]
        return prod(weights) // max(1, *weights)
    return max((size for shape in shapes for size in shape), default=1)


def _moved(array: Array, dtype: DType, terms: int, random: np.random.Generator) -> Array:
    """An array with each element moved by an ulp, or by as many ulps as the root of the number of terms."""
    error = 2 * UNITS[dtype.name] * sqrt(max(1, terms))
    return encode(_numbers(array, dtype) * (1 + error * random.uniform(-1, 1, array.shape)), dtype)


class _Shaken(Evaluation):
    """An evaluation that moves each float that a formula computes."""

    __slots__ = ("_random",)

    def __init__(self, at: Evaluation, random: np.random.Generator) -> None:
        super().__init__(at.dims, at.weights, ranks=at.ranks)
        self._random = random

    def see(self, value: Value, array: Array) -> None:
        """Move the value where the evaluation keeps it, before anything reads it."""
        scope = self._scopes[-1] if self._scopes else {}
        if value.op is None or scope.get(value) is not array or isinstance(value.type, TensorType):
            return
        dtype = scalar.element(value.type)
        is_term = any(user.terminator for user in value.uses)
        if dtype.is_float and (is_term or value.op.name not in _EXACT):
            terms = _terms(value.op, self)
            if terms > 1 or value.op.name not in _EXACT:
                scope[value] = _moved(array, dtype, terms, self._random)


def _terms(op: Op, at: Evaluation) -> int:
    """Of how many terms a value is one, or is the sum."""
    around = op if isinstance(op, Inner) else op.parent.parent if op.parent is not None else None
    return prod(at.shape(around.extents)) if isinstance(around, kernel.Reduce) else 1
