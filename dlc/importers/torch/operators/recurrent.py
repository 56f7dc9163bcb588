"""Recurrent layers: each direction of each layer is a loop over the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects import array, flow, nn
from dlc.dialects.array import tensor_type
from dlc.dialects.array.shape import reshape, transpose
from dlc.frontend.elaboration.trace import capture
from dlc.importers.recurrent_steps import gru_step
from dlc.importers.torch.node_context import Importer, NodeContext, Operand
from dlc.ir.core import Block, Builder, Value

ORDERS = {"lstm": (0, 1, 3, 2), "gru": (1, 0, 2), "rnn_tanh": (0,), "rnn_relu": (0,)}
"""Where PyTorch has each of our gates: of an LSTM in, forget, out, new; of a GRU update, reset, new."""


@dataclass(frozen=True, slots=True)
class _Direction:
    """Weights [i, gates * h] and [h, gates * h], biases [gates * h], and the states [b, h]."""

    wx: Value
    wh: Value
    bx: Value
    bh: Value
    states: tuple[Value, ...]
    time: int
    reverse: bool


def _recurrent(context: NodeContext) -> Operand:
    """All outputs, and the last states of all layers and directions above each other."""
    x, states, weights = context.value("x"), context.values("states"), context.values("weights")
    return tuple(_layers(context, context.emit, x, states, weights))


def _recurrent_backward(context: NodeContext) -> Operand:
    """The cotangents of the source, the states and the weights, from those of the results."""
    emit, count = context.emit, len(context.values("states"))
    given = (context.value("x"), *context.values("states"), *context.values("weights"))
    block = Block([value.type for value in given])
    inner = Builder(block, emit.location)
    x, *held = block.arguments
    made = _layers(context, inner, x, held[:count], held[count:])
    inner.place(flow.Yield(tuple(made)))
    used = capture([block])
    cotangents = tuple(context.values("dy"))
    return emit.all(flow.Vjp((*given, *used), cotangents, block, tuple(range(len(given)))))


def _layers(
    context: NodeContext, emit: Builder, x: Value, states: Sequence[Value], weights: Sequence[Value]
) -> list[Value]:
    """What the layers make of a source, emitted where `emit` says."""
    kind = context.text("kind")
    ways = 2 if context.flag("bidirectional") else 1
    each = 4 if context.flag("has_biases") else 2
    time = 1 if context.flag("batch_first") else 0
    last: list[tuple[Value, ...]] = []
    for layer in range(context.integer("layers")):
        outputs: list[Value] = []
        for way in range(ways):
            number = layer * ways + way
            arrays = weights[number * each : (number + 1) * each]
            parts = tuple([_row(emit, state, number) for state in states])
            one = _direction(emit, arrays, parts, ORDERS[kind], time, reverse=bool(way))
            output, *after = _run(emit, kind, x, one)
            outputs.append(output)
            last.append(tuple(after))
        x = emit(array.Concatenate(tuple(outputs), 2)) if ways == 2 else outputs[0]
    return [x, *[_stacked(emit, values) for values in zip(*last, strict=True)]]


def _run(emit: Builder, kind: str, x: Value, one: _Direction) -> Sequence[Value]:
    """The outputs of one direction, and its last states."""
    if kind == "lstm":
        bias = emit(array.Add(one.bx, one.bh))
        hidden, cell = one.states
        return emit.all(nn.LSTM(x, one.wx, one.wh, bias, hidden, cell, one.time, one.reverse))
    return _scanned(emit, kind, x, one)


def _scanned(emit: Builder, kind: str, x: Value, one: _Direction) -> Sequence[Value]:
    gates, (state,) = emit(nn.Linear(x, one.wx, (one.bx,))), one.states
    type = tensor_type(gates)
    step = type.with_shape((tensor_type(state).shape[0], type.shape[2]))
    block = Block([flow.COUNTER, state.type, step], [None, "h", "gates"])
    _, before, gate = block.arguments
    at = Builder(block, emit.location)
    if kind == "gru":
        after = gru_step(at, gate, before, one.wh, one.bh, _sigmoid, _tanh, late=True)
    else:
        whole = at(array.Add(gate, at(nn.Linear(before, one.wh, (one.bh,)))))
        after = _tanh(at, whole) if kind == "rnn_tanh" else nn.relu(at, whole)
    at.place(flow.Yield((after, after)))
    used = tuple(capture([block]))
    scan = flow.Scan(
        (state,), (gates,), used, block, type.shape[one.time], (one.time,), (one.time,), one.reverse
    )
    last, outputs = emit.all(scan)
    return outputs, last


def _direction(
    emit: Builder,
    weights: Sequence[Value],
    states: tuple[Value, ...],
    order: Sequence[int],
    time: int,
    *,
    reverse: bool,
) -> _Direction:
    """The weights of one direction, with the gates in our order."""
    ordered = [_ordered(emit, value, order) for value in weights]
    wx, wh = (transpose(emit, value, (1, 0)) for value in ordered[:2])
    type = tensor_type(wx)
    none = array.fill(emit, 0, type.with_shape(type.shape[1:]))
    bx, bh = ordered[2:] or (none, none)
    return _Direction(wx, wh, bx, bh, states, time, reverse)


def _ordered(emit: Builder, value: Value, order: Sequence[int]) -> Value:
    """The gates, which lie along the first axis, in our order."""
    if list(order) == sorted(order):
        return value
    width = tensor_type(value).shape[0] // len(order)
    parts = [array.slice_axis(emit, value, 0, k * width, (k + 1) * width) for k in order]
    return emit(array.Concatenate(tuple(parts), 0))


def _row(emit: Builder, value: Value, number: int) -> Value:
    """The state of one layer and direction."""
    part = array.slice_axis(emit, value, 0, number, number + 1)
    return reshape(emit, part, tensor_type(part).shape[1:])


def _stacked(emit: Builder, values: Sequence[Value]) -> Value:
    rows = [reshape(emit, value, (1, *tensor_type(value).shape)) for value in values]
    return rows[0] if len(rows) == 1 else emit(array.Concatenate(tuple(rows), 0))


def _sigmoid(emit: Builder, x: Value) -> Value:
    return emit(array.Sigmoid(x))


def _tanh(emit: Builder, x: Value) -> Value:
    return emit(array.Tanh(x))


IMPORTERS: dict[str, Importer] = {
    "dlc.recurrent": _recurrent,
    "dlc.recurrent_backward": _recurrent_backward,
}
