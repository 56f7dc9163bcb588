"""One step of the recurrent layers that have no operation of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from dlc.dialects import array, nn
from dlc.ir.core import Builder, Value

Function: TypeAlias = "Callable[[Builder, Value], Value]"


def gru_step(
    emit: Builder,
    gates: Value,
    h: Value,
    weight: Value,
    bias: Value,
    of_gates: Function,
    of_new: Function,
    *,
    late: bool,
) -> Value:
    """The next state [b, h]: `update * h + (1 - update) * new`.

    `gates` is the input's share [b, 3 * h], in the order update, reset, new, as `weight` [h, 3 * h] and
    `bias` [3 * h] of the state have it. The reset gate is multiplied with the state, or (`late`) with the
    state's share of what is new.
    """
    width = array.tensor_type(h).shape[1]

    def part(value: Value, k: int, axis: int) -> Value:
        return array.slice_axis(emit, value, axis, k * width, (k + 1) * width)

    def product(state: Value, k: int) -> Value:
        return emit(nn.Linear(state, part(weight, k, 1), (part(bias, k, 0),)))

    update, reset = [
        of_gates(emit, emit(array.Add(part(gates, k, 1), product(h, k)))) for k in (0, 1)
    ]
    if late:
        old = emit(array.Multiply(reset, product(h, 2)))
    else:
        old = product(emit(array.Multiply(reset, h)), 2)
    new = of_new(emit, emit(array.Add(part(gates, 2, 1), old)))
    kept = emit(array.Multiply(update, h))
    rest = emit(array.Subtract(array.constant_like(emit, 1, update), update))
    return emit(array.Add(emit(array.Multiply(rest, new)), kept))
