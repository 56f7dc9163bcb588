"""Loops that count, as scans: what they read and write in each round are slices of arrays.

JAX writes a scan as a `while` that carries a counter, all that it reads, and arrays into which each round
writes a row. The counter is computed from the round, what does not change is read from outside, and the
rows that are read and written become the slices and the stacks of a scan, which are not copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects import array, flow
from dlc.dialects.array import tensor_type
from dlc.dialects.array.shape import reshape
from dlc.dialects.nn.rows import in_dtype, numbers
from dlc.frontend.elaboration.trace import capture
from dlc.importers.stablehlo.known import Known
from dlc.importers.stablehlo.node_context import NodeContext
from dlc.importers.stablehlo.operators.formulas import Formula, Part, formula
from dlc.ir.bounded import larger, never_negative
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Shape, Size


@dataclass(frozen=True, slots=True)
class Counter:
    """The carried value that counts, its first value, and the number of rounds."""

    place: int
    start: Size
    length: Size


def counter_of(context: NodeContext) -> Counter | None:
    """The counter of a `while` that runs for a known number of rounds; None for another loop."""
    test, body = context.region(0), context.region(1)
    match formula(test, test.results[0]):
        case ("compare", "LT", _, ("argument", int(place)), limit):
            pass
        case _:
            return None
    if not _counts(context, formula(body, body.results[place]), place):
        return None
    start, end = context.known.sizes(context.value(place)), _limit(context, limit)
    if start is None or end is None:
        return None
    return Counter(place, start[0], larger(end - start[0], 0, context.known.bounds))


def _counts(context: NodeContext, step: Formula, place: int) -> bool:
    """Whether a carried value becomes one more in each round."""
    match step:
        case ("add", ("argument", int(index)), one) | ("add", one, ("argument", int(index))):
            return index == place and _limit(context, one) == 1
        case _:
            return False


def _limit(context: NodeContext, limit: Part) -> Size | None:
    match limit:
        case ("constant", int(number)):
            return number
        case ("outer", str(name)):
            sizes = context.known.sizes(context.regions.outer(name))
            return None if sizes is None else sizes[0]
        case _:
            return None


def scan(context: NodeContext, counter: Counter) -> list[Value]:
    """A loop of a known number of rounds: the last values of all that it carries."""
    return _Scan(context, counter).run()


class _Scan:
    def __init__(self, context: NodeContext, counter: Counter) -> None:
        self.context = context
        self.emit = context.emit
        self.counter = counter
        region = context.region(1)
        pairs = zip(region.arguments, region.results, strict=True)
        self.kept = {k for k, (before, after) in enumerate(pairs) if before == after}
        self.carried = [
            k for k in range(len(context.operands)) if k not in self.kept and k != counter.place
        ]
        self.block = context.regions.block(
            [flow.COUNTER, *[context.value(k).type for k in self.carried]], self._body
        )
        self.xs: list[Value] = []
        self.x_axes: list[int] = []

    def run(self) -> list[Value]:
        """Place the scan; gives the last value of each carried one."""
        rows = _Rows(self.context.known, self.block.arguments[0], self.counter.length)
        stacks = self._stacks(rows)
        for op in list(self.block):
            if isinstance(op, array.DynamicSlice) and op.source.block is not self.block:
                self._walk(op, rows)
        used = capture([self.block])
        initial = [self.context.value(k) for k in self.carried]
        made = self.emit.all(
            flow.Scan(
                tuple(initial),
                tuple(self.xs),
                tuple(used),
                self.block,
                self.counter.length,
                tuple(self.x_axes),
                tuple([row.axis for row in stacks.values()]),
            )
        )
        count = len(self.carried)
        found = dict(zip(self.carried, made[:count], strict=True))
        for (k, row), stack in zip(stacks.items(), made[count:], strict=True):
            found[k] = self._written(self.context.value(k), stack, row)
        return [self._last(k, found) for k in range(len(self.context.operands))]

    def _last(self, k: int, found: dict[int, Value]) -> Value:
        value = self.context.value(k)
        if k == self.counter.place:
            return numbers(self.emit, self.counter.start + self.counter.length, tensor_type(value))
        return found.get(k, value)

    def _body(self, inner: Builder, arguments: Sequence[Value]) -> list[Value]:
        index, *others = arguments
        context, counter = self.context, self.counter
        type = tensor_type(context.value(counter.place))
        count = in_dtype(inner, index, type.dtype)
        if counter.start != 0:
            count = inner(array.Add(count, numbers(inner, counter.start, type)))
        given = dict(zip(self.carried, others, strict=True))
        given[counter.place] = count
        values = [given.get(k, value) for k, value in enumerate(context.operands)]
        made = context.regions.inlined(context.region(1), values, inner)
        return [made[k] for k in self.carried]

    # What each round reads.

    def _walk(self, op: array.DynamicSlice, rows: _Rows) -> None:
        """Make a slice of a round a slice of the scan, where it is a row by the counter."""
        row = rows.of(op.starts, op.sizes, tensor_type(op.source).shape)
        if row is None:
            return
        emit, length = self.emit, self.counter.length
        source = op.source
        if row.first != 0 or tensor_type(source).shape[row.axis] != length:
            source = array.slice_axis(emit, source, row.axis, row.first, row.first + length)
        if row.is_backwards:
            source = emit(array.Reverse(source, (row.axis,)))
        self.xs.append(source)
        self.x_axes.append(row.axis)
        type = tensor_type(op.result)
        argument = self.block.add_argument(type.with_shape(_without(type.shape, row.axis)))
        op.result.replace_by(reshape(Builder.before_op(op), argument, type.shape))
        op.erase()

    # What each round writes.

    def _stacks(self, rows: _Rows) -> dict[int, _Row]:
        """Carry no arrays of which each round only writes a row: the rows are stacked."""
        ends = list(self.block.terminator.operands)
        stacks: dict[int, _Row] = {}
        stacked: list[Value] = []
        for place in reversed(range(len(self.carried))):
            argument = self.block.arguments[1 + place]
            op = ends[place].op
            if not isinstance(op, array.DynamicUpdateSlice) or op.target is not argument:
                continue
            if sum(argument.uses.values()) != 1 or sum(ends[place].uses.values()) != 1:
                continue
            shape = tensor_type(op.update).shape
            row = rows.of(op.starts, shape, tensor_type(argument).shape)
            if row is None:
                continue
            stacks[self.carried.pop(place)] = row
            before = Builder.before_op(op)
            stacked.append(reshape(before, op.update, _without(shape, row.axis)))
            del ends[place]
            self.block.terminator.set_operands(ends)
            op.erase()
            self.block.remove_argument(1 + place)
        self.block.terminator.set_operands((*ends, *stacked))
        return stacks

    def _written(self, initial: Value, stack: Value, row: _Row) -> Value:
        """An array with its rows written: the stack, and what stands before and behind it."""
        emit, whole = self.emit, tensor_type(initial).shape[row.axis]
        if row.is_backwards:
            stack = emit(array.Reverse(stack, (row.axis,)))
        if whole == self.counter.length:
            return stack
        end = row.first + self.counter.length
        parts = [
            array.slice_axis(emit, initial, row.axis, 0, row.first),
            stack,
            array.slice_axis(emit, initial, row.axis, end, whole),
        ]
        return emit(array.Concatenate(tuple(parts), row.axis))


def _without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of an array by the round: along which axis, from which one on, and in which direction."""

    axis: int
    first: Size
    is_backwards: bool


