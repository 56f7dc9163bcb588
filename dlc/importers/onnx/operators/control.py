"""Operators that hold graphs: choices and loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlc.dialects import array, flow
from dlc.dialects.array.arithmetic import plus
from dlc.dialects.measured import Measuring
from dlc.errors import ModelError
from dlc.frontend.elaboration.trace import capture
from dlc.importers.onnx.facts import Graph
from dlc.importers.onnx.node_context import (
    Absent,
    AnyValue,
    Constant,
    Importer,
    NodeContext,
    NodeResults,
)
from dlc.importers.onnx.operators import sequences
from dlc.importers.onnx.operators.appending import appended
from dlc.importers.onnx.operators.selection import is_calculated
from dlc.ir.bounded import never_negative
from dlc.ir.core import Block, Builder, Value
from dlc.ir.dims import Size, names, product
from dlc.ir.types import BOOL, I64, TensorType

FLAG = TensorType(BOOL)
MOST_ROUNDS = 1 << 10
"""The most rounds of a loop that is unrolled."""


def _yield(context: NodeContext, block: Block, values: Sequence[Value]) -> None:
    Builder(block, context.emit.location).place(flow.Yield(tuple(values)))


# Choices ------------------------------------------------------------------------------------------


def _if(context: NodeContext) -> NodeResults:
    """A condition that is known while importing leaves one branch, which needs no choice."""
    then, otherwise = context.graph("then_branch"), context.graph("else_branch")
    condition = context.needed(0)
    if isinstance(condition, Constant):
        return context.regions.inline(then if bool(condition.array.item()) else otherwise)
    equal = equal_sizes(condition)
    try:
        branches = [_branch(context, graph) for graph in (then, otherwise)]
    except ModelError:
        if equal is None or not _of_inputs(context, *equal):
            raise
        return _for_equal_sizes(context, *equal, then)
    yes, no = branches
    if equal is not None and yes.types != no.types:
        chosen = _one_for_both(context, *equal, yes, no)
        if chosen is not None:
            for branch in branches:
                branch.block.clear()
            if chosen is no:
                return context.regions.inline(otherwise)
            return _for_equal_sizes(context, *equal, then)
    if yes.structure != no.structure or yes.ranks != no.ranks:
        # Sequences of several lengths, or tensors of other ranks, have no type in common: only a known
        # condition can choose.
        context.constant(0)
    used = capture([yes.block, no.block])
    choice = flow.If(_scalar(context, condition), tuple(used), yes.block, no.block)
    return sequences.rebuilt(yes.structure, context.emit.all(choice))


@dataclass(frozen=True, slots=True)
class _Branch:
    """A branch, how its tensors make up its results, and their types."""

    block: Block
    structure: list[int | None]
    types: list[TensorType]

    @property
    def ranks(self) -> list[int]:
        """The number of axes of each tensor."""
        return [type.rank for type in self.types]


def _branch(context: NodeContext, graph: Graph) -> _Branch:
    conditions, condition = context.regions.conditions, context.value(0)
    conditions.append(condition)
    try:
        block, results = context.regions.block(graph, (), ())
    finally:
        conditions.remove(condition)
    values = _values(results)
    _yield(context, block, values)
    types = [array.tensor_type(value) for value in values]
    return _Branch(block, sequences.structure(results), types)


def _one_for_both(
    context: NodeContext, one: Size, other: Size, yes: _Branch, no: _Branch
) -> _Branch | None:
    """The branch that is left of two for equal and for other sizes, whose types differ; None for both."""
    if other == 0 and _is_empty_likewise(context, one, yes, no):
        return no
    return yes if yes.ranks != no.ranks and _of_inputs(context, one, other) else None


def _of_inputs(context: NodeContext, one: Size, other: Size) -> bool:
    """Whether the sizes of the inputs decide two sizes: then calls can be checked for equal ones."""
    return names(one) | names(other) <= context.regions.bounds.keys()


def _is_empty_likewise(context: NodeContext, size: Size, yes: _Branch, no: _Branch) -> bool:
    """Whether the branch for all sizes has no elements where `size` is 0, as that for 0 has none.

    So it is where the two differ in counts alone of which there are `size` at most: exporters write so
    that of no boxes none is kept.
    """
    if yes.structure != no.structure or yes.ranks != no.ranks:
        return False
    counts = [op for op in no.block if isinstance(op, Measuring)]
    bounds = context.regions.bounds
    none = {op.dim_name for op in counts if never_negative(size - op.limit, bounds)}
    for empty, counted in zip(yes.types, no.types, strict=True):
        most = [0 if str(each) in none else each for each in counted.shape]
        if product(empty.shape) != 0 or counted.with_shape(tuple(most)) is not empty:
            return False
    return True


def _for_equal_sizes(context: NodeContext, one: Size, other: Size, then: Graph) -> NodeResults:
    """The branch for equal sizes, where that for others has results of another rank, or no meaning.

    Exporters write so that an axis is removed if its size is 1. Each call is checked, so the branch must
    not be one of a choice that is made by what is computed: not all calls would run it.
    """
    for condition in context.regions.conditions[:1]:
        raise context.unknown(
            "has results of another rank for other sizes, in a branch whose condition is computed when "
            "the model runs",
            condition,
        )
    told = f"has a result of this shape only where {one} is {other}"
    context.require(one - other, told)
    context.require(other - one, told)
    return context.regions.inline(then)


def equal_sizes(condition: Value) -> tuple[Size, Size] | None:
    """The sizes that a condition compares, if it is that two are equal."""
    test = _element(condition).op
    if not isinstance(test, array.Compare) or test.predicate != "eq":
        return None
    one, other = _size(test.lhs), _size(test.rhs)
    return None if one is None or other is None else (one, other)


def _size(value: Value) -> Size | None:
    """A size, or a number, as an operation that makes only it."""
    op = _element(value).op
    if isinstance(op, array.Extent):
        return op.size
    if isinstance(op, array.Constant) and op.value.array.size == 1:
        return int(op.value.array.item())
    return int(op.value) if isinstance(op, array.Fill) else None


def _element(value: Value) -> Value:
    """The value that reshapes and casts of one element begin with."""
    while isinstance(value.op, array.Reshape | array.Cast):
        (value,) = value.op.operands
    return value


def _values(results: Sequence[AnyValue]) -> list[Value]:
    """The tensors of the results of a block, which are values there."""
    return [value for value in sequences.elements(results) if isinstance(value, Value)]


def _scalar(context: NodeContext, value: Value) -> Value:
    """One element, which may lie in a tensor with axes of size 1."""
    return context.emit(array.Reshape(value, ())) if array.tensor_type(value).rank else value


# Loops --------------------------------------------------------------------------------------------


def _loop(context: NodeContext) -> NodeResults:
    """With a number of rounds that is known and no other end a scan, else a while.

    What carries sequences, or cuts tensors where the round says, is written out round after round.
    """
    body = context.graph("body")
    carried = [context.any_value(index) for index in range(2, len(context.operands))]
    carried = [Absent() if value is None else value for value in carried]
    if not all(map(sequences.is_tensor, carried)):
        return _unrolled(context, body, carried)
    initial = [context.value(index) for index in range(2, len(context.operands))]
    goes_on = context.operand(1)
    known_start = goes_on is None or (isinstance(goes_on, Constant) and bool(goes_on.array.item()))
    rounds = context.operand(0)
    if known_start and isinstance(rounds, Constant) and _never_stops(context, body):
        found = _counted(context, body, rounds.sizes[0], initial)
        return _unrolled(context, body, carried) if found is None else found
    if len(body.outputs) - 1 > len(initial):
        return _unrolled(context, body, carried)
    return _conditional(context, body, initial)


def _unrolled(context: NodeContext, body: Graph, carried: Sequence[AnyValue]) -> list[AnyValue]:
    """All rounds one after the other: how many they are must be known."""
    (rounds,) = context.integers(0) if context.operand(0) is not None else (MOST_ROUNDS + 1,)
    goes_on = context.operand(1) is None or bool(context.constant(1).array.item())
    stacks: list[list[Value]] = [[] for _ in range(len(body.outputs) - 1 - len(carried))]
    number = 0
    while goes_on and number < rounds:
        if number >= MOST_ROUNDS:
            raise context.unsupported(f"of more than {number} rounds that must be written out")
        start = Constant(np.asarray(number, np.int64), I64), Constant(np.asarray(True), BOOL)
        condition, *results = context.regions.inline(body, [*start, *carried])
        if not isinstance(condition, Constant):
            raise context.unsupported(
                "that stacks results or carries sequences, and ends by a computed condition"
            )
        goes_on, number = bool(condition.array.item()), number + 1
        carried = results[: len(carried)]
        for stack, result in zip(stacks, results[len(carried) :], strict=True):
            stack += [context.as_value(element) for element in sequences.elements([result])]
    if stacks and not number:
        raise context.unsupported("of no rounds that stacks results is not imported")
    return [*carried, *[sequences.stacked(context, stack, 0) for stack in stacks]]


def _never_stops(context: NodeContext, body: Graph) -> bool:
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
    if held is None and name not in makers:
        around = context.regions.known(name)
        held = around if isinstance(around, Constant) and not around.is_symbolic else None
    return held is not None and bool(np.all(held.array))


def _counted(
    context: NodeContext, body: Graph, rounds: Size, initial: Sequence[Value]
) -> NodeResults | None:
    """A scan; None where the body is not a block, but may be written out."""
    emit, grown = context.emit, appended(body, initial)
    carried = [grown[k].none if k in grown else value.type for k, value in enumerate(initial)]
    types = [flow.COUNTER, *carried]
    arguments = [0, len(types), *range(1, len(types))]
    found = context.regions.attempted(body, [*types, FLAG], arguments)
    if found is None and isinstance(rounds, int):
        return None
    found = found or context.regions.block(body, [*types, FLAG], arguments)
    block, results = found[0], _tensors(context, found[1])
    kept = [k for k in range(len(initial)) if k not in grown]
    if isinstance(rounds, int) and any(results[1 + k].type is not carried[k] for k in kept):
        block.clear()  # each round has another size
        return None
    # The condition is true in every round, and nothing was appended yet: these take no part in the loop.
    _replace(emit, block, len(types), True)
    for k in reversed(grown):
        _replace(emit, block, 1 + k, 0)
    handed = [*[results[1 + k] for k in kept], *[results[1 + k] for k in grown]]
    axes = (*[each.axis for each in grown.values()], *[0] * (len(results) - 1 - len(initial)))
    start = tuple([initial[k] for k in kept])
    looped = _stepping if is_calculated(rounds, context.regions.bounds) else _scanned
    ends = looped(context, block, start, [*handed, *results[1 + len(initial) :]], rounds, axes)
    last = dict(zip([*kept, *grown], ends, strict=False))
    for k, each in grown.items():
        last[k] = each.after(emit, last[k])
    return [*[last[k] for k in range(len(initial))], *ends[len(initial) :]]


def _scanned(
    context: NodeContext,
    block: Block,
    start: tuple[Value, ...],
    handed: Sequence[Value],
    rounds: Size,
    axes: tuple[int, ...],
) -> Sequence[Value]:
    """The last carried values, of those that begin with `start`, and stacks along these axes."""
    _yield(context, block, handed)
    return context.emit.all(flow.Scan(start, (), tuple(capture([block])), block, rounds, (), axes))


def _stepping(
    context: NodeContext,
    block: Block,
    start: tuple[Value, ...],
    handed: Sequence[Value],
    rounds: Size,
    axes: tuple[int, ...],
) -> Sequence[Value]:
    """The same for rounds that are calculated from what is counted, which no scan makes: one by one."""
    emit, at = context.emit, Builder(block, context.emit.location)
    step = block.arguments[0]
    following = [plus(at, step, 1), *handed[: len(start)]]
    stacks: list[Value] = []
    for item, axis in zip(handed[len(start) :], axes, strict=True):
        type = array.tensor_type(item)
        shape = (*type.shape[:axis], rounds, *type.shape[axis:])
        stacks.append(array.fill(emit, 0, type.with_shape(shape)))
        stack = block.add_argument(stacks[-1].type)
        following.append(at(array.Scatter(stack, item, (step,), (axis,), "set", True)))
    _yield(context, block, following)
    carried = (array.fill(emit, 0, flow.COUNTER), *start, *stacks)
    test = Block([value.type for value in carried])
    at = Builder(test, emit.location)
    _yield(context, test, [at(array.Compare(test.arguments[0], at(array.Extent(rounds)), "lt"))])
    used = tuple(capture([test, block]))
    return emit.all(flow.While(carried, used, test, block))[1:]


def _replace(emit: Builder, block: Block, place: int, number: float) -> None:
    """Let an argument of a block be this number everywhere."""
    argument = block.arguments[place]
    fill = array.Fill(number, array.tensor_type(argument))
    fill.location = emit.location
    block.insert(fill, block.first)
    argument.replace_by(fill.result)
    block.remove_argument(place)


def _conditional(context: NodeContext, body: Graph, initial: Sequence[Value]) -> NodeResults:
    """The number of rounds and the condition are carried along."""
    emit = context.emit
    zero = array.fill(emit, 0, TensorType(I64))
    start = context.optional(1)
    goes_on = array.fill(emit, True, FLAG) if start is None else _scalar(context, start)
    carried = [zero, goes_on, *initial]
    types = [value.type for value in carried]
    block, found = context.regions.block(body, types, range(len(types)))
    results = _tensors(context, found)
    at = Builder(block, emit.location)
    count = plus(at, block.arguments[0], 1)
    following = [_flat(at, results[0]), *results[1:]]
    _yield(context, block, [count, *following])
    test = Block(types)
    at = Builder(test, emit.location)
    holds = test.arguments[1]
    most = context.optional(0)
    if most is not None:
        left = at(array.Compare(test.arguments[0], _scalar(context, most), "lt"))
        holds = at(array.And(left, holds))
    _yield(context, test, [holds])
    used = capture([test, block])
    _, _, *results = emit.all(flow.While(tuple(carried), tuple(used), test, block))
    return results


def _tensors(context: NodeContext, results: Sequence[AnyValue]) -> list[Value]:
    """The results of a loop's body. Raises Unsupported for a sequence."""
    if not all(map(sequences.is_tensor, results)):
        raise context.unsupported("that makes sequences is not imported")
    return _values(results)


