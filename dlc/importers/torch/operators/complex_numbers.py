"""Complex numbers, as pairs of numbers along a last axis of size 2.

Nodes that take or make complex numbers have kinds of their own, `complex.`: what is not in the tables of
these kinds has no meaning for pairs. Their argument `complex` has the names of those that are complex.
"""

from __future__ import annotations

from dataclasses import replace

from dlc.dialects import array
from dlc.dialects.array import tensor_type
from dlc.dialects.array.shape import reshape
from dlc.dialects.nn.rows import in_dtype
from dlc.importers.broadcasting import stretched
from dlc.importers.torch.node_context import Importer, NodeContext, Operand
from dlc.importers.torch.operators import places, shapes, slices
from dlc.ir.core import Builder, Value

Parts = tuple[Value, Value | None]
"""The real and the imaginary part of numbers; None for that of real ones."""


def _to_pairs(context: NodeContext) -> Operand:
    """Real numbers as complex ones, complex ones in another precision, or their real parts."""
    emit, x, wanted = context.emit, context.value("self"), context.type
    x = in_dtype(emit, x, wanted.dtype)
    type = tensor_type(x)
    if type.rank == wanted.rank:
        return x
    if type.rank > wanted.rank:
        return parts_of(emit, x)[0]
    return pairs_of(emit, x)


def pairs_of(emit: Builder, x: Value) -> Value:
    """Real numbers as pairs."""
    real = reshape(emit, x, (*tensor_type(x).shape, 1))
    zero = array.constant_like(emit, 0, real)
    return emit(array.Concatenate((real, zero), tensor_type(x).rank))


def parts_of(emit: Builder, x: Value) -> tuple[Value, Value]:
    """The real and the imaginary parts of pairs."""
    last, sizes = tensor_type(x).rank - 1, tensor_type(x).shape[:-1]
    real, imaginary = (array.slice_axis(emit, x, last, k, k + 1) for k in range(2))
    return reshape(emit, real, sizes), reshape(emit, imaginary, sizes)


def _joined(emit: Builder, real: Value, imaginary: Value) -> Value:
    rank = tensor_type(real).rank
    parts = [reshape(emit, each, (*tensor_type(each).shape, 1)) for each in (real, imaginary)]
    return emit(array.Concatenate(tuple(parts), rank))


def _same(context: NodeContext) -> Operand:
    return context.value("self")


def _conjugate(context: NodeContext) -> Operand:
    emit = context.emit
    real, imaginary = parts_of(emit, context.value("self"))
    return _joined(emit, real, emit(array.Negate(imaginary)))


# Arithmetic.


def _parts_in_result(context: NodeContext, name: str) -> Parts:
    """The parts of an operand in the shape of the result."""
    emit, shape = context.emit, context.type.shape[:-1]
    value = context.value(name, context.dtype)
    found = context.given("complex")
    if not isinstance(found, tuple) or name not in found:
        return stretched(emit, value, shape), None
    real, imaginary = parts_of(emit, value)
    return stretched(emit, real, shape), stretched(emit, imaginary, shape)


def _product(emit: Builder, one: Parts, other: Parts) -> tuple[Value, Value]:
    """Of two operands, at least one of them complex."""
    (a, b), (c, d) = (one, other) if one[1] is not None else (other, one)
    assert b is not None
    if d is None:
        return emit(array.Multiply(a, c)), emit(array.Multiply(b, c))
    real = emit(array.Subtract(emit(array.Multiply(a, c)), emit(array.Multiply(b, d))))
    return real, emit(array.Add(emit(array.Multiply(a, d)), emit(array.Multiply(b, c))))


def _multiply(context: NodeContext) -> Operand:
    operands = [_parts_in_result(context, name) for name in ("self", "other")]
    return _joined(context.emit, *_product(context.emit, *operands))


