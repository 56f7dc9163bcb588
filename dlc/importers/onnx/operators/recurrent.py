"""Recurrent layers: LSTM, GRU and RNN, in one or both directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlc.dialects import array, flow, nn
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.nn.rows import along, in_dtype
from dlc.frontend.elaboration.trace import capture
from dlc.importers.onnx.activations import LayerFunction, functions
from dlc.importers.onnx.node_context import Constant, Importer, NodeContext, NodeResults
from dlc.importers.onnx.operators.places import reversed_steps
from dlc.importers.recurrent_steps import gru_step
from dlc.ir.core import Block, Builder, Value
from dlc.ir.dims import Shape, Size
from dlc.ir.types import I64, TensorType

DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
    "DynamicQuantizeLSTM": ("Sigmoid", "Tanh", "Tanh"),
    "GRU": ("Sigmoid", "Tanh"),
    "RNN": ("Tanh",),
}
"""The functions that each layer has by default."""

Step = Callable[[Builder, Value, tuple[Value, ...]], tuple[Value, ...]]
"""Of the input's share of a step and the states: the next states, of which the first is the output."""


LSTM_GATES = (0, 2, 1, 3)
"""In, out, forget, new there; in, forget, out, new here."""


@dataclass(frozen=True, slots=True)
class Direction:
    """One direction: weights [i, gates * h] and [h, gates * h], two biases [gates * h], a state [b, h]."""

    wx: Value
    wh: Value
    bx: Value
    bh: Value
    hidden: Value
    reverse: bool


