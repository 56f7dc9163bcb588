"""Spellings of element-wise operations."""

from __future__ import annotations

from typing import cast

from dlc.dialects import array
from dlc.dialects.array import tensor_type
from dlc.export.model_text.graph import Graph, short
from dlc.export.model_text.spelling import spells
from dlc.export.model_text.terms import Call, Code, Infix, Item, Prefix, Term
from dlc.frontend.builtins.elementwise import FLOATS, NUMBERS, PAIRS
from dlc.frontend.expressions.operators import KINDS, PREDICATES
from dlc.ir.core import Op, Value
from dlc.ir.types import BOOL, F32, I32

UNARY = {op: name for name, (op, _, _) in {**FLOATS, **NUMBERS}.items()}
BINARY = {op: name for name, (op, _, _) in PAIRS.items()}
OPERATORS = {op: sign for sign, op in KINDS.items()}
COMPARISONS = {predicate: sign for sign, predicate in PREDICATES.items()}


@spells(*UNARY)
def _unary(graph: Graph, op: Op) -> Term:
    return Call(UNARY[cast("type[array.Unary]", type(op))], op.operands)


@spells(array.Negate)
def _negate(graph: Graph, op: array.Negate) -> Term:
    return Prefix("-", op.operands[0])


@spells(array.Not)
def _not(graph: Graph, op: array.Not) -> Term:
    (source,) = op.operands
    return Prefix("not", source) if _is_bool(source) else Call("bit_not", (source,))


@spells(*OPERATORS)
def _operator(graph: Graph, op: Op) -> Term:
    sign = OPERATORS[cast("type[array.Binary]", type(op))]
    if sign == "/" and not tensor_type(op.result).dtype.is_float:
        return _toward_zero(op.operands)
    if sign == "*" and op.operands[0] is op.operands[1]:
        return Infix("**", op.operands[0], 2)
    left, right = _operands(graph, op)
    if sign == "+" and isinstance(right, int | float) and right < 0:
        return Infix("-", left, -right)
    if sign == "**" and isinstance(right, int):
        # Small whole exponents are products in the language.
        right = Code(f"{right}.0")
    return Infix(sign, left, right)


def _toward_zero(operands: tuple[Value, ...]) -> Term:
    """Division of integers that rounds toward zero: what is left has no remainder."""
    left, right = operands
    rest = Call("truncated_remainder", (left, right))
    return Infix("//", Infix("-", left, rest), right)


@spells(*BINARY)
def _pair(graph: Graph, op: Op) -> Term:
    name = BINARY[cast("type[array.Binary]", type(op))]
    if name in ("bit_and", "bit_or") and _is_bool(op.result):
        return Infix("and" if name == "bit_and" else "or", *_operands(graph, op))
    return Call(name, tuple(_operands(graph, op)))


@spells(array.Compare)
def _compare(graph: Graph, op: array.Compare) -> Term:
    left, right = _operands(graph, op)
    if _is_bool(op.lhs) and op.predicate not in ("eq", "ne"):
        left, right = Call("u8", (left,)), Call("u8", (right,))
    return Infix(COMPARISONS[op.predicate], left, right)


@spells(array.Select)
def _select(graph: Graph, op: array.Select) -> Term:
    shape = tensor_type(op.result).shape
    items = graph.operands(op.operands, shape)
    if not any(isinstance(item, Value) for item in items[1:]):
        items[1] = op.operands[1]
    if isinstance(items[0], bool):
        items[0] = op.operands[0]
    return Call("where", tuple(items))


@spells(array.Cast)
def _cast(graph: Graph, op: array.Cast) -> Term:
    return Call(tensor_type(op.result).dtype.name, op.operands)


@spells(array.Bitcast)
def _bitcast(graph: Graph, op: array.Bitcast) -> Term:
    return Call("bitcast", (*op.operands, tensor_type(op.result).dtype))


@spells(array.Fill, array.Constant)
def _constant(graph: Graph, op: array.Fill | array.Constant) -> Term | None:
    number = graph.number(op.result)
    if number is None:
        return None
    type = tensor_type(op.result)
    if not type.rank:
        return Call(type.dtype.name, (short(number, type.dtype),))
    natural = BOOL if isinstance(number, bool) else I32 if isinstance(number, int) else F32
    named: tuple[tuple[str, Item], ...] = (("dtype", type.dtype),)
    return Call(
        "full", (type.shape, short(number, type.dtype)), () if type.dtype is natural else named
    )


@spells(array.Extent)
def _extent(graph: Graph, op: array.Extent) -> Term:
    return Call(op.dtype.name, (op.size,))


def _operands(graph: Graph, op: Op) -> tuple[Item, Item]:
    left, right = graph.operands(op.operands, tensor_type(op.result).shape)
    return left, right


def _is_bool(value: Value) -> bool:
    return tensor_type(value).dtype is BOOL