def _flat(emit: Builder, value: Value) -> Value:
    return emit(array.Reshape(value, ())) if array.tensor_type(value).rank else value


def _scan(context: NodeContext) -> NodeResults:
    """Through slices of tensors, from their beginning or from their end."""
    if context.opset < 9:
        return _batched_scan(context)
    body, count = context.graph("body"), context.integer("num_scan_inputs")
    carries = len(context.operands) - count
    initial = [context.value(index) for index in range(carries)]
    sequences = [context.value(carries + k) for k in range(count)]
    axes = _axes(context, "scan_input_axes", [array.tensor_type(x).rank for x in sequences])
    from_end = _directions(context, "scan_input_directions", count)
    reverse = all(from_end)
    sequences = _in_direction(context, sequences, axes, from_end, reverse=reverse)
    slices = [_slice_type(x, axis) for x, axis in zip(sequences, axes, strict=True)]
    types = [flow.COUNTER, *[value.type for value in initial], *slices]
    block, found = context.regions.block(body, types, range(1, len(types)))
    yields = _tensors(context, found)
    _yield(context, block, yields)
    y_ranks = [array.tensor_type(value).rank + 1 for value in yields[carries:]]
    y_axes = _axes(context, "scan_output_axes", y_ranks)
    used = tuple(capture([block]))
    length = array.tensor_type(sequences[0]).shape[axes[0]]
    results = context.emit.all(
        flow.Scan(tuple(initial), tuple(sequences), used, block, length, axes, y_axes, reverse)
    )
    from_end = _directions(context, "scan_output_directions", len(y_axes))
    stacks = _in_direction(context, results[carries:], y_axes, from_end, reverse=reverse)
    return [*results[:carries], *stacks]


