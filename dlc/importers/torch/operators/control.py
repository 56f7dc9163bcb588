"""Operators that hold graphs: choices and loops."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import flow
from dlc.dialects.array import tensor_type
from dlc.dialects.array.shape import reshape
from dlc.dialects.nn.rows import in_dtype
from dlc.frontend.elaboration.trace import capture
from dlc.importers.torch.facts import Argument
from dlc.importers.torch.node_context import Importer, NodeContext, Operand
from dlc.ir.core import Block, Builder, Value
from dlc.ir.types import BOOL, Type


def _values(context: NodeContext, name: str) -> list[Value]:
    """The tensors of an argument that may be left out."""
    given: Argument = context.given(name)
    return context.values(name) if isinstance(given, tuple) and given else []


def _yield(context: NodeContext, block: Block, values: Sequence[Value]) -> None:
    Builder(block, context.emit.location).place(flow.Yield(tuple(values)))


def _flag(emit: Builder, value: Value) -> Value:
    """One bool, which may lie in a tensor with axes of size 1."""
    return in_dtype(emit, reshape(emit, value, ()), BOOL)


def _cond(context: NodeContext) -> Operand:
    """`torch.cond(pred, true_fn, false_fn, operands)`."""
    inputs = _values(context, "3")
    types: list[Type] = [value.type for value in inputs]
    blocks: list[Block] = []
    for name in ("1", "2"):
        block, results = context.regions.block(context.graph(name), types)
        _yield(context, block, results)
        blocks.append(block)
    used = capture(blocks)
    condition = _flag(context.emit, context.value("0"))
    return context.emit.all(flow.If(condition, (*inputs, *used), *blocks))


def _while_loop(context: NodeContext) -> Operand:
    """`while_loop(cond_fn, body_fn, carried, additional)`."""
    carried, more = _values(context, "2"), _values(context, "3")
    types: list[Type] = [value.type for value in (*carried, *more)]
    test, holds = context.regions.block(context.graph("0"), types)
    _yield(context, test, [_flag(Builder(test, context.emit.location), holds[0])])
    body, following = context.regions.block(context.graph("1"), types)
    _yield(context, body, following)
    used = capture([test, body])
    return context.emit.all(flow.While(tuple(carried), (*more, *used), test, body))


def _scan(context: NodeContext) -> Operand:
    """`scan(combine_fn, init, xs, additional)` along the first axis."""
    initial, xs, more = (_values(context, name) for name in ("1", "2", "3"))
    slices = [tensor_type(x).with_shape(tensor_type(x).shape[1:]) for x in xs]
    types: list[Type] = [
        *[value.type for value in initial],
        *slices,
        *[value.type for value in more],
    ]
    block, results = context.regions.block(context.graph("0"), types)
    block.insert_argument(0, flow.COUNTER)
    _yield(context, block, results)
    used = capture([block])
    stacked = len(results) - len(initial)
    length = tensor_type(xs[0]).shape[0]
    return context.emit.all(
        flow.Scan(
            tuple(initial), tuple(xs), (*more, *used), block, length, (0,) * len(xs), (0,) * stacked
        )
    )


IMPORTERS: dict[str, Importer] = {
    "cond": _cond,
    "scan": _scan,
    "while_loop": _while_loop,
}
