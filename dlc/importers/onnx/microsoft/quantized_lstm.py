"""`DynamicQuantizeLSTM` of com.microsoft: an LSTM whose products are those of small integers.

The weights lie transposed, `[directions, i, 4 * h]` and `[directions, h, 4 * h]`, each direction with a
scale and a zero point, or with one for each column. The input is quantised as a whole, the state anew at
each step: operators 8 to 11 are the scales and zero points of the two weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects import array
from dlc.dialects.nn.rows import along, in_dtype
from dlc.importers.onnx.microsoft.quantized import dynamic_product
from dlc.importers.onnx.node_context import Importer, NodeContext, NodeResults
from dlc.importers.onnx.operators.quantized import Quantization
from dlc.importers.onnx.operators.recurrent import LSTM_GATES, Direction, Layer, full_lstm
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Size
from dlc.ir.types import I32


@dataclass(frozen=True, slots=True)
class _QuantizedDirection(Direction):
    """A direction whose weights are quantised."""

    by_x: Quantization
    by_h: Quantization


class _QuantizedLayer(Layer):
    """An LSTM with quantised weights."""

    def _width(self) -> Size:
        return self.context.type(2).shape[-2]

    def direction(self, k: int) -> Direction:
        """The weights of a direction, quantised as they are, with the gates in our order."""
        wx, wh = [
            self.ordered(self.of_direction(self.context.value(index), k), 1) for index in (1, 2)
        ]
        by = [self._quantization(index, k) for index in (8, 10)]
        return _QuantizedDirection(wx, wh, *self.biases(k), self.state(5, k), self.ways[k], *by)

    def _quantization(self, index: int, k: int) -> Quantization:
        """How the weights of a direction are quantised: for all columns or for each."""
        context = self.context
        scale, zero = [
            self._columns(self.of_direction(context.value(at), k)) for at in (index, index + 1)
        ]
        dtype = context.type(1).dtype
        return Quantization(dtype, scale, in_dtype(context.emit, zero, I32))

    def _columns(self, part: Value) -> Value:
        """One number, or one for each column, whose gates are brought into our order."""
        return self.ordered(part) if array.tensor_type(part).rank else part

    def input_gates(self, one: Direction, bias: Value) -> Value:
        """The input's share, of all steps quantised alike."""
        assert isinstance(one, _QuantizedDirection)
        emit = self.context.emit
        gates = dynamic_product(self.context, self.x, one.wx, one.by_x)
        return emit(array.Add(gates, along(emit, bias, gates, (2,))))

    def state_gates(self, emit: Builder, one: Direction, hidden: Value) -> Value:
        """The state's share, quantised at each step."""
        assert isinstance(one, _QuantizedDirection)
        return dynamic_product(self.context.emitting(emit), hidden, one.wh, one.by_h)


def _quantized_lstm(context: NodeContext) -> NodeResults:
    layer = _QuantizedLayer(context, LSTM_GATES)
    return layer.results([full_lstm(layer, k) for k in range(len(layer.ways))])


IMPORTERS: dict[str, Importer] = {"DynamicQuantizeLSTM": _quantized_lstm}
