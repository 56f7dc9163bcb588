"""The optimizers of `ai.onnx.preview.training`: each updates any number of tensors by their gradients.

Inputs are the rate, the number of updates so far, all tensors, all gradients, then all tensors of each kind
of state; results are the new tensors, then the new states. The formulas are those of the operators'
definitions in ONNX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc.dialects import array
from dlc.dialects.array.arithmetic import plus, square, times
from dlc.dialects.array.shape import reshape
from dlc.dialects.nn.rows import along, in_dtype
from dlc.importers.onnx.node_context import Importer, NodeContext, NodeResults
from dlc.ir.core import Builder, Value

Update = Callable[[NodeContext, Value, Value, Value, Value, Sequence[Value]], tuple[Value, ...]]
"""Of the rate, the number of updates, a tensor, its gradient and its states: the new tensor and states."""


def _optimizer(states: int, update: Update) -> Importer:
    def apply(context: NodeContext) -> NodeResults:
        rate, step, *values = [context.value(index) for index in range(len(context.operands))]
        count, rest = divmod(len(values), 2 + states)
        if rest or not count:
            raise context.wrong(f"takes {2 + states} values for each tensor, found {len(values)}")
        emit = context.emit
        rate, step = (reshape(emit, number, ()) for number in (rate, step))
        new: list[tuple[Value, ...]] = []
        for k in range(count):
            x, gradient, *state = values[k::count]
            dtype = array.tensor_type(x).dtype
            own_rate, own_step = in_dtype(emit, rate, dtype), in_dtype(emit, step, dtype)
            decay = context.number("norm_coefficient", 0.0)
            gradient = emit(array.Add(times(emit, x, decay), gradient))
            new.append(update(context, own_rate, own_step, x, gradient, state))
        return [one[kind] for kind in range(1 + states) for one in new]

    return apply


def _scaled(emit: Builder, factor: Value, x: Value) -> Value:
    """A tensor times a number that is computed."""
    return emit(array.Multiply(along(emit, factor, x, ()), x))


def _adagrad(
    context: NodeContext, rate: Value, step: Value, x: Value, g: Value, state: Sequence[Value]
) -> tuple[Value, ...]:
    """`h += g²; x -= rate / (1 + step * decay) * g / (sqrt(h) + epsilon)`."""
    emit = context.emit
    slowed = plus(emit, times(emit, step, context.number("decay_factor", 0.0)), 1)
    rate = emit(array.Divide(rate, slowed))
    h = emit(array.Add(state[0], square(emit, g)))
    root = plus(emit, emit(array.Sqrt(h)), context.number("epsilon", 1e-6))
    return emit(array.Subtract(x, emit(array.Divide(_scaled(emit, rate, g), root)))), h


def _adam(
    context: NodeContext, rate: Value, step: Value, x: Value, g: Value, state: Sequence[Value]
) -> tuple[Value, ...]:
    """Moments of gradients and of their squares, corrected for their start at 0 from step 1 on."""
    emit = context.emit
    alpha, beta = context.number("alpha", 0.9), context.number("beta", 0.999)
    v = emit(array.Add(times(emit, state[0], alpha), times(emit, g, 1 - alpha)))
    h = emit(array.Add(times(emit, state[1], beta), times(emit, square(emit, g), 1 - beta)))
    root = plus(emit, emit(array.Sqrt(h)), context.number("epsilon", 1e-6))
    rests = [_rest_of_power(emit, factor, step) for factor in (beta, alpha)]
    bias = emit(array.Divide(emit(array.Sqrt(rests[0])), rests[1]))
    started = emit(array.Compare(step, array.constant_like(emit, 0, step), "gt"))
    corrected = emit(array.Multiply(rate, bias))
    rate = emit(array.Select(started, corrected, rate))
    moved = _scaled(emit, rate, emit(array.Divide(v, root)))
    rest = 1 - context.number("norm_coefficient_post", 0.0)
    return times(emit, emit(array.Subtract(x, moved)), rest), v, h


def _rest_of_power(emit: Builder, factor: float, step: Value) -> Value:
    """`1 - factor ** step`."""
    power = emit(array.Power(array.constant_like(emit, factor, step), step))
    return emit(array.Subtract(array.constant_like(emit, 1, power), power))


def _momentum(
    context: NodeContext, rate: Value, step: Value, x: Value, g: Value, state: Sequence[Value]
) -> tuple[Value, ...]:
    """`v = alpha * v + beta * g`, with 1 for beta in step 0; then x moves by v, or as Nesterov has it."""
    emit = context.emit
    mode, alpha = context.text("mode", "standard"), context.number("alpha")
    if mode not in ("standard", "nesterov"):
        raise context.wrong(f"has the unknown mode {mode!r}")
    started = emit(array.Compare(step, array.constant_like(emit, 0, step), "gt"))
    beta = array.constant_like(emit, context.number("beta"), step)
    beta = emit(array.Select(started, beta, array.constant_like(emit, 1, step)))
    v = emit(array.Add(times(emit, state[0], alpha), _scaled(emit, beta, g)))
    way = emit(array.Add(g, times(emit, v, alpha))) if mode == "nesterov" else v
    return emit(array.Subtract(x, _scaled(emit, rate, way))), v


IMPORTERS: dict[str, Importer] = {
    "Adagrad": _optimizer(1, _adagrad),
    "Adam": _optimizer(2, _adam),
    "Momentum": _optimizer(1, _momentum),
}
"""The importers of operators in the domain `ai.onnx.preview.training`."""
