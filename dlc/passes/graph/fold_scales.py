"""Batch-norm folding: scales that depend on weights only go into the product or convolution before them.

A batch normalization after a convolution is a scale and a shift of each channel. Both depend on weights
only: the scale goes into the kernel of the convolution, and the shifts become one. Each rule is an
identity of real numbers, so the results differ by rounding only.

A scale that is broadcast to a symbolic batch depends on weights only as well: the rules compute with its
source, so what they emit is computed when weights are loaded, whatever the size of the batch.
"""

from __future__ import annotations

from typing import Any

from dlc.dialects import array
from dlc.dialects.array.convolution_layouts import LAYOUTS
from dlc.dialects.array.elementwise import tensor_type
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.location import fuse
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL, Pattern, Rewriter
from dlc.passes.graph.canonicalize import graph_blocks
from dlc.passes.graph.fold_weights import loop_weights, values_from_weights


@define_pass("fold_scales")
def fold_scales(module: Op, context: Context) -> None:
    """Fold scales and shifts that depend on weights only into products and convolutions."""
    rewriter, given = context.rewriter, loop_weights(module)
    for block in graph_blocks(module):
        weights = _Weights(block, given)
        if weights.from_weights:
            rewriter.run([block], weights.rules())


class _Weights:
    """The rules for one block, with the values that depend on weights only.

    A loop may be `given` slices of weights: what is computed from them, `distribute` takes out of it.
    """

    def __init__(self, block: Block, given: set[Value]) -> None:
        self.from_weights = set(values_from_weights(block, given))
        self.from_weights.update(
            op.result
            for op in block
            if isinstance(op, array.Broadcast) and op.source in self.from_weights
        )

    def rules(self) -> dict[type[Op], list[Pattern[Any]]]:
        """The rules by operation."""
        return {
            array.Multiply: [self.shift_out_of_scale, self.merge_scales, self.scale_into_kernel],
            array.Add: [self.merge_shifts],
            array.Subtract: [self.subtract_is_add],
        }

    def _combine(
        self, emit: Builder, kind: type[array.Add | array.Multiply], first: Value, second: Value
    ) -> Value | None:
        """Combine two values from weights, under their broadcast; None if that takes more memory."""
        match first.op, second.op:
            case array.Broadcast() as a, array.Broadcast() as b:
                if a.axes != b.axes or a.source.type is not b.source.type:
                    return None
                small = self._emit(emit, kind(a.source, b.source))
                return self._emit(emit, array.Broadcast(small, tensor_type(first).shape, a.axes))
            case (array.Broadcast(), _) | (_, array.Broadcast()):
                return None
            case _:
                return self._emit(emit, kind(first, second))

    def _negate(self, emit: Builder, value: Value) -> Value:
        """Negate a value from weights, under its broadcast."""
        if not isinstance(value.op, array.Broadcast):
            return self._emit(emit, array.Negate(value))
        source, axes = value.op.source, value.op.axes
        small = self._emit(emit, array.Negate(source))
        return self._emit(emit, array.Broadcast(small, tensor_type(value).shape, axes))

    def _is_from_weights(self, value: Value) -> bool:
        return value in self.from_weights

    def _is_prepared(self, value: Value) -> bool:
        """Whether a value can be computed when weights are loaded, before sizes of calls are known."""
        return self._is_from_weights(value) and tensor_type(value).is_static

    def _emit(self, emit: Builder, op: Op) -> Value:
        """Emit an operation on values from weights."""
        value = emit(op)
        self.from_weights.add(value)
        return value

    def _split_operands(self, op: Op) -> tuple[Value, Value] | None:
        """The operand that depends on inputs, and the one from weights; None if both are alike."""
        lhs, rhs = op.operands
        if self._is_from_weights(lhs) == self._is_from_weights(rhs):
            return None
        return (rhs, lhs) if self._is_from_weights(lhs) else (lhs, rhs)

    def subtract_is_add(self, op: Op, rewriter: Rewriter) -> bool:
        """`x - m` is `x + (-m)`."""
        lhs, rhs = op.operands
        if self._is_from_weights(lhs) or not self._is_from_weights(rhs):
            return False
        emit = rewriter.before(op)
        negative = self._negate(emit, rhs)
        rewriter.replace(op, emit(array.Add(lhs, negative)), relation=EQUAL)
        return True

    def merge_shifts(self, op: Op, rewriter: Rewriter) -> bool:
        """`(x + a) + b` is `x + (a + b)`."""
        return self._merge(op, rewriter, array.Add)

    def merge_scales(self, op: Op, rewriter: Rewriter) -> bool:
        """`(x * a) * b` is `x * (a * b)`."""
        return self._merge(op, rewriter, array.Multiply)

    def _merge(self, op: Op, rewriter: Rewriter, kind: type[array.Add | array.Multiply]) -> bool:
        operands = self._split_operands(op)
        if operands is None or not isinstance(operands[0].op, kind) or len(operands[0].uses) > 1:
            return False
        inner_operands = self._split_operands(operands[0].op)
        if inner_operands is None:
            return False
        emit = rewriter.before(op)
        both = self._combine(emit, kind, inner_operands[1], operands[1])
        if both is None:
            return False
        rewriter.replace(op, emit(kind(inner_operands[0], both)), relation=EQUAL)
        return True

    def shift_out_of_scale(self, op: Op, rewriter: Rewriter) -> bool:
        """`(x + a) * s` is `x * s + a * s`."""
        sides = self._split_operands(op)
        if sides is None or not isinstance(sides[0].op, array.Add) or len(sides[0].uses) > 1:
            return False
        inner = self._split_operands(sides[0].op)
        if inner is None:
            return False
        emit = rewriter.before(op)
        shift = self._combine(emit, array.Multiply, inner[1], sides[1])
        if shift is None:
            return False
        scaled = emit(array.Multiply(inner[0], sides[1]))
        rewriter.replace(op, emit(array.Add(scaled, shift)), relation=EQUAL)
        return True

    def scale_into_kernel(self, op: Op, rewriter: Rewriter) -> bool:
        """A scale of each output channel goes into the kernel."""
        sides = self._split_operands(op)
        if sides is None or len(sides[0].uses) > 1:
            return False
        result, scale = sides
        producer, by = result.op, scale.op
        if not isinstance(by, array.Broadcast):
            return False
        emit = rewriter.before(op)
        match producer:
            case array.Convolution() if self._is_prepared(producer.kernel):
                kind = LAYOUTS[producer.dims]
                if by.axes != (kind.channel,):
                    return False
                kernel = self._scale_kernel(emit, producer.kernel, by.source, kind.kernel_out)
                new: Op = array.Convolution(
                    producer.source,
                    kernel,
                    producer.strides,
                    producer.padding,
                    producer.dilations,
                    producer.source_dilations,
                    producer.groups,
                    producer.dims,
                )
            case array.MatMul(rhs=rhs) if self._is_prepared(rhs):
                last = tensor_type(result).rank - 1
                if by.axes != (last,):
                    return False
                new = array.MatMul(producer.lhs, self._scale_kernel(emit, rhs, by.source, last))
            case _:
                return False
        folded = emit.at(fuse([producer.location, op.location]))(new)
        rewriter.replace(op, folded, relation=EQUAL)
        return True

    def _scale_kernel(self, emit: Builder, kernel: Value, scale: Value, axis: int) -> Value:
        shape = tensor_type(kernel).shape
        spread = self._emit(emit, array.Broadcast(scale, shape, (axis,)))
        return self._emit(emit, array.Multiply(kernel, spread))