def _batched_scan(context: NodeContext) -> NodeResults:
    """Before version 9: a scan for each element of a batch, the first axis of all tensors."""
    if context.operand(0) is not None or any(context.list("directions") or ()):
        raise context.unsupported("before version 9 with lengths or backwards is not imported")
    body, count = context.graph("body"), context.integer("num_scan_inputs")
    values = [context.value(index) for index in range(1, len(context.operands))]
    carries = len(values) - count
    slices = [_slice_type(value, 0) for value in values]
    outer = Block([flow.COUNTER, *slices])
    at = Builder(outer, context.emit.location)
    states, tensors = outer.arguments[1 : carries + 1], outer.arguments[carries + 1 :]
    steps = [_slice_type(value, 0) for value in tensors]
    types = [flow.COUNTER, *slices[:carries], *steps]
    block, found = context.regions.block(body, types, range(1, len(types)))
    yields = _tensors(context, found)
    _yield(context, block, yields)
    length = array.tensor_type(tensors[0]).shape[0]
    axes, y_axes = (0,) * count, (0,) * (len(yields) - carries)
    used = tuple(capture([block]))
    inner = flow.Scan(tuple(states), tuple(tensors), used, block, length, axes, y_axes)
    _yield(context, outer, at.all(inner))
    used, batch = tuple(capture([outer])), array.tensor_type(values[0]).shape[0]
    axes, y_axes = (0,) * len(values), (0,) * len(yields)
    return context.emit.all(flow.Scan((), tuple(values), used, outer, batch, axes, y_axes))


