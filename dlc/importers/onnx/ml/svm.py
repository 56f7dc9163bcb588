"""Support vector machines of ai.onnx.ml."""

from __future__ import annotations

from dlc.dialects import array
from dlc.dialects.array.arithmetic import plus, times
from dlc.dialects.nn.rows import in_dtype, total
from dlc.importers.onnx.ml.attributes import matrix_of, numbers, table
from dlc.importers.onnx.ml.scores import transform_of, transformed
from dlc.importers.onnx.node_context import Importer, NodeContext, NodeResults
from dlc.ir.core import Value
from dlc.ir.types import F32


def _kernel(context: NodeContext, x: Value, vectors: Value) -> Value:
    """How alike each row of x [n, c] is to each support vector, which are the columns of [c, s]: [n, s]."""
    emit, kind = context.emit, context.text("kernel_type", "LINEAR")
    gamma, shift, degree = (*numbers(context, "kernel_params").tolist(), 0.0, 0.0, 0.0)[:3]
    products = emit(array.MatMul(x, vectors))
    match kind:
        case "LINEAR":
            return products
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
        x = _kernel(context, x, table(context, vectors.reshape(count, -1).T, "vectors"))
    column = table(context, coefficients.reshape(-1, 1), "coefficients")
    y = plus(emit, emit(array.MatMul(x, column)), float(rho[0]) if rho.size else 0.0)
    if not context.flag("one_class"):
        return transformed(context, y, transform_of(context))
    one = array.constant_like(emit, 1, y)
    inside = emit(array.Compare(y, array.constant_like(emit, 0, y), "gt"))
    return emit(array.Select(inside, one, emit(array.Negate(one))))


IMPORTERS: dict[str, Importer] = {"SVMRegressor": _regressor}
