"""Products of matrices, linear layers and attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlc.dialects import array, nn
from dlc.dialects.array import tensor_type
from dlc.dialects.array.arithmetic import times
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.nn.rows import in_dtype
from dlc.importers.broadcasting import stretched
from dlc.importers.solved_sizes import with_sizes
from dlc.importers.torch.node_context import Importer, NodeContext, Operand
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Size, product
from dlc.ir.types import BOOL, I64, TensorType


def _plain(one: str, other: str) -> Importer:
    """Of matrices, or of as many matrices in each operand."""
    return lambda context: context.emit(array.MatMul(context.value(one), context.value(other)))


def _matmul(context: NodeContext) -> Operand:
    """As NumPy's `@`: vectors count as one row or one column, leading axes are stretched."""
    return matmul(context.emit, context.value("self"), context.value("other"), context.type.shape)


def matmul(emit: Builder, x: Value, y: Value, shape: Sequence[Size]) -> Value:
    """`x @ y` in the shape that is known of it."""
    left, right = tensor_type(x).shape, tensor_type(y).shape
    x = reshape(emit, x, (1, *left)) if len(left) == 1 else x
    y = reshape(emit, y, (*right, 1)) if len(right) == 1 else y
    rows, columns = tensor_type(x).shape, tensor_type(y).shape
    if len(columns) == 2 and len(rows) > 2:
        flat = reshape(emit, x, (product(rows[:-1]), rows[-1]))
        return reshape(emit, emit(array.MatMul(flat, y)), tuple(shape))
    batch = tuple(shape[: max(len(rows), len(columns)) - 2])
    x = stretched(emit, x, (*batch, *rows[-2:]))
    y = stretched(emit, y, (*batch, *columns[-2:]))
    return reshape(emit, emit(array.MatMul(x, y)), tuple(shape))


def _addmm(one: str, other: str) -> Importer:
    """`beta * self + alpha * (one @ other)`."""

    def apply(context: NodeContext) -> Operand:
        emit = context.emit
        whole = emit(array.MatMul(context.value(one), context.value(other)))
        alpha, beta = context.number("alpha", 1), context.number("beta", 1)
        whole = whole if alpha == 1 else times(emit, whole, alpha)
        if beta == 0:
            return whole
        extra = context.stretched("self")
        return emit(array.Add(whole, extra if beta == 1 else times(emit, extra, beta)))

    return apply


def _matrix_vector(context: NodeContext) -> Operand:
    names = ("self", "vec") if "vec" in context.node.arguments else ("self", "tensor")
    x, y = (context.value(name) for name in names)
    return matmul(context.emit, x, y, context.type.shape)


def _outer(context: NodeContext) -> Operand:
    emit, shape = context.emit, context.type.shape
    x = emit(array.Broadcast(context.value("self", context.dtype), shape, (0,)))
    y = emit(array.Broadcast(context.value("vec2", context.dtype), shape, (1,)))
    return emit(array.Multiply(x, y))


def _linear(context: NodeContext) -> Operand:
    """The weight is [outputs, inputs]; a product takes it the other way round."""
    emit, x = context.emit, context.value("input")
    kernel = transpose(emit, context.value("weight"), (1, 0))
    bias = context.optional("bias")
    return emit(nn.Linear(x, kernel, () if bias is None else (bias,)))


def _einsum(context: NodeContext) -> Operand:
    equation = context.text("equation").replace(" ", "")
    return array.einsum(context.emit, equation, context.values("tensors", context.dtype))


def _attention(context: NodeContext) -> Operand:
    """`torch.nn.functional.scaled_dot_product_attention`."""
    emit = context.emit
    query, keys, values = (context.value(name) for name in ("query", "key", "value"))
    if context.number("dropout_p", 0):
        raise context.unsupported("with dropout is imported in its parts only")
    if context.flag("enable_gqa"):
        keys, values = (_repeated_heads(emit, each, query) for each in (keys, values))
    shape = tensor_type(query).shape
    batch = tuple(context.type.shape[:-2])
    query, keys, values = (
        stretched(emit, each, (*batch, *tensor_type(each).shape[-2:]))
        for each in (query, keys, values)
    )
    # PyTorch may count keys and values by two names.
    count, width = tensor_type(keys).shape[-2], tensor_type(values).shape[-1]
    values = with_sizes(emit, values, (*batch, count, width))
    return emit(
        nn.Attention(
            query,
            keys,
            values,
            _mask(context, "attn_mask", query, keys),
            _scale(context, shape[-1]),
            0 if context.flag("is_causal") else None,
        )
    )


def _scale(context: NodeContext, width: Size) -> float:
    """The factor of the scores: by default one over the root of the length of a query."""
    if context.given("scale") is not None:
        return context.number("scale")
    if not isinstance(width, int):
        raise context.unsupported("takes queries whose length is a number")
    return 1 / math.sqrt(width)