def _directions(context: NodeContext, name: str, count: int) -> tuple[bool, ...]:
    """For each tensor whether it is walked, or filled, from its end; from its beginning by default."""
    given = context.list(name) or (0,) * count
    if len(given) != count:
        raise context.wrong(f"has {len(given)} {name} for {count} tensors")
    return tuple([direction != 0 for direction in given])


def _in_direction(
    context: NodeContext,
    values: Sequence[Value],
    axes: Sequence[int],
    from_end: Sequence[bool],
    *,
    reverse: bool,
) -> list[Value]:
    """Tensors as a loop walks them, from the end if `reverse`: reversed where they go the other way."""
    return [
        value if back == reverse else context.emit(array.Reverse(value, (axis,)))
        for value, axis, back in zip(values, axes, from_end, strict=True)
    ]


def _axes(context: NodeContext, name: str, ranks: Sequence[int]) -> tuple[int, ...]:
    given = context.list(name) or (0,) * len(ranks)
    return tuple([context.axis(axis, rank) for axis, rank in zip(given, ranks, strict=True)])


def _slice_type(value: Value, axis: int) -> TensorType:
    type = array.tensor_type(value)
    return type.with_shape((*type.shape[:axis], *type.shape[axis + 1 :]))


IMPORTERS: dict[str, Importer] = {"If": _if, "Loop": _loop, "Scan": _scan}
