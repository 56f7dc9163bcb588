"""The functions that recurrent layers apply, by their names in ONNX."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dlc.dialects import array, nn
from dlc.dialects.array.arithmetic import plus, times
from dlc.importers.onnx.node_context import NodeContext
from dlc.ir.core import Builder, Value

Function = Callable[[Builder, Value], Value]


@dataclass(frozen=True, slots=True)
class _Activation:
    """A function of x, alpha and beta; defaults for those that it has, NaN where ONNX names none."""

    apply: Callable[[Builder, Value, float, float], Value]
    alpha: float | None = None
    beta: float | None = None


def _thresholded(emit: Builder, x: Value, limit: float) -> Value:
    above = emit(array.Compare(x, array.constant_like(emit, limit, x), "gt"))
    return emit(array.Select(above, x, array.constant_like(emit, 0, x)))


ACTIVATIONS: dict[str, _Activation] = {
    "affine": _Activation(
        lambda emit, x, a, b: plus(emit, times(emit, x, a), b), math.nan, math.nan
    ),
    "elu": _Activation(lambda emit, x, a, b: nn.elu(emit, x, a), 1.0),
    "hardsigmoid": _Activation(
        lambda emit, x, a, b: nn.clip(emit, plus(emit, times(emit, x, a), b), 0, 1), 0.2, 0.5
    ),
    "leakyrelu": _Activation(lambda emit, x, a, b: nn.leaky_relu(emit, x, a), 0.01),
    "relu": _Activation(lambda emit, x, a, b: nn.relu(emit, x)),
    "scaledtanh": _Activation(
        lambda emit, x, a, b: times(emit, emit(array.Tanh(times(emit, x, b))), a),
        math.nan,
        math.nan,
    ),
    "sigmoid": _Activation(lambda emit, x, a, b: emit(array.Sigmoid(x))),
    "softplus": _Activation(lambda emit, x, a, b: nn.softplus(emit, x)),
    "softsign": _Activation(lambda emit, x, a, b: nn.softsign(emit, x)),
    "tanh": _Activation(lambda emit, x, a, b: emit(array.Tanh(x))),
    "thresholdedrelu": _Activation(lambda emit, x, a, b: _thresholded(emit, x, a), 1.0),
}
"""By their names in lower case: ONNX compares them so."""


@dataclass(frozen=True, slots=True)
class LayerFunction:
    """A function of a layer; `gate` is itself after the layer's `clip`, which the gates have.

    That a function of something else, the cell of an LSTM, has none is how onnxruntime reads ONNX's text.
    """

    plain: Function
    gate: Function


def functions(context: NodeContext, names: Sequence[str]) -> list[LayerFunction]:
    """The functions of a layer, with the numbers that its attributes give them.

    Each takes the next number of `activation_alpha` and `activation_beta` that it has a use for.
    """
    given = {
        name: iter(context.numbers(name)) if name in context.node.attributes else iter(())
        for name in ("activation_alpha", "activation_beta")
    }
    limit = context.number("clip", 0.0)
    found: list[LayerFunction] = []
    for name in names:
        activation = ACTIVATIONS.get(name.lower())
        if activation is None:
            raise context.unsupported(f"with the activation {name} is not imported")
        alpha = _number(context, name, given["activation_alpha"], activation.alpha)
        beta = _number(context, name, given["activation_beta"], activation.beta)
        found.append(_function(activation, alpha, beta, limit))
    return found


def _number(
    context: NodeContext, name: str, given: Iterator[float], default: float | None
) -> float:
    if default is None:
        return 0.0
    number = next(given, default)
    if math.isnan(number):
        raise context.wrong(f"has the activation {name} without its numbers")
    return number


def _function(activation: _Activation, alpha: float, beta: float, limit: float) -> LayerFunction:
    def plain(emit: Builder, x: Value) -> Value:
        return activation.apply(emit, x, alpha, beta)

    def clipped(emit: Builder, x: Value) -> Value:
        return plain(emit, nn.clip(emit, x, -limit, limit))

    return LayerFunction(plain, clipped if limit else plain)