def _mask(context: NodeContext, name: str, query: Value, keys: Value) -> tuple[Value, ...]:
    found = context.optional(name)
    if found is None:
        return ()
    type = tensor_type(query)
    shape = (*type.shape[:-1], tensor_type(keys).shape[-2])
    if tensor_type(found).dtype is not BOOL:
        found = in_dtype(context.emit, found, type.dtype)
    return (stretched(context.emit, found, shape),)


def _repeated_heads(emit: Builder, x: Value, query: Value) -> Value:
    """Each head as often as the queries have heads for it (grouped-query attention)."""
    shape, heads = tensor_type(x).shape, tensor_type(query).shape[-3]
    own = shape[-3]
    if own == heads:
        return x
    groups = heads // own
    wide = (*shape[:-2], groups, *shape[-2:])
    kept = tuple([k for k in range(len(wide)) if k != len(wide) - 3])
    spread = emit(array.Broadcast(x, wide, kept))
    return reshape(emit, spread, (*shape[:-3], heads, *shape[-2:]))


def _flash_attention(context: NodeContext) -> Operand:
    """The attention of PyTorch on processors: the result, and the logarithms that its derivative needs."""
    emit = context.emit
    query, keys, values = (context.value(name) for name in ("query", "key", "value"))
    if context.number("dropout_p", 0):
        raise context.unsupported("with dropout is imported in its parts only")
    attention = nn.Attention(
        query,
        keys,
        values,
        _mask(context, "attn_mask", query, keys),
        _scale(context, tensor_type(query).shape[-1]),
        0 if context.flag("is_causal") else None,
        logarithms=True,
    )
    y, logarithms = emit.all(attention)
    if context.node.types[1] is None:
        return y, None
    return y, in_dtype(emit, logarithms, context.type_of(1).dtype)


def _flash_attention_backward(context: NodeContext) -> Operand:
    """The derivatives by query, keys and values."""
    emit = context.emit
    dy, query, keys, values, y = (
        context.value(name) for name in ("grad_out", "query", "key", "value", "out")
    )
    if context.number("dropout_p", 0):
        raise context.unsupported("with dropout is imported in its parts only")
    means = nn.attention_means(emit, y, dy)
    gradient = nn.AttentionGradient(
        query,
        keys,
        values,
        dy,
        context.value("logsumexp", tensor_type(means).dtype),
        means,
        _mask(context, "attn_mask", query, keys),
        _scale(context, tensor_type(query).shape[-1]),
        0 if context.flag("is_causal") else None,
    )
    return tuple(emit.all(gradient)[:3])


def _grouped(context: NodeContext) -> Operand:
    """Rows times the matrix of their group: those of group k end before `offs[k]`.

    Each row meets every matrix, and only the product with its own is kept.
    """
    emit = context.emit
    x = context.value("self" if "self" in context.node.arguments else "input")
    kernel = context.value("mat2" if "mat2" in context.node.arguments else "weight")
    ends = context.value("offs", I64)
    rows, groups = tensor_type(x).shape[0], tensor_type(kernel).shape[0]
    if tensor_type(x).rank != 2 or tensor_type(kernel).rank != 3:
        raise context.unsupported(
            "of other than rows and one matrix for each group is not imported"
        )
    type = TensorType(I64, (groups, rows))
    row = array.iota(emit, type, 1)
    end = emit(array.Broadcast(ends, type.shape, (0,)))
    first = emit(array.Pad(ends, array.fill(emit, 0, TensorType(I64)), (1,), (0,), (0,)))
    start = array.slice_axis(emit, first, 0, 0, groups)
    start = emit(array.Broadcast(start, type.shape, (0,)))
    after, before = array.Compare(row, start, "ge"), array.Compare(row, end, "lt")
    own = emit(array.And(emit(after), emit(before)))
    wide = emit(array.Broadcast(x, (groups, *tensor_type(x).shape), (1, 2)))
    products = emit(array.MatMul(wide, kernel))
    own = emit(array.Broadcast(own, tensor_type(products).shape, (0, 1)))
    kept = emit(array.Select(own, products, array.constant_like(emit, 0, products)))
    return emit(array.ReduceSum(kept, (0,)))


IMPORTERS: dict[str, Importer] = {
    "aten._scaled_dot_product_flash_attention_for_cpu": _flash_attention,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward": _flash_attention_backward,
    "aten._grouped_mm": _grouped,
    "transformers.grouped_mm_fallback": _grouped,
    "aten.addmm": _addmm("mat1", "mat2"),
    "aten.baddbmm": _addmm("batch1", "batch2"),
    "aten.bmm": _plain("self", "mat2"),
    "aten.dot": _matrix_vector,
    "aten.einsum": _einsum,
    "aten.linear": _linear,
    "aten.matmul": _matmul,
    "aten.mm": _plain("self", "mat2"),
    "aten.mv": _matrix_vector,
    "aten.outer": _outer,
    "aten.scaled_dot_product_attention": _attention,
}
