"""Recurrent networks: one operation for a sequence."""

from __future__ import annotations

from dlc.dialects import array, flow
from dlc.dialects.array import show, tensor_type
from dlc.dialects.decomposed import Decomposed
from dlc.dialects.nn.linear import Linear
from dlc.dialects.nn.rows import check_floats
from dlc.ir.core import Block, Builder, Value
from dlc.ir.define import attribute, op, operand
from dlc.ir.types import TensorType

__all__ = ["LSTM", "lstm_step"]


@op("nn.lstm")
class LSTM(Decomposed):
    """A long short-term memory over a sequence: all outputs, the last output, the last cell state.

    The source is [batch, time, i], or [time, batch, i] with `time` 0; hidden and cell are the initial
    state, [batch, h]. The weights are [i, 4 * h] and [h, 4 * h], the bias [4 * h], with the gates in the
    order in, forget, out, new. At each step

        in, forget, out, new = split(x @ input_weight + bias + hidden @ hidden_weight)
        cell = sigmoid(forget) * cell + sigmoid(in) * tanh(new)
        hidden = sigmoid(out) * tanh(cell)
    """

    source: Value = operand()
    input_weight: Value = operand()
    hidden_weight: Value = operand()
    bias: Value = operand()
    hidden: Value = operand()
    cell: Value = operand()
    time: int = attribute(default=1)
    reverse: bool = attribute(default=False, doc="from the last step to the first")

    def infer(self) -> tuple[TensorType, ...]:
        source, hidden = check_floats(self, self.source), tensor_type(self.hidden)
        if source.rank != 3 or hidden.rank != 2 or self.time not in (0, 1):
            raise self.fail(
                f"{self.name} takes a sequence of 3 axes with the time first or second and a state of "
                f"2, found {source.text} and {hidden.text}"
            )
        batch, width = hidden.shape
        wanted = [
            source.with_shape((source.shape[2], 4 * width)),
            source.with_shape((width, 4 * width)),
            source.with_shape((4 * width,)),
            source.with_shape((batch, width)),
            source.with_shape((batch, width)),
        ]
        for value, type in zip(self.operands[1:], wanted, strict=True):
            if value.type is not type:
                raise self.fail(
                    f"{self.name} of {source.text} with {width} cells wants a {type.text}, "
                    f"found {show(value)}"
                )
        if source.shape[1 - self.time] != batch:
            raise self.fail(f"{source.text} has another batch than the state {hidden.text}")
        outputs = source.with_shape((*source.shape[:2], width))
        return outputs, hidden, hidden

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        # One product for the inputs of all steps; the loop has the product with the state only.
        gates = emit(Linear(self.source, self.input_weight, (self.bias,)))
        type, state = tensor_type(gates), tensor_type(self.hidden)
        step = type.with_shape((state.shape[0], type.shape[2]))
        body = Block([flow.COUNTER, state, state, step, tensor_type(self.hidden_weight)])
        _, hidden, cell, gate, weight = body.arguments
        at = Builder(body, self.location)
        hidden, cell = lstm_step(at, gate, hidden, cell, weight)
        at.place(flow.Yield((hidden, cell, hidden)))
        hidden, cell, outputs = emit.all(
            flow.Scan(
                (self.hidden, self.cell),
                (gates,),
                (self.hidden_weight,),
                body,
                type.shape[self.time],
                (self.time,),
                (self.time,),
                self.reverse,
            )
        )
        return outputs, hidden, cell


def lstm_step(
    emit: Builder, gate: Value, hidden: Value, cell: Value, weight: Value
) -> tuple[Value, Value]:
    """The next hidden and cell state; `gate` is the part of the input, `x @ input_weight + bias`."""
    width = tensor_type(hidden).shape[1]
    gates = emit(array.Add(gate, emit(array.MatMul(hidden, weight))))
    parts = [array.slice_axis(emit, gates, 1, k * width, (k + 1) * width) for k in range(4)]
    enter, forget, leave = (emit(array.Sigmoid(part)) for part in parts[:3])
    new = emit(array.Multiply(enter, emit(array.Tanh(parts[3]))))
    cell = emit(array.Add(emit(array.Multiply(forget, cell)), new))
    return emit(array.Multiply(leave, emit(array.Tanh(cell)))), cell
