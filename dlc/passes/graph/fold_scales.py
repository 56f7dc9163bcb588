"""Folding what is known about weights into the product or convolution before it.

A batch normalisation after a convolution is a scale and a shift of each channel. Both depend on weights
only: the scale goes into the kernel of the convolution, the shifts meet in one. Each rule is an identity
of real numbers, so the results differ by rounding only.
"""

from __future__ import annotations

from dlc.dialects import array
from dlc.dialects.array.convolution import LAYOUTS
from dlc.dialects.array.elementwise import tensor_type
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL, Pattern, Rewriter
from dlc.passes.graph.canonicalize import graph_blocks
from dlc.passes.graph.fold_weights import constant_values


@define_pass("fold_scales")
def fold_scales(module: Op, context: Context) -> None:
    """Fold scales and shifts that depend on weights only into products and convolutions."""
    rewriter = context.rewriter
    for block in graph_blocks(module):
        weights = _Weights(block)
        if weights.known:
            rewriter.run([block], weights.rules())


class _Weights:
    """The rules for one block: they ask which of its values are known when weights are loaded."""

    def __init__(self, block: Block) -> None:
        self.known = set(constant_values(block))

    def rules(self) -> dict[type[Op], list[Pattern]]:
        """The rules by operation."""
        return {
            array.Multiply: [self.shift_out_of_scale, self.merge_scales, self.scale_into_kernel],
            array.Add: [self.merge_shifts],
            array.Subtract: [self.subtract_is_add],
        }

    def _combined(
        self, emit: Builder, kind: type[array.Add | array.Multiply], one: Value, other: Value
    ) -> Value | None:
        """Two values from weights as one, repeated only afterwards; None if that takes more memory."""
        match one.op, other.op:
            case array.Broadcast() as a, array.Broadcast() as b:
                if a.axes != b.axes or a.source.type is not b.source.type:
                    return None
                small = self._made(emit, kind(a.source, b.source))
                return self._made(emit, array.Broadcast(small, tensor_type(one).shape, a.axes))
            case (array.Broadcast(), _) | (_, array.Broadcast()):
                return None
            case _:
                return self._made(emit, kind(one, other))

    def _negative(self, emit: Builder, value: Value) -> Value:
        """A negative value from weights, repeated only afterwards."""
        if not isinstance(value.op, array.Broadcast):
            return self._made(emit, array.Negate(value))
        source, axes = value.op.source, value.op.axes
        small = self._made(emit, array.Negate(source))
        return self._made(emit, array.Broadcast(small, tensor_type(value).shape, axes))

    def _fixed(self, value: Value) -> bool:
        return value in self.known

    def _made(self, emit: Builder, op: Op) -> Value:
        """A new value from weights alone."""
        value = emit(op)
        self.known.add(value)
        return value

    def _sides(self, op: Op) -> tuple[Value, Value] | None:
        """The operand that is not from weights alone, and the one that is."""
        lhs, rhs = op.operands
        if self._fixed(lhs) == self._fixed(rhs):
            return None
        return (rhs, lhs) if self._fixed(lhs) else (lhs, rhs)

    def subtract_is_add(self, op: Op, rewriter: Rewriter) -> bool:
        """`x - m` is `x + (-m)`."""
        lhs, rhs = op.operands
        if self._fixed(lhs) or not self._fixed(rhs):
            return False
        emit = rewriter.before(op)
        negative = self._negative(emit, rhs)
        rewriter.replace(op, emit(array.Add(lhs, negative)), relation=EQUAL)
        return True

    def merge_shifts(self, op: Op, rewriter: Rewriter) -> bool:
        """`(x + a) + b` is `x + (a + b)`."""
        return self._merge(op, rewriter, array.Add)

    def merge_scales(self, op: Op, rewriter: Rewriter) -> bool:
        """`(x * a) * b` is `x * (a * b)`."""
        return self._merge(op, rewriter, array.Multiply)

    def _merge(self, op: Op, rewriter: Rewriter, kind: type[array.Add | array.Multiply]) -> bool:
        sides = self._sides(op)
        if sides is None or not isinstance(sides[0].op, kind) or len(sides[0].uses) > 1:
            return False
        inner = self._sides(sides[0].op)
        if inner is None:
            return False
        emit = rewriter.before(op)
        both = self._combined(emit, kind, inner[1], sides[1])
        if both is None:
            return False
        rewriter.replace(op, emit(kind(inner[0], both)), relation=EQUAL)
        return True

    def shift_out_of_scale(self, op: Op, rewriter: Rewriter) -> bool:
        """`(x + a) * s` is `x * s + a * s`."""
        sides = self._sides(op)
        if sides is None or not isinstance(sides[0].op, array.Add) or len(sides[0].uses) > 1:
            return False
        inner = self._sides(sides[0].op)
        if inner is None:
            return False
        emit = rewriter.before(op)
        shift = self._combined(emit, array.Multiply, inner[1], sides[1])
        if shift is None:
            return False
        scaled = emit(array.Multiply(inner[0], sides[1]))
        rewriter.replace(op, emit(array.Add(scaled, shift)), relation=EQUAL)
        return True

    def scale_into_kernel(self, op: Op, rewriter: Rewriter) -> bool:
        """A scale of each output channel goes into the kernel."""
        sides = self._sides(op)
        if sides is None or len(sides[0].uses) > 1:
            return False
        result, scale = sides
        producer, by = result.op, scale.op
        if not isinstance(by, array.Broadcast):
            return False
        emit = rewriter.before(op)
        match producer:
            case array.Convolution() if self._fixed(producer.kernel):
                kind = LAYOUTS[producer.dims]
                if by.axes != (kind.channel,):
                    return False
                kernel = self._scaled(emit, producer.kernel, by.source, kind.kernel_out)
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
            case array.MatMul(rhs=rhs) if self._fixed(rhs):
                last = tensor_type(result).rank - 1
                if by.axes != (last,):
                    return False
                new = array.MatMul(producer.lhs, self._scaled(emit, rhs, by.source, last))
            case _:
                return False
        rewriter.replace(op, emit(new), relation=EQUAL)
        return True

    def _scaled(self, emit: Builder, kernel: Value, scale: Value, axis: int) -> Value:
        shape = tensor_type(kernel).shape
        spread = self._made(emit, array.Broadcast(scale, shape, (axis,)))
        return self._made(emit, array.Multiply(kernel, spread))
