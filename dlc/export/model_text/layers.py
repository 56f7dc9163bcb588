"""Readings of layers of the library: a product with weights of its own, and normalisation by figures."""

from __future__ import annotations

from functools import partial

from dlc.dialects import array, nn
from dlc.dialects.array import LAYOUTS, tensor_type
from dlc.export.model_text.functions import conv_settings, dims_setting, is_transposed, one_if_equal
from dlc.export.model_text.graph import Graph, short
from dlc.export.model_text.pattern import HOLES, matched
from dlc.export.model_text.spelling import reads
from dlc.export.model_text.terms import Item, Layer, Term, Weight
from dlc.ir.core import Value
from dlc.ir.dims import Shape, product
from dlc.ir.types import F32, DType

NAMES = ("", "Conv1d", "Conv2d", "Conv3d")
TRANSPOSED = ("", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")
FIRST = {3: "ncw", 4: "nchw", 5: "ncdhw"}
"""The layouts with the channels second, by the number of axes."""

Settings = list[tuple[str, Item]]


@reads(nn.Conv)
def _conv(graph: Graph, op: nn.Conv) -> Term | None:
    settings = conv_settings(op)
    if settings is None or graph.is_stored(op.source) or not _own(graph, op.kernel, *op.bias):
        return None
    layout = LAYOUTS[op.dims]
    kernel = tensor_type(op.kernel)
    window = tuple([_int(kernel.shape[axis]) for axis in layout.kernel_spatial])
    inputs = tensor_type(op.source).shape[layout.channel]
    outputs = tensor_type(op.result).shape[layout.channel]
    found: Settings = [("", inputs), ("", outputs), ("kernel", one_if_equal(window)), *settings]
    if not op.bias:
        found.insert(-1 if settings and settings[-1][0] == "dims" else len(found), ("bias", False))
    flipped = layout.kernel_spatial if is_transposed(op) else ()
    weights = [("w", graph.weight(op.kernel, flipped=flipped))]
    weights += [("b", graph.weight(bias)) for bias in op.bias]
    names = TRANSPOSED if is_transposed(op) else NAMES
    return _layer(names[len(window)], found, kernel.dtype, weights, op.source)


@reads(array.Add)
def _linear_and_bias(graph: Graph, op: array.Add) -> Term | None:
    """A matrix product with a weight, and a bias for each column."""
    for inner, bias in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        found = _rows(graph, inner)
        wide = bias.op
        if found is None or not graph.is_used_only_by(inner, {op}):
            continue
        if not isinstance(wide, array.Broadcast) or wide.axes != (tensor_type(op.result).rank - 1,):
            continue
        source, matrix = found
        row = wide.source
        if not _own(graph, row):
            continue
        weights = [("w", graph.weight(matrix)), ("b", graph.weight(row))]
        return _linear(matrix, weights, source)
    return None


@reads(nn.Linear)
def _linear_at_once(graph: Graph, op: nn.Linear) -> Term | None:
    if not _own(graph, op.weight, *op.bias):
        return None
    weights = [("w", graph.weight(op.weight)), *[("b", graph.weight(bias)) for bias in op.bias]]
    return _linear(op.weight, weights, op.source)


@reads(array.MatMul, array.Reshape)
def _linear_alone(graph: Graph, op: array.MatMul | array.Reshape) -> Term | None:
    found = _rows(graph, op.result)
    if found is None:
        return None
    source, matrix = found
    return _linear(matrix, [("w", graph.weight(matrix))], source)


def _linear(matrix: Value, weights: list[tuple[str, Weight]], source: Value) -> Layer:
    inputs, outputs = tensor_type(matrix).shape
    settings: Settings = [("", inputs), ("", outputs)]
    if len(weights) == 1:
        settings.append(("bias", False))
    return _layer("Linear", settings, tensor_type(matrix).dtype, weights, source)


def _rows(graph: Graph, value: Value) -> tuple[Value, Value] | None:
    """The rows and the matrix of weights whose product a value is."""
    op = value.op
    if isinstance(op, array.Reshape):
        inner = op.source.op
        if not isinstance(inner, array.MatMul) or not graph.is_used_only_by(op.source, {op}):
            return None
        rows = inner.lhs.op
        if not isinstance(rows, array.Reshape):
            return None
        source = rows.source
        shape = tensor_type(source).shape
        if rows.shape != (product(shape[:-1]), shape[-1]) or op.shape[:-1] != shape[:-1]:
            return None
    elif isinstance(op, array.MatMul):
        inner, source = op, op.lhs
    else:
        return None
    if tensor_type(inner.rhs).rank != 2 or not _own(graph, inner.rhs) or graph.is_stored(source):
        return None
    return source, inner.rhs


@reads(array.Add)
def _batch_norm(graph: Graph, op: array.Add) -> Term | None:
    """Normalisation by figures that were gathered in training; the channels are the second axis."""
    type = tensor_type(op.result)
    if type.rank < 2 or (type.rank > 2 and type.rank not in FIRST):
        return None
    row = type.with_shape((type.shape[1],))
    build = partial(nn.batch_norm, axis=1, eps=HOLES[0])
    found = matched(graph, op.result, build, [type, row, row, row, row])
    if found is None:
        return None
    (source, *rows), (eps,) = found
    if not _own(graph, *rows) or graph.is_stored(source):
        return None
    names = ("scale", "shift", "running_mean", "running_var")
    weights = [
        (name, graph.weight(row, trained=name in ("scale", "shift")))
        for name, row in zip(names, rows, strict=True)
    ]
    settings: Settings = [("", type.shape[1])]
    eps = short(eps, type.dtype)
    settings += [("eps", eps)] if eps != 1e-5 else []
    settings += dims_setting(FIRST[type.rank]) if type.rank > 2 else []
    return _layer("BatchNorm", settings, type.dtype, weights, source)


@reads(nn.LayerNorm)
def _layer_norm(graph: Graph, op: nn.LayerNorm) -> Term | None:
    type = tensor_type(op.source)
    if op.axis != type.rank - 1 or not op.scale or not _own(graph, *op.scale, *op.shift):
        return None
    eps = short(op.eps, type.dtype)
    settings: Settings = [("", type.shape[-1])]
    settings += [("eps", eps)] if eps != 1e-5 else []
    settings += [] if op.shift else [("bias", False)]
    weights = [("scale", graph.weight(op.scale[0]))]
    weights += [("shift", graph.weight(shift)) for shift in op.shift]
    return _layer("LayerNorm", settings, type.dtype, weights, op.source)


@reads(nn.RMSNorm)
def _rms_norm(graph: Graph, op: nn.RMSNorm) -> Term | None:
    if op.axis != tensor_type(op.source).rank - 1 or not op.scale or not _own(graph, *op.scale):
        return None
    return _rms_norm_layer(graph, op.source, op.scale[0], op.eps)


@reads(array.Multiply)
def _rms_norm_in_parts(graph: Graph, op: array.Multiply) -> Term | None:
    """Rows divided by the root of their mean square, and then scaled, as PyTorch's modules write it."""
    for scale, normed in (op.operands, reversed(op.operands)):
        row = scale.op
        inner = normed.op
        if not isinstance(row, array.Broadcast) or row.axes != (tensor_type(op.result).rank - 1,):
            continue
        if not isinstance(inner, array.Multiply) or not _own(graph, row.source):
            continue
        for source, inverse in (inner.operands, reversed(inner.operands)):
            eps = _rms_eps(graph, source, inverse)
            if eps is not None and not graph.is_stored(source):
                return _rms_norm_layer(graph, source, row.source, eps)
    return None


def _rms_eps(graph: Graph, source: Value, inverse: Value) -> float | None:
    """The eps, if a value is one over the root of the mean square of each row of the source plus eps."""
    squares = _one_over_root(graph, _of_rows(inverse, source))
    match squares.op if squares is not None else None:
        case array.Add(lhs=lhs, rhs=rhs):
            eps, average = graph.number(rhs), _of_rows(lhs, source).op
        case _:
            return None
    summed = average.lhs.op if isinstance(average, array.Divide) else None
    if not isinstance(summed, array.ReduceSum) or eps is None or average is None:
        return None
    shape = tensor_type(source).shape
    is_mean = summed.axes == (len(shape) - 1,) and graph.number(average.operands[1]) == shape[-1]
    return eps if is_mean and _is_square(graph, summed.source, source) else None


def _one_over_root(graph: Graph, value: Value) -> Value | None:
    """What a value is one over the root of."""
    match value.op:
        case array.Rsqrt(source=source):
            return source
        case array.Divide(lhs=one, rhs=root) if isinstance(root.op, array.Sqrt):
            return root.op.source if graph.number(one) == 1 else None
        case _:
            return None


def _is_square(graph: Graph, value: Value, source: Value) -> bool:
    match value.op:
        case array.Multiply(lhs=lhs, rhs=rhs):
            return lhs is source and rhs is source
        case array.Power(lhs=lhs, rhs=rhs):
            return lhs is source and graph.number(rhs) == 2
        case _:
            return False


def _of_rows(value: Value, source: Value) -> Value:
    """The value with a number for each row of the source that is broadcast or reshaped to this one."""
    shape = tensor_type(source).shape
    rows = tuple([size for size in shape[:-1] if size != 1])
    while True:
        match value.op:
            case array.Reshape(source=inner):
                kept = value
            case array.Broadcast(source=inner, axes=axes) if _are_rows(axes, shape):
                kept = inner
            case _:
                return value
        if any(_long(kept_or_inner) != rows for kept_or_inner in (kept, inner)):
            return value
        value = inner


def _long(value: Value) -> Shape:
    return tuple([size for size in tensor_type(value).shape if size != 1])


def _are_rows(axes: tuple[int, ...], shape: Shape) -> bool:
    """Whether axes are those of the rows, but for some of size 1."""
    last = len(shape) - 1
    return last not in axes and all(k in axes or shape[k] == 1 for k in range(last))


def _rms_norm_layer(graph: Graph, source: Value, scale: Value, eps: float) -> Layer:
    type = tensor_type(source)
    eps = short(eps, type.dtype)
    settings: Settings = [("", type.shape[-1])]
    settings += [("eps", eps)] if eps != 1e-5 else []
    return _layer("RMSNorm", settings, type.dtype, [("scale", graph.weight(scale))], source)


@reads(array.Gather)
def _embedding(graph: Graph, op: array.Gather) -> Term | None:
    """Rows of a table of weights."""
    table = tensor_type(op.source)
    if op.axes != (0,) or table.rank != 2 or not _own(graph, op.source):
        return None
    if graph.is_stored(op.indices[0]):
        return None
    weights = [("w", graph.weight(op.source))]
    return _layer(
        "Embedding", [*[("", size) for size in table.shape]], table.dtype, weights, op.indices[0]
    )


def _layer(
    name: str,
    settings: Settings,
    dtype: DType,
    weights: list[tuple[str, Weight]],
    source: Value,
) -> Layer:
    if dtype is not F32:
        settings.append(("F", dtype))
    return Layer(name, tuple(settings), tuple(weights), source)


def _own(graph: Graph, *values: Value) -> bool:
    """Whether these are weights that one operation alone uses, and floats, as those of layers are."""
    return all(
        graph.is_stored(value) and len(value.uses) == 1 and tensor_type(value).dtype.is_float
        for value in values
    )


def _int(size: object) -> int:
    assert isinstance(size, int)
    return size
