"""Operators of ai.onnx.ml that prepare features: scaling, encoding, choosing and joining columns."""

from __future__ import annotations

import math

import numpy as np

from dlc.dialects import array
from dlc.dialects.array.shape import reshape
from dlc.dialects.nn.rows import in_dtype, spread, total
from dlc.importers.onnx.facts import Array
from dlc.importers.onnx.ml.attributes import (
    columns,
    integers,
    matrix_of,
    no_texts,
    numbers,
    table,
)
from dlc.importers.onnx.node_context import Importer, NodeContext, NodeResults
from dlc.ir.core import Value
from dlc.ir.types import F32, F64, I64


def _scaler(context: NodeContext) -> NodeResults:
    """`(x - offset) * scale`, each a number or one for each column."""
    x = in_dtype(context.emit, context.value(0), F32)
    apart = context.emit(array.Subtract(x, columns(context, "offset", x)))
    return context.emit(array.Multiply(apart, columns(context, "scale", x)))


def _binarizer(context: NodeContext) -> NodeResults:
    """1 where x is more than the threshold, else 0."""
    x, emit = context.value(0), context.emit
    limit = array.constant_like(emit, context.number("threshold", 0.0), x)
    return in_dtype(emit, emit(array.Compare(x, limit, "gt")), array.tensor_type(x).dtype)


def _normalizer(context: NodeContext) -> NodeResults:
    """Each row divided by its norm; one of zeros stays."""
    emit, x = context.emit, matrix_of(context, context.value(0))
    kind = context.text("norm", "MAX")
    match kind:
        case "MAX":
            norm = emit(array.ReduceMax(x, (1,)))
        case "L1":
            norm = total(emit, emit(array.Abs(x)), (1,))
        case "L2":
            norm = emit(array.Sqrt(total(emit, emit(array.Multiply(x, x)), (1,))))
        case _:
            raise context.wrong(f"has the unknown norm {kind!r}")
    whole = spread(emit, norm, x, (1,))
    none = emit(array.Compare(whole, array.constant_like(emit, 0, whole), "eq"))
    y = emit(array.Select(none, x, emit(array.Divide(x, whole))))
    return reshape(emit, in_dtype(emit, y, F32), context.type(0).shape)


def _imputer(context: NodeContext) -> NodeResults:
    """Another number in place of one that stands for none, which may be NaN."""
    x, emit = context.value(0), context.emit
    is_float = array.tensor_type(x).dtype.is_float
    if is_float:
        new = columns(context, "imputed_value_floats", x)
        old = context.number("replaced_value_float", 0.0)
    else:
        new = _integer_columns(context, x)
        old = context.integer("replaced_value_int64", 0)
    if math.isnan(old):
        replaced = emit(array.Compare(x, x, "ne"))
    else:
        replaced = emit(array.Compare(x, array.constant_like(emit, old, x), "eq"))
    return emit(array.Select(replaced, new, x))


def _integer_columns(context: NodeContext, x: Value) -> Value:
    given, type = integers(context, "imputed_value_int64s"), array.tensor_type(x)
    if len(given) == 1:
        return array.constant_like(context.emit, given[0], x)
    if type.shape[-1] != len(given):
        raise context.wrong(f"has {len(given)} imputed_value_int64s for {type.text}")
    row = table(context, np.asarray(given, np.int64), "imputed")
    row = in_dtype(context.emit, row, type.dtype)
    return context.emit(array.Broadcast(row, type.shape, (type.rank - 1,)))


def _array_feature_extractor(context: NodeContext) -> NodeResults:
    """The columns whose numbers the second operand has."""
    x, emit = context.value(0), context.emit
    if array.tensor_type(x).rank == 1:
        x = reshape(emit, x, (1, *array.tensor_type(x).shape))
    index = context.value(1)
    index = reshape(emit, index, (array.tensor_type(index).size,))
    last = array.tensor_type(x).rank - 1
    # The result of a gather has the index first.
    found = emit(array.Gather(x, (index,), (last,)))
    return emit(array.Transpose(found, (*range(1, last + 1), 0)))


