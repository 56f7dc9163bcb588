"""Recurrent layers: LSTM, GRU and RNN, in one or both directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlc.dialects import array, flow, nn
from dlc.dialects.array.shape import reshape, transpose
from dlc.importers.onnx.node_context import Importer, NodeContext, NodeResults
from dlc.ir.core import Block, Builder, Value
from dlc.ir.dims import Shape, Size
from dlc.ir.types import TensorType

DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
    "GRU": ("Sigmoid", "Tanh"),
    "RNN": ("Tanh",),
}
"""The functions that each layer has by default, which are all that is imported, but for RNN's."""

RNN_FUNCTIONS: dict[str, Callable[[Builder, Value], Value]] = {
    "Tanh": lambda emit, x: emit(array.Tanh(x)),
    "Relu": nn.relu,
    "Sigmoid": lambda emit, x: emit(array.Sigmoid(x)),
}


@dataclass(frozen=True, slots=True)
class _Direction:
    """One direction: weights [i, gates * h] and [h, gates * h], two biases [gates * h], a state [b, h]."""

    wx: Value
    wh: Value
    bx: Value
    bh: Value
    hidden: Value
    reverse: bool


class _Layer:
    """The common part of recurrent layers. The sequence is [time, batch, i]."""

    def __init__(self, context: NodeContext, order: Sequence[int]) -> None:
        self.context = context
        self.order = order
        for name in ("clip", "input_forget"):
            if context.node.attributes.get(name):
                raise context.unsupported(f"with {name} is not imported")
        if context.operand(4) is not None:
            raise context.unsupported("with sequence_lens is not imported")
        self.ways = DIRECTIONS.get(context.text("direction", "forward"))
        if self.ways is None:
            raise context.wrong(f"has the unknown direction {context.text('direction', '')!r}")
        self.batch_first = context.flag("layout")
        x = context.value(0)
        self.x = transpose(context.emit, x, (1, 0, 2)) if self.batch_first else x
        self.width = context.type(2).shape[-1]

    @property
    def batch(self) -> Size:
        """The batch size."""
        return array.tensor_type(self.x).shape[1]

    def direction(self, k: int) -> _Direction:
        """The weights of a direction, with the gates in our order."""
        assert self.ways is not None
        context, emit = self.context, self.context.emit
        count = len(self.order)
        wx, wh = [
            transpose(emit, self._ordered(self._of(context.value(index), k)), (1, 0))
            for index in (1, 2)
        ]
        wide = count * self.width
        bias = context.optional(3)
        if bias is None:
            both = array.fill(emit, 0, array.tensor_type(wx).with_shape((2 * wide,)))
        else:
            both = self._of(bias, k)
        bx = self._ordered(array.slice_axis(emit, both, 0, 0, wide))
        bh = self._ordered(array.slice_axis(emit, both, 0, wide, 2 * wide))
        return _Direction(wx, wh, bx, bh, self.state(5, k), self.ways[k])

    def _of(self, value: Value, k: int) -> Value:
        """The part of one direction, which is the first axis."""
        whole = array.tensor_type(value).shape[0] == 1
        part = value if whole else array.slice_axis(self.context.emit, value, 0, k, k + 1)
        return reshape(self.context.emit, part, array.tensor_type(part).shape[1:])

    def _ordered(self, value: Value) -> Value:
        """The gates, which lie along the first axis, in our order."""
        if list(self.order) == sorted(self.order):
            return value
        emit, h = self.context.emit, self.width
        parts = [array.slice_axis(emit, value, 0, k * h, (k + 1) * h) for k in self.order]
        return emit(array.Concatenate(tuple(parts), 0))

    def state(self, index: int, k: int) -> Value:
        """The initial state of a direction, [batch, h]: zeros if it is left out."""
        state, emit = self.context.optional(index), self.context.emit
        if state is None:
            type = array.tensor_type(self.x).with_shape((self.batch, self.width))
            return array.fill(emit, 0, type)
        if self.batch_first:
            state = transpose(emit, state, (1, 0, 2))
        return self._of(state, k)

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
        self, one: _Direction, body: Callable[[Builder, Value, Value, Value, Value], Value]
    ) -> list[Value]:
        """All outputs and the last state of a layer whose step is `body(emit, gates, h, wh, bh)`."""
        emit = self.context.emit
        gates = emit(nn.Linear(self.x, one.wx, (one.bx,)))
        type = array.tensor_type(gates)
        slice_type = TensorType(type.dtype, type.shape[1:])
        types = [flow.COUNTER, one.hidden.type, slice_type, one.wh.type, one.bh.type]
        block = Block(types, [None, "h", "gates", "wh", "bh"])
        _, hidden, gate, wh, bh = block.arguments
        at = Builder(block, emit.location)
        following = body(at, gate, hidden, wh, bh)
        at.place(flow.Yield((following, following)))
        scan = flow.Scan(
            (one.hidden,), (gates,), (one.wh, one.bh), block, type.shape[0], (0,), (0,), one.reverse
        )
        last, outputs = emit.all(scan)
        return [outputs, last]


