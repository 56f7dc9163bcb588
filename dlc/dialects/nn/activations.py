"""Functions applied to each element between layers.

At a kink the derivative is that of `array.maximum`, `array.minimum` or `array.select`; each docstring
states its value.
"""

from __future__ import annotations

import math

from dlc.dialects import array, flow
from dlc.dialects.array.arithmetic import plus, times
from dlc.ir.core import Block, Builder, Value

__all__ = [
    "clip", "elu", "gelu", "hardsigmoid", "hardswish", "leaky_relu", "mish", "prelu", "relu", "selu",
    "silu", "softplus", "softsign",
]  # fmt: skip

SELU_ALPHA = 1.6732632423543772
SELU_SCALE = 1.0507009873554805
"""G. Klambauer et al., "Self-Normalizing Neural Networks", 2017, section 2."""


def relu(emit: Builder, x: Value) -> Value:
    """`max(0, x)`; the derivative at 0 is 0."""
    return emit(array.Maximum(array.constant_like(emit, 0, x), x))


def clip(emit: Builder, x: Value, low: float, high: float) -> Value:
    """x clamped to `low` and `high`; the derivative at the bounds is 1."""
    above = emit(array.Maximum(x, array.constant_like(emit, low, x)))
    return emit(array.Minimum(above, array.constant_like(emit, high, x)))


def gelu(emit: Builder, x: Value, *, tanh: bool = False) -> Value:
    """`x * Phi(x)` with the normal distribution function Phi; with `tanh` its approximation by tanh."""
    half = times(emit, x, 0.5)
    if tanh:
        # Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
        cube = emit(array.Multiply(emit(array.Multiply(x, x)), x))
        inner = emit(array.Add(x, times(emit, cube, 0.044715)))
        share = emit(array.Tanh(times(emit, inner, math.sqrt(2 / math.pi))))
    else:
        share = emit(array.Erf(times(emit, x, math.sqrt(0.5))))
    return emit(array.Multiply(half, plus(emit, share, 1)))


def silu(emit: Builder, x: Value) -> Value:
    """`x * sigmoid(x)`."""
    return emit(array.Multiply(x, emit(array.Sigmoid(x))))


def softplus(emit: Builder, x: Value) -> Value:
    """`log(1 + exp(x))`, without overflow; all its derivatives are those of the sigmoid."""
    type = array.tensor_type(x)
    primal, rule = Block([type]), Block([type] * 3)
    at = Builder(primal, emit.location)
    (source,) = primal.arguments
    tail = at(array.Log1p(at(array.Exp(at(array.Negate(at(array.Abs(source))))))))
    at.place(flow.Yield((at(array.Add(relu(at, source), tail)),)))
    # Each of the two terms above has a kink at 0; their sum has none.
    at = Builder(rule, emit.location)
    source, _, dy = rule.arguments
    at.place(flow.Yield((at(array.Multiply(dy, at(array.Sigmoid(source)))),)))
    return emit(flow.Custom((x,), primal, rule))


def softsign(emit: Builder, x: Value) -> Value:
    """`x / (1 + |x|)`."""
    return emit(array.Divide(x, plus(emit, emit(array.Abs(x)), 1)))


def elu(emit: Builder, x: Value, alpha: float = 1.0) -> Value:
    """x where it is positive, else `alpha * (exp(x) - 1)`; the derivative at 0 is alpha."""
    zero = array.constant_like(emit, 0, x)
    # The exponential of a large x would overflow, and inf * 0 in the derivative is NaN.
    negative = emit(array.Expm1(emit(array.Minimum(x, zero))))
    positive = emit(array.Compare(x, zero, "gt"))
    return emit(array.Select(positive, x, times(emit, negative, alpha)))


def selu(emit: Builder, x: Value) -> Value:
    """elu with the constants that keep mean 0 and variance 1 through layers."""
    return times(emit, elu(emit, x, SELU_ALPHA), SELU_SCALE)


def leaky_relu(emit: Builder, x: Value, slope: float = 0.01) -> Value:
    """x where it is positive, else `slope * x`; the derivative at 0 is the slope."""
    return prelu(emit, x, array.constant_like(emit, slope, x))


def prelu(emit: Builder, x: Value, slope: Value) -> Value:
    """x where it is positive, else `slope * x` with a slope for each element."""
    positive = emit(array.Compare(x, array.constant_like(emit, 0, x), "gt"))
    return emit(array.Select(positive, x, emit(array.Multiply(slope, x))))


def hardsigmoid(emit: Builder, x: Value) -> Value:
    """`clip(x / 6 + 1 / 2, 0, 1)`; the derivative where x is -3 or 3 is 1 / 6."""
    return clip(emit, plus(emit, times(emit, x, 1 / 6), 0.5), 0, 1)


def hardswish(emit: Builder, x: Value) -> Value:
    """`x * hardsigmoid(x)`."""
    return emit(array.Multiply(x, hardsigmoid(emit, x)))


def mish(emit: Builder, x: Value) -> Value:
    """`x * tanh(softplus(x))`."""
    return emit(array.Multiply(x, emit(array.Tanh(softplus(emit, x)))))
