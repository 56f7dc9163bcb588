"""Losses."""

from __future__ import annotations

from dlc.dialects import array
from dlc.dialects.array import show, tensor_type
from dlc.dialects.decomposed import Decomposed
from dlc.dialects.nn.rows import (
    check_floats,
    in_dtype,
    spread,
    widened,
)
from dlc.dialects.nn.softmax import LogSumExp
from dlc.ir.core import Builder, Value
from dlc.ir.define import op, operand
from dlc.ir.types import I64, TensorType, wide

__all__ = ["CrossEntropy"]


@op("nn.cross_entropy")
class CrossEntropy(Decomposed):
    """The loss of each example, `log of sum of exp(logits) - logits[label]` along the last axis.

    The second result is the logarithm, which the derivative needs. A call with a label outside the classes
    fails. f16 and bf16 are computed in f32, and the logarithm stays in f32.
    """

    logits: Value = operand()
    labels: Value = operand()

    def infer(self) -> tuple[TensorType, ...]:
        logits, labels = check_floats(self, self.logits), tensor_type(self.labels)
        if not labels.dtype.is_integer or logits.shape[:-1] != labels.shape or logits.rank == 0:
            raise self.fail(
                f"the logits {logits.text} want one integer for each row, "
                f"found the labels {show(self.labels)}"
            )
        rows = logits.with_shape(labels.shape)
        return rows, rows.with_dtype(wide(rows.dtype))

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        logits = widened(emit, self.logits)
        last = tensor_type(logits).rank - 1
        log = emit(LogSumExp(logits, last))
        labels = in_dtype(emit, self.labels, I64)
        places = [array.iota(emit, tensor_type(labels), axis) for axis in range(last)]
        chosen = emit(array.Gather(logits, (*places, labels), tuple(range(last + 1))))
        loss = emit(array.Subtract(log, chosen))
        return in_dtype(emit, loss, tensor_type(self.logits).dtype), log

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        """`exp(logits - log)` is the softmax; the cotangent of the loss is subtracted at the label."""
        logits = widened(emit, self.logits)
        type, last = tensor_type(logits), (tensor_type(logits).rank - 1,)
        dloss, dlog = widened(emit, cotangents[0]), cotangents[1]
        log = spread(emit, self.results[1], logits, last)
        softmax = emit(array.Exp(emit(array.Subtract(logits, log))))
        both = spread(emit, emit(array.Add(dloss, dlog)), logits, last)
        labels = spread(emit, in_dtype(emit, self.labels, I64), logits, last)
        here = emit(array.Compare(array.iota(emit, type, last[0]), labels, "eq"))
        zero = array.constant_like(emit, 0, logits)
        taken = emit(array.Select(here, spread(emit, dloss, logits, last), zero))
        dlogits = emit(array.Subtract(emit(array.Multiply(softmax, both)), taken))
        return in_dtype(emit, dlogits, tensor_type(self.logits).dtype), None
