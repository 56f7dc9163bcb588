"""Optimizers of the domain ai.onnx.preview.training: one step for each of any number of tensors.

Operands are the learning rate R, the number of steps T, then all tensors X, all gradients G and all of each
kind of state; results are the new tensors and states in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc.dialects import array
from dlc.dialects.array.arithmetic import plus, square, times
from dlc.dialects.array.shape import reshape
from dlc.dialects.nn.rows import in_dtype
from dlc.importers.onnx.node_context import Importer, NodeContext, NodeResults, stretched
from dlc.ir.core import Builder, Value

Step = Callable[["NodeContext", "_Rate", Sequence[Value]], Sequence[Value]]
"""The new tensor and the new states, from the tensor, its gradient and its states."""


class _Rate:
    """The learning rate and the number of steps, both scalars."""

    def __init__(self, context: NodeContext) -> None:
        emit = context.emit
        self.value = reshape(emit, context.value(0), ())
        dtype = array.tensor_type(self.value).dtype
        self.steps = in_dtype(emit, reshape(emit, context.value(1), ()), dtype)
        zero = array.constant_like(emit, 0, self.steps)
        self.has_begun = emit(array.Compare(self.steps, zero, "gt"))


def _optimizer(step: Step, states: int) -> Importer:
    """Every tensor with its own `states` states."""

    def apply(context: NodeContext) -> NodeResults:
        count, rest = divmod(len(context.operands) - 2, states + 2)
        if rest or count < 1:
            raise context.wrong(f"takes R, T and {states + 2} tensors for each one to be changed")
        rate, results = _Rate(context), list[Sequence[Value]]()
        for which in range(count):
            given = [context.value(2 + which + count * kind) for kind in range(states + 2)]
            results.append(step(context, rate, given))
        return [one[kind] for kind in range(states + 1) for one in results]

    return apply


def _regularized(context: NodeContext, x: Value, gradient: Value) -> Value:
    penalty = times(context.emit, x, context.number("norm_coefficient", 0.0))
    return context.emit(array.Add(penalty, gradient))


def _scaled(emit: Builder, x: Value, factor: Value) -> Value:
    """A tensor times a scalar."""
    factor = in_dtype(emit, factor, array.tensor_type(x).dtype)
    return emit(array.Multiply(x, stretched(emit, factor, array.tensor_type(x).shape)))


def _mixed(emit: Builder, old: Value, new: Value, share: float) -> Value:
    """`share * old + (1 - share) * new`."""
    return emit(array.Add(times(emit, old, share), times(emit, new, 1 - share)))


def _adam(context: NodeContext, rate: _Rate, given: Sequence[Value]) -> Sequence[Value]:
    x, gradient, first, second = given
    emit = context.emit
    alpha, beta = context.number("alpha", 0.9), context.number("beta", 0.999)
    gradient = _regularized(context, x, gradient)
    first = _mixed(emit, first, gradient, alpha)
    second = _mixed(emit, second, square(emit, gradient), beta)
    root = plus(emit, emit(array.Sqrt(second)), context.number("epsilon", 1e-6))

    def left(share: float) -> Value:
        """1 less the share to the power of T."""
        power = emit(array.Power(array.constant_like(emit, share, rate.steps), rate.steps))
        return plus(emit, emit(array.Negate(power)), 1)

    corrected = emit(array.Divide(emit(array.Sqrt(left(beta))), left(alpha)))
    corrected = emit(array.Multiply(rate.value, corrected))
    rate_now = emit(array.Select(rate.has_begun, corrected, rate.value))
    x = emit(array.Subtract(x, emit(array.Divide(_scaled(emit, first, rate_now), root))))
    kept = 1 - context.number("norm_coefficient_post", 0.0)
    return times(emit, x, kept), first, second


def _adagrad(context: NodeContext, rate: _Rate, given: Sequence[Value]) -> Sequence[Value]:
    x, gradient, squares = given
    emit = context.emit
    decay = plus(emit, times(emit, rate.steps, context.number("decay_factor", 0.0)), 1)
    rate_now = emit(array.Divide(rate.value, decay))
    gradient = _regularized(context, x, gradient)
    squares = emit(array.Add(squares, square(emit, gradient)))
    root = plus(emit, emit(array.Sqrt(squares)), context.number("epsilon", 1e-6))
    step = emit(array.Divide(_scaled(emit, gradient, rate_now), root))
    return emit(array.Subtract(x, step)), squares


def _momentum(context: NodeContext, rate: _Rate, given: Sequence[Value]) -> Sequence[Value]:
    """In the first step the whole gradient counts."""
    x, gradient, momentum = given
    emit, alpha = context.emit, context.number("alpha")
    mode = context.text("mode", "standard")
    if mode not in ("standard", "nesterov"):
        raise context.wrong(f"has the unknown mode {mode!r}")
    gradient = _regularized(context, x, gradient)
    one = array.constant_like(emit, 1, rate.value)
    beta = emit(array.Select(rate.has_begun, times(emit, one, context.number("beta")), one))
    momentum = emit(array.Add(times(emit, momentum, alpha), _scaled(emit, gradient, beta)))
    direction = momentum
    if mode == "nesterov":
        direction = emit(array.Add(gradient, times(emit, momentum, alpha)))
    return emit(array.Subtract(x, _scaled(emit, direction, rate.value))), momentum


IMPORTERS: dict[str, Importer] = {
    "Adagrad": _optimizer(_adagrad, 1),
    "Adam": _optimizer(_adam, 2),
    "Momentum": _optimizer(_momentum, 1),
}
