"""Choices, loops, and calls of functions."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array, flow
from dlc.frontend.elaboration.trace import capture
from dlc.importers.stablehlo.facts import Region
from dlc.importers.stablehlo.node_context import Importer, Made, NodeContext
from dlc.importers.stablehlo.operators import special_functions
from dlc.importers.stablehlo.operators.counted_loops import counter_of, scan
from dlc.ir.core import Block, Builder, Value
from dlc.ir.types import Type


def _call(context: NodeContext) -> Made:
    return context.regions.called(context.text("callee"), context.operands, context.emit)


def _composite(context: NodeContext) -> Made:
    """An operation of several, which are in a function; of CHLO, if it is known, that itself."""
    known = special_functions.IMPORTERS.get(context.text("name"))
    if known is not None:
        return known(context)
    return context.regions.called(context.text("decomposition"), context.operands, context.emit)


def _ended(context: NodeContext, region: Region, types: Sequence[Type]) -> Block:
    """A region as a block of ours."""

    def body(emit: Builder, arguments: Sequence[Value]) -> list[Value]:
        return context.regions.inlined(region, arguments, emit)

    return context.regions.block(types, body)


def _if(context: NodeContext) -> Made:
    return _chosen(context, context.value(0), context.region(0), context.region(1))


def _chosen(context: NodeContext, condition: Value, yes: Region, no: Region) -> list[Value]:
    decided = context.known.decided(condition)
    if decided is not None:
        return context.regions.inlined(yes if decided else no, (), context.emit)
    blocks = [_ended(context, region, ()) for region in (yes, no)]
    used = capture(blocks)
    return list(context.emit.all(flow.If(condition, tuple(used), *blocks)))


def _case(context: NodeContext) -> Made:
    """One of several regions by an index; one that is outside counts as the last."""
    return _from_case(context, context.emit, 0)


def _from_case(context: NodeContext, emit: Builder, first: int) -> list[Value]:
    """The choice among the regions from one on."""
    last = len(context.node.regions) - 1
    index = context.value(0)
    if first == last:
        return context.regions.inlined(context.region(last), (), emit)
    is_first = emit(array.Compare(index, array.constant_like(emit, first, index), "eq"))
    decided = context.known.decided(is_first)
    if decided:
        return context.regions.inlined(context.region(first), (), emit)
    if decided is not None:
        return _from_case(context, emit, first + 1)
    regions = context.regions
    yes = _ended(context, context.region(first), ())
    no = regions.block((), lambda inner, _: _from_case(context, inner, first + 1))
    used = capture([yes, no])
    return list(emit.all(flow.If(is_first, tuple(used), yes, no)))


# Loops --------------------------------------------------------------------------------------------


def _while(context: NodeContext) -> Made:
    counter = counter_of(context)
    if counter is not None:
        return scan(context, counter)
    types = [value.type for value in context.operands]
    test = _ended(context, context.region(0), types)
    body = _ended(context, context.region(1), types)
    used = capture([test, body])
    return context.emit.all(flow.While(tuple(context.operands), tuple(used), test, body))


# Conditions of a call -----------------------------------------------------------------------------


def _shape_assertion(context: NodeContext) -> Made:
    context.regions.required(context.value(0))
    return []


def _annotated(context: NodeContext) -> Made:
    """A tensor with a remark on it, such as how it lies on several devices."""
    return list(context.operands[: len(context.node.results)])


IMPORTERS: dict[str, Importer] = {
    "func.call": _call,
    "sdy.sharding_constraint": _annotated,
    "stablehlo.case": _case,
    "stablehlo.composite": _composite,
    "stablehlo.custom_call @Sharding": _annotated,
    "stablehlo.custom_call @annotate_device_placement": _annotated,
    "stablehlo.custom_call @shape_assertion": _shape_assertion,
    "stablehlo.if": _if,
    "stablehlo.while": _while,
}
