"""Support vector machines of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dlc.dialects import array
from dlc.dialects.array.arithmetic import plus, times
from dlc.dialects.nn.rows import in_dtype, total
from dlc.importers.onnx.ml.attributes import chosen, integers, labels, matrix_of, numbers, table
from dlc.importers.onnx.ml.scores import transform_of, transformed
from dlc.importers.onnx.node_context import Importer, NodeContext, NodeResults
from dlc.ir.core import Value
from dlc.ir.types import F32, I64


def _weighted(
    context: NodeContext, x: Value, vectors: NDArray[np.float32], weights: NDArray[np.float32]
) -> Value:
    """`kernel(x, vectors) @ weights`, [n, p], of vectors [s, c] and weights [s, p].

    A linear kernel needs only `vectors.T @ weights`, which is computed here in f64: its terms may cancel.
    """
    emit = context.emit
    if context.text("kernel_type", "LINEAR") == "LINEAR":
        whole = vectors.T.astype(np.float64) @ weights.astype(np.float64)
        return emit(array.MatMul(x, table(context, whole.astype(np.float32), "coefficients")))
    alike = _kernel(context, x, table(context, vectors.T, "vectors"))
    return emit(array.MatMul(alike, table(context, weights, "coefficients")))


def _kernel(context: NodeContext, x: Value, vectors: Value) -> Value:
    """How alike each row of x [n, c] is to each support vector, which are the columns of [c, s]: [n, s]."""
    emit, kind = context.emit, context.text("kernel_type", "LINEAR")
    gamma, shift, degree = (*numbers(context, "kernel_params").tolist(), 0.0, 0.0, 0.0)[:3]
    products = emit(array.MatMul(x, vectors))
    match kind:
        case "POLY":
            base = plus(emit, times(emit, products, gamma), shift)
            return emit(array.Power(base, array.constant_like(emit, degree, base)))
        case "SIGMOID":
            return emit(array.Tanh(plus(emit, times(emit, products, gamma), shift)))
        case "RBF":
            return emit(array.Exp(times(emit, _distances(context, x, vectors), -gamma)))
        case _:
            raise context.wrong(f"has the unknown kernel {kind!r}")


def _distances(context: NodeContext, x: Value, vectors: Value) -> Value:
    """The square of the distance of each row to each vector: of differences, so that nothing cancels."""
    emit = context.emit
    n, c = array.tensor_type(x).shape
    s = array.tensor_type(vectors).shape[1]
    apart = emit(
        array.Subtract(
            emit(array.Broadcast(x, (n, c, s), (0, 1))),
            emit(array.Broadcast(vectors, (n, c, s), (1, 2))),
        )
    )
    return total(emit, emit(array.Multiply(apart, apart)), (1,))


def _regressor(context: NodeContext) -> NodeResults:
    """`kernel(x, vectors) @ coefficients + rho`; its sign where it tells outliers, with `one_class`."""
    emit = context.emit
    x = in_dtype(emit, matrix_of(context, context.value(0)), F32)
    count, rho = context.integer("n_supports", 0), numbers(context, "rho")
    coefficients = numbers(context, "coefficients")
    if count:
        vectors = numbers(context, "support_vectors")
        if vectors.size % count or coefficients.size != count:
            raise context.wrong(f"has {coefficients.size} coefficients for {count} vectors")
        y = _weighted(context, x, vectors.reshape(count, -1), coefficients.reshape(-1, 1))
    else:
        column = table(context, coefficients.reshape(-1, 1), "coefficients")
        y = emit(array.MatMul(x, column))
    y = plus(emit, y, float(rho[0]) if rho.size else 0.0)
    if not context.flag("one_class"):
        return transformed(context, y, transform_of(context))
    one = array.constant_like(emit, 1, y)
    inside = emit(array.Compare(y, array.constant_like(emit, 0, y), "gt"))
    return emit(array.Select(inside, one, emit(array.Negate(one))))


def _classifier(context: NodeContext) -> NodeResults:
    """Each pair of classes is decided by itself; the class that wins most often is the label.

    Scores are those of the pairs, [rows, pairs], for two classes the negative of the score and the score.
    """
    if numbers(context, "prob_a").size:
        raise context.unsupported("with probabilities is not imported")
    names, sizes = labels(context, "classlabels_ints"), integers(context, "vectors_per_class")
    transform = transform_of(context)
    if transform != "NONE":
        raise context.unsupported(f"with the transform {transform} is not imported")
    vectors, rho = numbers(context, "support_vectors"), numbers(context, "rho")
    pairs = list(combinations(range(len(names)), 2))
    count = sum(sizes)
    if len(sizes) != len(names) or not pairs or count < 1 or vectors.size % count:
        raise context.wrong(
            f"has {vectors.size} numbers of {count} vectors and {len(names)} classes"
        )
    weights = _pair_weights(context, sizes, pairs)
    if rho.size != len(pairs):
        raise context.wrong(f"has {rho.size} rho for {len(pairs)} pairs of classes")
    emit = context.emit
    x = in_dtype(emit, matrix_of(context, context.value(0)), F32)
    scores = _weighted(context, x, vectors.reshape(count, -1), weights)
    shape = array.tensor_type(scores).shape
    shift = emit(array.Broadcast(table(context, rho, "rho"), shape, (1,)))
    scores = emit(array.Add(scores, shift))
    label = chosen(context, names, _most_wins(context, scores, len(names), pairs))
    if len(names) == 2:
        scores = emit(array.Concatenate((emit(array.Negate(scores)), scores), 1))
    return [label, scores]


def _pair_weights(
    context: NodeContext, sizes: Sequence[int], pairs: Sequence[tuple[int, int]]
) -> NDArray[np.float32]:
    """The weight of each vector in each pair, [vectors, pairs].

    The coefficients are [classes - 1, vectors]: a vector of class i has those against class j in row j - 1
    if j comes later, else in row j.
    """
    count = sum(sizes)
    given = numbers(context, "coefficients")
    if given.size != (len(sizes) - 1) * count:
        raise context.wrong(f"has {given.size} coefficients for {len(sizes)} classes of {count}")
    rows, ends = given.reshape(len(sizes) - 1, count), np.cumsum([0, *sizes])
    weights = np.zeros((count, len(pairs)), np.float32)
    for number, (i, j) in enumerate(pairs):
        of_i, of_j = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
        weights[of_i, number] = rows[j - 1, of_i]
        weights[of_j, number] = rows[i, of_j]
    return weights


def _most_wins(
    context: NodeContext, scores: Value, classes: int, pairs: Sequence[tuple[int, int]]
) -> Value:
    """The first class that wins most pairs of each row: the first of a pair does by a score above 0."""
    emit, wins = context.emit, np.zeros((2, len(pairs), classes), np.float32)
    for number, (i, j) in enumerate(pairs):
        wins[0, number, i], wins[1, number, j] = 1, 1
    above = emit(array.Compare(scores, array.constant_like(emit, 0, scores), "gt"))
    first = in_dtype(emit, above, F32)
    second = in_dtype(emit, emit(array.Not(above)), F32)
    votes = emit(
        array.Add(
            emit(array.MatMul(first, table(context, wins[0], "first"))),
            emit(array.MatMul(second, table(context, wins[1], "second"))),
        )
    )
    return in_dtype(emit, emit(array.ArgMax(votes, 1)), I64)


IMPORTERS: dict[str, Importer] = {"SVMClassifier": _classifier, "SVMRegressor": _regressor}
