"""Operators that hold graphs: choices and loops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects import array, flow
from dlc.dialects.array.arithmetic import plus
from dlc.frontend.elaboration.trace import capture
from dlc.importers.onnx.facts import Graph
from dlc.importers.onnx.step import Constant, Importer, NodeResults, Step
from dlc.ir.core import Block, Builder, Value
from dlc.ir.dims import Size
from dlc.ir.types import BOOL, I64, TensorType

FLAG = TensorType(BOOL)


def _yield(step: Step, block: Block, values: Sequence[Value]) -> None:
    Builder(block, step.emit.location).place(flow.Yield(tuple(values)))


# Choices ------------------------------------------------------------------------------------------


def _if(step: Step) -> NodeResults:
    """A condition that is known while importing leaves one branch, which needs no choice."""
    then, otherwise = step.graph("then_branch"), step.graph("else_branch")
    condition = step.needed(0)
    if isinstance(condition, Constant):
        return step.regions.inline(then if bool(condition.array.item()) else otherwise)
    blocks: list[Block] = []
    for graph in (then, otherwise):
        block, results = step.regions.block(graph, (), ())
        _yield(step, block, results)
        blocks.append(block)
    used = capture(blocks)
    return step.emit.all(flow.If(_scalar(step, condition), tuple(used), *blocks))


def _scalar(step: Step, value: Value) -> Value:
    """One element, which may lie in a tensor with axes of size 1."""
    return step.emit(array.Reshape(value, ())) if array.tensor_type(value).rank else value


# Loops --------------------------------------------------------------------------------------------


def _loop(step: Step) -> NodeResults:
    """With a number of rounds that is known and no other end a scan, else a while."""
    body = step.graph("body")
    initial = [step.value(index) for index in range(2, len(step.operands))]
    goes_on = step.operand(1)
    known_start = goes_on is None or (isinstance(goes_on, Constant) and bool(goes_on.array.item()))
    rounds = step.operand(0)
    if known_start and isinstance(rounds, Constant) and _never_stops(body):
        return _counted(step, body, rounds.sizes[0], initial)
    if len(body.outputs) - 1 > len(initial):
        raise step.unsupported(
            "that stacks results and ends when its condition says is not imported"
        )
    return _conditional(step, body, initial)


def _never_stops(body: Graph) -> bool:
    """Whether the condition that the body hands over is the one that it got, or always true."""
    name = body.outputs[0]
    makers = {output: node for node in body.nodes for output in node.outputs}
    while name in makers and makers[name].kind == "Identity":
        name = makers[name].inputs[0]
    if len(body.inputs) > 1 and name == body.inputs[1].name:
        return True
    held = body.tensors.get(name)
    if held is None and name in makers and makers[name].kind == "Constant":
        value = makers[name].attributes.get("value")
        held = value if not isinstance(value, int | float | str | tuple | Graph) else None
    return held is not None and bool(np.all(held.array))


def _counted(step: Step, body: Graph, rounds: Size, initial: Sequence[Value]) -> NodeResults:
    types = [flow.COUNTER, *[value.type for value in initial]]
    block, results = step.regions.block(
        body, [*types, FLAG], [0, len(types), *range(1, len(types))]
    )
    # The condition is true in every round: it takes no part in the loop.
    flag = block.arguments[len(types)]
    true = array.Fill(True, FLAG)
    true.location = step.emit.location
    block.insert(true, block.first)
    flag.replace_by(true.result)
    block.remove_argument(len(types))
    _yield(step, block, results[1:])
    used = capture([block])
    stacked = len(results) - 1 - len(initial)
    scan = flow.Scan(tuple(initial), (), tuple(used), block, rounds, (), (0,) * stacked)
    return step.emit.all(scan)


def _conditional(step: Step, body: Graph, initial: Sequence[Value]) -> NodeResults:
    """The number of rounds and the condition are carried along."""
    emit = step.emit
    zero = array.fill(emit, 0, TensorType(I64))
    start = step.optional(1)
    goes_on = array.fill(emit, True, FLAG) if start is None else _scalar(step, start)
    carried = [zero, goes_on, *initial]
    types = [value.type for value in carried]
    block, results = step.regions.block(body, types, range(len(types)))
    at = Builder(block, emit.location)
    count = plus(at, block.arguments[0], 1)
    following = [_flat(at, results[0]), *results[1:]]
    _yield(step, block, [count, *following])
    test = Block(types)
    at = Builder(test, emit.location)
    holds = test.arguments[1]
    most = step.optional(0)
    if most is not None:
        left = at(array.Compare(test.arguments[0], _scalar(step, most), "lt"))
        holds = at(array.And(left, holds))
    _yield(step, test, [holds])
    used = capture([test, block])
    _, _, *found = emit.all(flow.While(tuple(carried), tuple(used), test, block))
    return found


def _flat(emit: Builder, value: Value) -> Value:
    return emit(array.Reshape(value, ())) if array.tensor_type(value).rank else value


def _scan(step: Step) -> NodeResults:
    """Through slices of tensors, from their beginning or from their end."""
    if step.opset < 9:
        raise step.unsupported("before opset 9 is not imported")
    body, count = step.graph("body"), step.integer("num_scan_inputs")
    carries = len(step.operands) - count
    initial = [step.value(index) for index in range(carries)]
    sequences = [step.value(carries + k) for k in range(count)]
    axes = _axes(step, "scan_input_axes", [array.tensor_type(x).rank for x in sequences])
    from_end = _directions(step, "scan_input_directions", count)
    reverse = all(from_end)
    sequences = _in_direction(step, sequences, axes, from_end, reverse=reverse)
    slices = [_slice_type(x, axis) for x, axis in zip(sequences, axes, strict=True)]
    types = [flow.COUNTER, *[value.type for value in initial], *slices]
    block, yields = step.regions.block(body, types, range(1, len(types)))
    _yield(step, block, yields)
    y_ranks = [array.tensor_type(value).rank + 1 for value in yields[carries:]]
    y_axes = _axes(step, "scan_output_axes", y_ranks)
    used = tuple(capture([block]))
    length = array.tensor_type(sequences[0]).shape[axes[0]]
    results = step.emit.all(
        flow.Scan(tuple(initial), tuple(sequences), used, block, length, axes, y_axes, reverse)
    )
    from_end = _directions(step, "scan_output_directions", len(y_axes))
    stacks = _in_direction(step, results[carries:], y_axes, from_end, reverse=reverse)
    return [*results[:carries], *stacks]


def _directions(step: Step, name: str, count: int) -> tuple[bool, ...]:
    """For each tensor whether it is walked, or filled, from its end; from its beginning by default."""
    given = step.list(name) or (0,) * count
    if len(given) != count:
        raise step.wrong(f"has {len(given)} {name} for {count} tensors")
    return tuple([direction != 0 for direction in given])


def _in_direction(
    step: Step,
    values: Sequence[Value],
    axes: Sequence[int],
    from_end: Sequence[bool],
    *,
    reverse: bool,
) -> list[Value]:
    """Tensors as a loop walks them, from the end if `reverse`: reversed where they go the other way."""
    return [
        value if back == reverse else step.emit(array.Reverse(value, (axis,)))
        for value, axis, back in zip(values, axes, from_end, strict=True)
    ]


def _axes(step: Step, name: str, ranks: Sequence[int]) -> tuple[int, ...]:
    given = step.list(name) or (0,) * len(ranks)
    return tuple([step.axis(axis, rank) for axis, rank in zip(given, ranks, strict=True)])


def _slice_type(value: Value, axis: int) -> TensorType:
    type = array.tensor_type(value)
    return type.with_shape((*type.shape[:axis], *type.shape[axis + 1 :]))


IMPORTERS: dict[str, Importer] = {"If": _if, "Loop": _loop, "Scan": _scan}