class Layer:
    """The common part of recurrent layers. The sequence is [time, batch, i]."""

    def __init__(self, context: NodeContext, order: Sequence[int]) -> None:
        self.context = context
        self.order = order
        ways = DIRECTIONS.get(context.text("direction", "forward"))
        if ways is None:
            raise context.wrong(f"has the unknown direction {context.text('direction', '')!r}")
        self.ways = ways
        defaults = ACTIVATIONS[context.node.kind]
        usual = list(defaults * len(ways))
        given = context.node.attributes.get("activations")
        names = [str(name) for name in given] if isinstance(given, tuple) else usual
        if len(names) != len(usual):
            raise context.wrong(f"has {len(names)} activations where {len(usual)} are needed")
        self.functions = functions(context, names)
        self.is_plain = names == usual and not any(
            context.node.attributes.get(name) for name in ("clip", "input_forget")
        )
        self.batch_first = context.flag("layout")
        x = context.value(0)
        self.x = transpose(context.emit, x, (1, 0, 2)) if self.batch_first else x
        self.width = self._width()
        self.lengths = self._lengths()

    def _width(self) -> Size:
        """The size of a state."""
        return self.context.type(2).shape[-1]

    def _lengths(self) -> Value | None:
        """How many steps each sequence has, `[batch]`; None where all have those of the tensor."""
        lengths = self.context.operand(4)
        steps = array.tensor_type(self.x).shape[0]
        if isinstance(lengths, Constant) and all(size == steps for size in lengths.sizes):
            return None
        return None if lengths is None else self.context.as_value(lengths)

    def functions_of(self, k: int) -> list[LayerFunction]:
        """The functions of a direction."""
        count = len(ACTIVATIONS[self.context.node.kind])
        return self.functions[k * count : (k + 1) * count]

    @property
    def batch(self) -> Size:
        """The batch size."""
        return array.tensor_type(self.x).shape[1]

    def direction(self, k: int) -> Direction:
        """The weights of a direction, with the gates in our order."""
        context, emit = self.context, self.context.emit
        wx, wh = [
            transpose(emit, self.ordered(self.of_direction(context.value(index), k)), (1, 0))
            for index in (1, 2)
        ]
        return Direction(wx, wh, *self.biases(k), self.state(5, k), self.ways[k])

    def biases(self, k: int) -> tuple[Value, Value]:
        """What is added to the shares of the input and of the state, `[gates * h]`; zeros if left out."""
        context, emit = self.context, self.context.emit
        wide = len(self.order) * self.width
        bias = context.optional(3)
        if bias is None:
            both = array.fill(emit, 0, array.tensor_type(self.x).with_shape((2 * wide,)))
        else:
            both = self.of_direction(bias, k)
        bx = self.ordered(array.slice_axis(emit, both, 0, 0, wide))
        return bx, self.ordered(array.slice_axis(emit, both, 0, wide, 2 * wide))

    def input_gates(self, one: Direction, bias: Value) -> Value:
        """The input's share of the gates of all steps, `[time, batch, gates * h]`."""
        return self.context.emit(nn.Linear(self.x, one.wx, (bias,)))

    def state_gates(self, emit: Builder, one: Direction, hidden: Value) -> Value:
        """The state's share of the gates of a step, `[batch, gates * h]`."""
        return emit(array.MatMul(hidden, one.wh))

    def of_direction(self, value: Value, k: int) -> Value:
        """The part of one direction, which is the first axis."""
        whole = array.tensor_type(value).shape[0] == 1
        part = value if whole else array.slice_axis(self.context.emit, value, 0, k, k + 1)
        return reshape(self.context.emit, part, array.tensor_type(part).shape[1:])

    def ordered(self, value: Value, axis: int = 0) -> Value:
        """The gates, which lie along an axis, in our order."""
        if list(self.order) == sorted(self.order):
            return value
        emit, h = self.context.emit, self.width
        parts = [array.slice_axis(emit, value, axis, k * h, (k + 1) * h) for k in self.order]
        return emit(array.Concatenate(tuple(parts), axis))

    def state(self, index: int, k: int) -> Value:
        """The initial state of a direction, [batch, h]: zeros if it is left out."""
        state, emit = self.context.optional(index), self.context.emit
        if state is None:
            type = array.tensor_type(self.x).with_shape((self.batch, self.width))
            return array.fill(emit, 0, type)
        if self.batch_first:
            state = transpose(emit, state, (1, 0, 2))
        return self.of_direction(state, k)

    def peepholes(self, k: int) -> list[Value] | None:
        """What the gates in, out and forget take of each cell, `[h]`; None if they see none."""
        whole = self.context.optional(7)
        if whole is None:
            return None
        part, h = self.of_direction(whole, k), self.width
        emit = self.context.emit
        return [array.slice_axis(emit, part, 0, n * h, (n + 1) * h) for n in range(3)]

    def results(self, directions: Sequence[Sequence[Value]]) -> NodeResults:
        """The outputs of all steps and the last states, of each direction [time, b, h] and [b, h]."""
        emit = self.context.emit
        outputs = self._stacked([direction[0] for direction in directions], 1)
        if self.batch_first:
            outputs = transpose(emit, outputs, (2, 0, 1, 3))
        states = [
            self._stacked([direction[k] for direction in directions], 0)
            for k in range(1, len(directions[0]))
        ]
        if self.batch_first:
            states = [transpose(emit, state, (1, 0, 2)) for state in states]
        return outputs, *states

    def _stacked(self, values: Sequence[Value], axis: int) -> Value:
        """Values of the directions above each other along a new axis."""
        shape = array.tensor_type(values[0]).shape
        with_axis: Shape = (*shape[:axis], 1, *shape[axis:])
        rows = [reshape(self.context.emit, value, with_axis) for value in values]
        return (
            rows[0] if len(rows) == 1 else self.context.emit(array.Concatenate(tuple(rows), axis))
        )

    def scanned(
        self, one: Direction, states: tuple[Value, ...], bias: Value, step: Step
    ) -> list[Value]:
        """All outputs, of the first state, and the last states; `bias` is added to the input's share."""
        emit, lengths = self.context.emit, self.lengths
        gates = self.input_gates(one, bias)
        if one.reverse and lengths is not None:
            gates = reversed_steps(emit, gates, lengths)
        type = array.tensor_type(gates)
        types = [flow.COUNTER, *[state.type for state in states], type.with_shape(type.shape[1:])]
        block = Block(types, [None, *["h", "c"][: len(states)], "gates"])
        number, *before, gate = block.arguments
        at = Builder(block, emit.location)
        after = step(at, gate, tuple(before))
        output = after[0]
        if lengths is not None:
            goes_on = self._goes_on(at, number, array.tensor_type(output))
            after = [
                at(array.Select(goes_on, new, old)) for new, old in zip(after, before, strict=True)
            ]
            output = at(array.Select(goes_on, output, array.constant_like(at, 0, output)))
        at.place(flow.Yield((*after, output)))
        used = tuple(capture([block]))
        from_end = one.reverse and lengths is None
        *last, outputs = emit.all(
            flow.Scan(states, (gates,), used, block, type.shape[0], (0,), (0,), from_end)
        )
        if one.reverse and lengths is not None:
            outputs = reversed_steps(emit, outputs, lengths)
        return [outputs, *last]

    def _goes_on(self, emit: Builder, number: Value, state: TensorType) -> Value:
        """Whether the sequence of each row of a state still has the step of this number."""
        assert self.lengths is not None
        length = in_dtype(emit, self.lengths, I64)
        step = along(emit, in_dtype(emit, number, I64), length, ())
        is_inside = emit(array.Compare(step, length, "lt"))
        return emit(array.Broadcast(is_inside, state.shape, (0,)))