def _divide(context: NodeContext) -> Operand:
    """By a real number each part; by a complex one, the product with its conjugate over its square."""
    emit = context.emit
    one, (c, d) = (_parts_in_result(context, name) for name in ("self", "other"))
    square = c
    if d is not None:
        one = _product(emit, one, (c, emit(array.Negate(d))))
        square = emit(array.Add(emit(array.Multiply(c, c)), emit(array.Multiply(d, d))))
    assert one[1] is not None
    real, imaginary = (emit(array.Divide(part, square)) for part in (one[0], one[1]))
    return _joined(emit, real, imaginary)


def _sum_of(kind: type[array.Add | array.Subtract]) -> Importer:
    def importer(context: NodeContext) -> Operand:
        emit = context.emit
        if context.given("alpha") not in (None, 1):
            raise context.unsupported("has a factor alpha")
        (a, b), (c, d) = (_parts_in_result(context, name) for name in ("self", "other"))
        zero = array.constant_like(emit, 0, a)
        imaginary = emit(kind(zero if b is None else b, zero if d is None else d))
        return _joined(emit, emit(kind(a, c)), imaginary)

    return importer


def _negate(context: NodeContext) -> Operand:
    return context.emit(array.Negate(context.value("self")))


def _absolute(context: NodeContext) -> Operand:
    emit = context.emit
    squares = [emit(array.Multiply(part, part)) for part in parts_of(emit, context.value("self"))]
    return emit(array.Sqrt(emit(array.Add(*squares))))


def _polar(context: NodeContext) -> Operand:
    """From absolute values and angles."""
    emit, shape = context.emit, context.type.shape[:-1]
    size, angle = (context.stretched(name, shape) for name in ("abs", "angle"))
    parts = [emit(array.Multiply(size, emit(of(angle)))) for of in (array.Cos, array.Sin)]
    return _joined(emit, *parts)


def _complex(context: NodeContext) -> Operand:
    shape = context.type.shape[:-1]
    real, imaginary = (context.stretched(name, shape) for name in ("real", "imag"))
    return _joined(context.emit, real, imaginary)


# What is done with axes.


def _with_own_axes(importer: Importer) -> Importer:
    """An importer of real tensors for pairs: axes are counted without the last one."""

    def of_pairs(context: NodeContext) -> Operand:
        arguments = dict(context.node.arguments)
        whole = context.type if "tensors" in arguments else tensor_type(context.value("self"))
        rank = max(whole.rank - 1, 1)
        for name in ("dim", "dim0", "dim1"):
            axis = arguments.get(name)
            if isinstance(axis, int):
                arguments[name] = axis % rank
        if "dims" in arguments:
            arguments["dims"] = (*[axis % rank for axis in context.integers("dims")], rank)
        node = replace(context.node, arguments=arguments)
        return importer(NodeContext(node, context.emit, context.regions))

    return of_pairs


SHAPED = ("_reshape_alias", "_unsafe_view", "expand", "reshape", "squeeze", "unsqueeze", "view")
"""Operators whose result has the type that the node says."""
BY_AXES = {
    "cat": shapes.IMPORTERS["aten.cat"],
    "index": places.IMPORTERS["aten.index"],
    "index_select": places.IMPORTERS["aten.index_select"],
    "permute": shapes.IMPORTERS["aten.permute"],
    "select": slices.IMPORTERS["aten.select"],
    "slice": slices.IMPORTERS["aten.slice"],
    "transpose": shapes.IMPORTERS["aten.transpose"],
}

IMPORTERS: dict[str, Importer] = {
    **{f"complex.{name}": shapes.IMPORTERS[f"aten.{name}"] for name in SHAPED},
    **{f"complex.{name}": _with_own_axes(importer) for name, importer in BY_AXES.items()},
    "complex._conj": _conjugate,
    "complex._conj_physical": _conjugate,
    "complex._to_copy": _to_pairs,
    "complex.abs": _absolute,
    "complex.add": _sum_of(array.Add),
    "complex.clone": _same,
    "complex.complex": _complex,
    "complex.detach": _same,
    "complex.div": _divide,
    "complex.mul": _multiply,
    "complex.neg": _negate,
    "complex.polar": _polar,
    "complex.resolve_conj": _same,
    "complex.sub": _sum_of(array.Subtract),
    "complex.view_as_complex": _same,
    "complex.view_as_real": _same,
}