def _activations(context: NodeContext, defaults: Sequence[str]) -> str:
    """The first function, where all are as by default or the layer has only one."""
    activations = context.node.attributes.get("activations")
    if activations is None:
        return defaults[0]
    names = [str(name) for name in activations] if isinstance(activations, tuple) else []
    ways = len(names) // len(defaults)
    if names == [*defaults] * ways:
        return defaults[0]
    if len(defaults) == 1 and len({*names}) == 1 and names[0] in RNN_FUNCTIONS:
        return names[0]
    raise context.unsupported(f"with the activations {', '.join(names)} is not imported")


def _lstm(context: NodeContext) -> NodeResults:
    _activations(context, ACTIVATIONS["LSTM"])
    if context.operand(7) is not None:
        raise context.unsupported("with peepholes is not imported")
    # In, out, forget, new there; in, forget, out, new here.
    layer = _Layer(context, (0, 2, 1, 3))
    assert layer.ways is not None
    directions: list[Sequence[Value]] = []
    for k in range(len(layer.ways)):
        direction = layer.direction(k)
        bias = context.emit(array.Add(direction.bx, direction.bh))
        # With the batch first, as the language has it; the time goes first again behind.
        x = transpose(context.emit, layer.x, (1, 0, 2))
        lstm = nn.LSTM(
            x,
            direction.wx,
            direction.wh,
            bias,
            direction.hidden,
            layer.state(6, k),
            1,
            direction.reverse,
        )
        outputs, *states = context.emit.all(lstm)
        directions.append([transpose(context.emit, outputs, (1, 0, 2)), *states])
    return layer.results(directions)


def _gru(context: NodeContext) -> NodeResults:
    _activations(context, ACTIVATIONS["GRU"])
    layer = _Layer(context, (0, 1, 2))
    assert layer.ways is not None
    width, late = layer.width, context.flag("linear_before_reset")

    def part(emit: Builder, value: Value, k: int, axis: int) -> Value:
        return array.slice_axis(emit, value, axis, k * width, (k + 1) * width)

    def product(emit: Builder, h: Value, wh: Value, bh: Value, k: int) -> Value:
        return emit(nn.Linear(h, part(emit, wh, k, 1), (part(emit, bh, k, 0),)))

    def body(emit: Builder, gates: Value, h: Value, wh: Value, bh: Value) -> Value:
        update, reset = [
            emit(
                array.Sigmoid(emit(array.Add(part(emit, gates, k, 1), product(emit, h, wh, bh, k))))
            )
            for k in (0, 1)
        ]
        if late:
            old = emit(array.Multiply(reset, product(emit, h, wh, bh, 2)))
        else:
            old = product(emit, emit(array.Multiply(reset, h)), wh, bh, 2)
        new = emit(array.Tanh(emit(array.Add(part(emit, gates, 2, 1), old))))
        kept = emit(array.Multiply(update, h))
        rest = emit(array.Subtract(array.constant_like(emit, 1, update), update))
        return emit(array.Add(emit(array.Multiply(rest, new)), kept))

    ways = range(len(layer.ways))
    return layer.results([layer.scanned(layer.direction(k), body) for k in ways])


def _rnn(context: NodeContext) -> NodeResults:
    function = RNN_FUNCTIONS[_activations(context, ACTIVATIONS["RNN"])]
    layer = _Layer(context, (0,))
    assert layer.ways is not None

    def body(emit: Builder, gates: Value, h: Value, wh: Value, bh: Value) -> Value:
        return function(emit, emit(array.Add(gates, emit(nn.Linear(h, wh, (bh,))))))

    ways = range(len(layer.ways))
    return layer.results([layer.scanned(layer.direction(k), body) for k in ways])


IMPORTERS: dict[str, Importer] = {"GRU": _gru, "LSTM": _lstm, "RNN": _rnn}
