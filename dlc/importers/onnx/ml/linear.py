"""Linear models of ai.onnx.ml."""

from __future__ import annotations

from dlc.dialects import array
from dlc.dialects.nn.rows import in_dtype
from dlc.importers.onnx.ml.attributes import labels, matrix_of, numbers, table
from dlc.importers.onnx.ml.scores import (
    classified,
    classified_by_one,
    transform_of,
    transformed,
)
from dlc.importers.onnx.node_context import Importer, NodeContext, NodeResults
from dlc.ir.core import Value
from dlc.ir.types import F32


def _scores(context: NodeContext, targets: int) -> Value:
    """`x @ coefficients.T + intercepts`, [rows, targets]."""
    emit = context.emit
    x = in_dtype(emit, matrix_of(context, context.value(0)), F32)
    coefficients, intercepts = (numbers(context, name) for name in ("coefficients", "intercepts"))
    width = array.tensor_type(x).shape[1]
    if targets < 1 or coefficients.size % targets or coefficients.size // targets != width:
        raise context.wrong(
            f"has {coefficients.size} coefficients for {targets} targets of {width}"
        )
    matrix = table(context, coefficients.reshape(targets, -1).T, "coefficients")
    scores = emit(array.MatMul(x, matrix))
    if not intercepts.size:
        return scores
    row = table(context, intercepts, "intercepts")
    return emit(
        array.Add(scores, emit(array.Broadcast(row, array.tensor_type(scores).shape, (1,))))
    )


def _regressor(context: NodeContext) -> NodeResults:
    scores = _scores(context, context.integer("targets", 1))
    return transformed(context, scores, transform_of(context))


def _classifier(context: NodeContext) -> NodeResults:
    """The label of each row and the scores of all classes."""
    names = labels(context, "classlabels_ints")
    targets = max(1, numbers(context, "intercepts").size)
    scores, transform = _scores(context, targets), transform_of(context)
    if targets == 1 and len(names) == 2:
        return classified_by_one(context, scores, names, transform, is_probability=False)
    return classified(context, scores, names, transform)


IMPORTERS: dict[str, Importer] = {
    "LinearClassifier": _classifier,
    "LinearRegressor": _regressor,
}
