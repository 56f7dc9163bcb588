"""From scores to what a model of ai.onnx.ml gives: transformed scores, a second class, the label."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array, nn
from dlc.dialects.array.arithmetic import plus
from dlc.dialects.array.shape import reshape
from dlc.dialects.nn.rows import in_dtype, spread, total
from dlc.importers.onnx.ml.attributes import chosen
from dlc.importers.onnx.node_context import NodeContext
from dlc.ir.core import Builder, Value
from dlc.ir.types import I64

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""The names of transforms, in the order of their numbers in TreeEnsemble."""
ZERO = 1e-7
"""Scores nearer to 0 are 0 for SOFTMAX_ZERO, as in onnxruntime."""


def transform_of(context: NodeContext) -> str:
    """The name of the transform that a node asks for."""
    return context.text("post_transform", "NONE")


def transformed(context: NodeContext, scores: Value, transform: str) -> Value:
    """Scores [rows, targets], each row transformed."""
    match transform:
        case "NONE":
            return scores
        case "LOGISTIC":
            return context.emit(array.Sigmoid(scores))
        case "SOFTMAX":
            return context.emit(nn.Softmax(scores, 1))
        case "SOFTMAX_ZERO":
            return _softmax_zero(context.emit, scores)
        case _:
            raise context.unsupported(f"with the transform {transform} is not imported")


def _softmax_zero(emit: Builder, scores: Value) -> Value:
    """A softmax in which scores of 0 stay 0."""
    largest = spread(emit, emit(array.ReduceMax(scores, (1,))), scores, (1,))
    powers = emit(array.Exp(emit(array.Subtract(scores, largest))))
    near = array.constant_like(emit, ZERO, scores)
    is_zero = emit(array.Compare(emit(array.Abs(scores)), near, "le"))
    powers = emit(array.Select(is_zero, array.constant_like(emit, 0, scores), powers))
    return emit(array.Divide(powers, spread(emit, total(emit, powers, (1,)), powers, (1,))))


def classified(
    context: NodeContext, scores: Value, labels: Sequence[int], transform: str
) -> list[Value]:
    """The label of the largest score of each row [rows], and the transformed scores [rows, classes]."""
    count = array.tensor_type(scores).shape[1]
    if count != len(labels):
        raise context.wrong(f"has {len(labels)} labels for {count} scores")
    index = in_dtype(context.emit, context.emit(array.ArgMax(scores, 1)), I64)
    return [chosen(context, labels, index), transformed(context, scores, transform)]


def classified_by_one(
    context: NodeContext,
    score: Value,
    labels: Sequence[int],
    transform: str,
    *,
    is_probability: bool,
) -> list[Value]:
    """The label of one score [rows, 1] for two classes, and the scores of both.

    A probability decides for the second class above 1/2, and the first one has what is left. Any other
    score decides above 0, and the first class has its negative.
    """
    emit = context.emit
    if transform not in ("NONE", "LOGISTIC"):
        raise context.unsupported(f"of one score with the transform {transform} is not imported")
    limit = array.constant_like(emit, 0.5 if is_probability else 0.0, score)
    above = in_dtype(emit, emit(array.Compare(score, limit, "gt")), I64)
    index = reshape(emit, above, array.tensor_type(above).shape[:1])
    other = emit(array.Negate(score))
    if is_probability:
        other = plus(emit, other, 1)
    both = emit(array.Concatenate((other, score), 1))
    if transform == "LOGISTIC" and not is_probability:
        both = emit(array.Sigmoid(both))
    return [chosen(context, labels, index), both]