def _feature_vectorizer(context: NodeContext) -> NodeResults:
    """Columns side by side, in f32."""
    parts = context.values()
    if any(array.tensor_type(part).rank != 2 for part in parts):
        raise context.unsupported("takes matrices")
    rows = [in_dtype(context.emit, part, F32) for part in parts]
    return context.emit(array.Concatenate(tuple(rows), 1))


def _one_hot_encoder(context: NodeContext) -> NodeResults:
    """A new last axis with 1 at the category of each element; nowhere for one that is none of them."""
    if "cats_strings" in context.node.attributes:
        raise no_texts(context, "has texts as categories")
    if not context.flag("zeros", default=True):
        raise context.unsupported("that fails for what is not a category is not imported")
    emit, x = context.emit, in_dtype(context.emit, context.value(0), I64)
    held = table(context, np.asarray(integers(context, "cats_int64s"), np.int64), "categories")
    return in_dtype(emit, _hits(context, x, held), F32)


def _hits(context: NodeContext, x: Value, keys: Value) -> Value:
    """Where each element of x is each of the keys: a new last axis."""
    emit, shape = context.emit, array.tensor_type(x).shape
    whole = (*shape, *array.tensor_type(keys).shape)
    wide = emit(array.Broadcast(x, whole, tuple(range(len(shape)))))
    held = emit(array.Broadcast(keys, whole, (len(shape),)))
    equal = emit(array.Compare(wide, held, "eq"))
    if context.opset < 4 or not array.tensor_type(x).dtype.is_float:
        return equal
    # Since version 4 of the domain NaN is found among the keys.
    both = (emit(array.Compare(one, one, "ne")) for one in (wide, held))
    return emit(array.Or(equal, emit(array.And(*both))))


def _label_encoder(context: NodeContext) -> NodeResults:
    """The value of the key that each element is, the first one if there are several; else the default."""
    emit, x = context.emit, context.value(0)
    keys, values, default = (_side(context, side) for side in ("keys", "values", "default"))
    assert keys is not None
    assert values is not None
    if keys.size != values.size:
        raise context.wrong(f"has {keys.size} keys and {values.size} values")
    if default is None:
        default = np.asarray([-1 if values.dtype == np.int64 else -0.0])
    held = in_dtype(emit, table(context, keys, "keys"), array.tensor_type(x).dtype)
    hits = _hits(context, x, held)
    type = array.tensor_type(hits).with_dtype(I64)
    place = array.iota(emit, type, type.rank - 1)
    none = array.fill(emit, keys.size, type)
    index = emit(array.ReduceMin(emit(array.Select(hits, place, none)), (type.rank - 1,)))
    results = table(context, np.append(values, default.astype(values.dtype)), "values")
    return emit(array.Gather(results, (index,), (0,)))


def _side(context: NodeContext, side: str) -> Array | None:
    """The keys, the values or the default of a label encoder. Raises Unsupported for texts."""
    single = side == "default"
    ending = "" if single else "s"
    if f"{side}_string{ending}" in context.node.attributes and not single:
        raise no_texts(context, "encodes texts")
    tensor = context.tensor(f"{side}_tensor")
    if tensor is not None:
        if tensor.dtype not in (F32, F64, I64):
            raise context.unsupported(f"of {tensor.dtype.name} is not imported")
        return tensor.array.ravel()
    integer, floating = f"{side}_int64{ending}", f"{side}_float{ending}"
    if single:
        return _default(context, integer, floating)
    if integer in context.node.attributes:
        return np.asarray(integers(context, integer), np.int64)
    if floating in context.node.attributes:
        return numbers(context, floating)
    raise context.wrong(f"has no {side}")


def _default(context: NodeContext, integer: str, floating: str) -> Array | None:
    """The default for the kind of values that a label encoder has."""
    if "values_int64s" in context.node.attributes:
        return np.asarray([context.integer(integer, -1)], np.int64)
    return np.asarray([context.number(floating, -0.0)], np.float32)


IMPORTERS: dict[str, Importer] = {
    "ArrayFeatureExtractor": _array_feature_extractor,
    "Binarizer": _binarizer,
    "FeatureVectorizer": _feature_vectorizer,
    "Imputer": _imputer,
    "LabelEncoder": _label_encoder,
    "Normalizer": _normalizer,
    "OneHotEncoder": _one_hot_encoder,
    "Scaler": _scaler,
}
