"""Losses."""

from __future__ import annotations

from dlc.dialects import array
from dlc.dialects.array import show, tensor_type
from dlc.dialects.decomposed import Decomposed
from dlc.dialects.nn.rows import (
    check_floats,
    in_dtype,
    spread,
    total,
    widened,
)
from dlc.ir.core import Builder, Value
from dlc.ir.define import op, operand
from dlc.ir.types import I64, TensorType

__all__ = ["CrossEntropy"]


@op("nn.cross_entropy")
class CrossEntropy(Decomposed):
    """The loss of each example, `log of sum of exp(logits) - logits[label]` along the last axis.

    Logits are taken relative to the largest of their row: the difference of a large logarithm and a large
    logit would lose the digits of a small loss. NaN where the largest is infinite. A call with a label
    outside the classes fails. f16 and bf16 are computed in f32.
    """

    logits: Value = operand()
    labels: Value = operand()

    def infer(self) -> TensorType:
        logits, labels = check_floats(self, self.logits), tensor_type(self.labels)
        if not labels.dtype.is_integer or logits.shape[:-1] != labels.shape or logits.rank == 0:
            raise self.fail(
                f"the logits {logits.text} want one integer for each row, "
                f"found the labels {show(self.labels)}"
            )
        return logits.with_shape(labels.shape)

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        logits = widened(emit, self.logits)
        last = tensor_type(logits).rank - 1
        largest, _, log = _normaliser(emit, logits)
        labels = in_dtype(emit, self.labels, I64)
        places = [array.iota(emit, tensor_type(labels), axis) for axis in range(last)]
        chosen = emit(array.Gather(logits, (*places, labels), tuple(range(last + 1))))
        loss = emit(array.Subtract(log, emit(array.Subtract(chosen, largest))))
        return (in_dtype(emit, loss, tensor_type(self.logits).dtype),)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        """The softmax, less 1 at the label. Its largest logits and sums are those of the loss."""
        logits = widened(emit, self.logits)
        _, below, log = _normaliser(emit, logits)
        type, last = tensor_type(logits), tensor_type(logits).rank - 1
        dloss = spread(emit, widened(emit, cotangents[0]), logits, (last,))
        labels = spread(emit, in_dtype(emit, self.labels, I64), logits, (last,))
        here = emit(array.Compare(array.iota(emit, type, last), labels, "eq"))
        taken = emit(array.Select(here, dloss, array.constant_like(emit, 0, logits)))
        softmax = emit(array.Exp(emit(array.Subtract(below, spread(emit, log, logits, (last,))))))
        share = emit(array.Multiply(softmax, dloss))
        dlogits = emit(array.Subtract(share, taken))
        return in_dtype(emit, dlogits, tensor_type(self.logits).dtype), None


def _normaliser(emit: Builder, logits: Value) -> tuple[Value, Value, Value]:
    """Of each row the largest logit, the logits minus it, and the log of the sum of their exponentials."""
    last = (tensor_type(logits).rank - 1,)
    largest = emit(array.ReduceMax(logits, last))
    below = emit(array.Subtract(logits, spread(emit, largest, logits, last)))
    return largest, below, emit(array.Log(total(emit, emit(array.Exp(below)), last)))