def _lstm(context: NodeContext) -> NodeResults:
    layer = Layer(context, LSTM_GATES)
    plain = layer.is_plain and layer.lengths is None and context.operand(7) is None
    direction = _plain_lstm if plain else full_lstm
    return layer.results([direction(layer, k) for k in range(len(layer.ways))])


def _plain_lstm(layer: Layer, k: int) -> list[Value]:
    emit, one = layer.context.emit, layer.direction(k)
    bias = emit(array.Add(one.bx, one.bh))
    # With the batch first, as the language has it; the time goes first again behind.
    x, cell = transpose(emit, layer.x, (1, 0, 2)), layer.state(6, k)
    lstm = nn.LSTM(x, one.wx, one.wh, bias, one.hidden, cell, 1, one.reverse)
    outputs, *states = emit.all(lstm)
    return [transpose(emit, outputs, (1, 0, 2)), *states]


def full_lstm(layer: Layer, k: int) -> list[Value]:
    """With what `nn.LSTM` lacks: other functions, sequences of several lengths, gates that see the cell."""
    context, one = layer.context, layer.direction(k)
    enters, makes, shows = layer.functions_of(k)
    coupled, peepholes = context.flag("input_forget"), layer.peepholes(k)

    def seen(emit: Builder, gate: Value, cell: Value, which: int) -> Value:
        """A gate with its share of the cell."""
        if peepholes is None:
            return gate
        share = emit(array.Multiply(along(emit, peepholes[which], cell, (1,)), cell))
        return emit(array.Add(gate, share))

    def step(emit: Builder, gate: Value, states: tuple[Value, ...]) -> tuple[Value, ...]:
        hidden, cell = states
        gates = emit(array.Add(gate, layer.state_gates(emit, one, hidden)))
        h = layer.width
        parts = [array.slice_axis(emit, gates, 1, k * h, (k + 1) * h) for k in range(4)]
        enter = enters.gate(emit, seen(emit, parts[0], cell, 0))
        if coupled:
            kept = emit(array.Subtract(array.constant_like(emit, 1, enter), enter))
        else:
            kept = enters.gate(emit, seen(emit, parts[1], cell, 2))
        new = emit(array.Multiply(enter, makes.gate(emit, parts[3])))
        cell = emit(array.Add(emit(array.Multiply(kept, cell)), new))
        leave = enters.gate(emit, seen(emit, parts[2], cell, 1))
        return emit(array.Multiply(leave, shows.plain(emit, cell))), cell

    bias = context.emit(array.Add(one.bx, one.bh))
    return layer.scanned(one, (one.hidden, layer.state(6, k)), bias, step)


def _gru(context: NodeContext) -> NodeResults:
    layer = Layer(context, (0, 1, 2))
    return layer.results([_gru_direction(layer, k) for k in range(len(layer.ways))])


def _gru_direction(layer: Layer, k: int) -> list[Value]:
    late, one = layer.context.flag("linear_before_reset"), layer.direction(k)
    gate_function, new_function = layer.functions_of(k)

    def step(emit: Builder, gates: Value, states: tuple[Value, ...]) -> tuple[Value, ...]:
        (h,) = states
        of_gates, of_new = gate_function.gate, new_function.gate
        return (gru_step(emit, gates, h, one.wh, one.bh, of_gates, of_new, late=late),)

    return layer.scanned(one, (one.hidden,), one.bx, step)


def _rnn(context: NodeContext) -> NodeResults:
    layer = Layer(context, (0,))
    return layer.results([_rnn_direction(layer, k) for k in range(len(layer.ways))])


def _rnn_direction(layer: Layer, k: int) -> list[Value]:
    one, (function,) = layer.direction(k), layer.functions_of(k)

    def step(emit: Builder, gates: Value, states: tuple[Value, ...]) -> tuple[Value, ...]:
        whole = emit(array.Add(gates, emit(nn.Linear(states[0], one.wh, (one.bh,)))))
        return (function.gate(emit, whole),)

    return layer.scanned(one, (one.hidden,), one.bx, step)


IMPORTERS: dict[str, Importer] = {"GRU": _gru, "LSTM": _lstm, "RNN": _rnn}