class _Rows:
    """Recognises the starts of slices that are rows by the index of a scan."""

    def __init__(self, known: Known, index: Value, length: Size) -> None:
        self._known = known
        self._index = index
        self._length = length

    def of(self, starts: Sequence[Value], sizes: Shape, shape: Shape) -> _Row | None:
        """The row that a slice is; None for a slice of another kind."""
        open_axes = [
            axis
            for axis, start in enumerate(starts)
            if not (sizes[axis] == shape[axis] and self._known.is_number(start, 0))
        ]
        if len(open_axes) != 1 or sizes[open_axes[0]] != 1:
            return None
        (axis,) = open_axes
        found = self._linear(starts[axis])
        if found is None:
            return None
        step, offset = found
        first = offset if step > 0 else offset - (self._length - 1)
        behind = shape[axis] - first - self._length
        bounds = self._known.bounds
        if not never_negative(first, bounds) or not never_negative(behind, bounds):
            return None
        return _Row(axis, first, step < 0)

    def _linear(self, value: Value) -> tuple[int, Size] | None:
        """The step 1 or -1 and the offset of a value that changes with the index; None for another one."""
        if value is self._index:
            return 1, 0
        match value.op:
            case array.Cast(source=source) | array.Reshape(source=source):
                return self._linear(source)
            case array.Add(lhs=one, rhs=other):
                return self._plus(one, other) or self._plus(other, one)
            case array.Subtract(lhs=one, rhs=other):
                return self._minus(one, other)
            case array.Maximum(lhs=one, rhs=other):
                return self._above(one, other)
            case array.Minimum(lhs=one, rhs=other):
                return self._below(one, other)
            case array.Select(condition=condition, no=no):
                return self._counted_from_start(condition, no)
            case _:
                return None

    def _plus(self, value: Value, more: Value) -> tuple[int, Size] | None:
        found, size = self._linear(value), self._known.sizes(more)
        return None if found is None or size is None else (found[0], found[1] + size[0])

    def _minus(self, one: Value, other: Value) -> tuple[int, Size] | None:
        size = self._known.sizes(other)
        if size is not None:
            found = self._linear(one)
            return None if found is None else (found[0], found[1] - size[0])
        found, size = self._linear(other), self._known.sizes(one)
        return None if found is None or size is None else (-found[0], size[0] - found[1])

    def _above(self, value: Value, least: Value) -> tuple[int, Size] | None:
        """A value that is never below a limit, which it is compared with."""
        found, size = self._linear(value), self._known.sizes(least)
        if found is None or size is None:
            return None
        lowest = found[1] if found[0] > 0 else found[1] - (self._length - 1)
        return found if never_negative(lowest - size[0], self._known.bounds) else None

    def _below(self, value: Value, most: Value) -> tuple[int, Size] | None:
        found, size = self._linear(value), self._known.sizes(most)
        if found is None or size is None:
            return None
        highest = found[1] if found[0] < 0 else found[1] + (self._length - 1)
        return found if never_negative(size[0] - highest, self._known.bounds) else None

    def _counted_from_start(self, condition: Value, no: Value) -> tuple[int, Size] | None:
        """`no` of `x + n where x < 0 else x`, for an x that is never below 0."""
        match condition.op:
            case array.Compare(lhs=value, rhs=zero, predicate="lt"):
                is_never = self._above(value, zero) is not None
                return self._linear(no) if is_never and self._known.is_number(zero, 0) else None
            case _:
                return None


__all__ = ["Counter", "counter_of", "scan"]
