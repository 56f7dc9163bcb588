"""`flow.scan`: a loop over slices whose length is known before it runs, and its derivative."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dlc.dialects import array
from dlc.dialects.array.elementwise import show
from dlc.dialects.flow.loops import Half, Inputs
from dlc.dialects.flow.regions import (
    COUNTER,
    check_arguments,
    check_carried,
    grow,
    types_of,
    yielded,
)
from dlc.dialects.flow.residuals import arrange, captured, redirect
from dlc.dialects.flow.reverse import Backward, Structured, repeated
from dlc.ir.core import Array, Block, Evaluation, Value
from dlc.ir.define import attribute, op, operands, region
from dlc.ir.dims import Size
from dlc.ir.types import TensorType, Type

__all__ = ["Scan", "ScanInput"]


class ScanInput(NamedTuple):
    """What a body takes, the value outside, and the axis that is walked; None for a constant."""

    argument: Value
    outside: Value
    axis: int | None


@op("flow.scan")
class Scan(Structured):
    """Run the body `length` times, each time on the next slice of every one of `xs`.

    The body takes the index, the carried values, the slices (without the axis that is walked) and the
    constants; it hands over the next carried values and then any number of values to stack. Results are
    the last carried values and the stacks. `x_axes` says which axis of each of `xs` is walked, `y_axes`
    where in a stack the new axis stands. The index counts along the data: with `reverse` it starts at
    `length - 1` and goes down to 0, and a stack holds at place i what was handed over at index i.
    """

    initial: Sequence[Value] = operands()
    xs: Sequence[Value] = operands()
    constants: Sequence[Value] = operands()
    body: Block = region()
    length: Size = attribute()
    x_axes: tuple[int, ...] = attribute()
    y_axes: tuple[int, ...] = attribute()
    reverse: bool = attribute(default=False)

    isolated = True

    @property
    def carried(self) -> Sequence[Value]:
        """What the body takes for `initial`."""
        return self.body.arguments[1 : 1 + len(self.initial)]

    @property
    def slices(self) -> Sequence[Value]:
        """What the body takes for `xs`."""
        first = 1 + len(self.initial)
        return self.body.arguments[first : first + len(self.xs)]

    @property
    def invariants(self) -> Sequence[Value]:
        """What the body takes for `constants`."""
        first = 1 + len(self.initial) + len(self.xs)
        return self.body.arguments[first : first + len(self.constants)]

    @property
    def inputs(self) -> list[ScanInput]:
        """What the body takes besides the index and the carried values."""
        axes = (*self.x_axes, *[None] * len(self.constants))
        inside, outside = (*self.slices, *self.invariants), (*self.xs, *self.constants)
        return [ScanInput(*fields) for fields in zip(inside, outside, axes, strict=True)]

    def with_inputs(self, inputs: Sequence[ScanInput]) -> Scan:
        """The same loop with these inputs, not inserted yet; takes over the body.

        Arguments of the body that are left out must have no uses.
        """
        walked = [(e.argument, e.outside, e.axis) for e in inputs if e.axis is not None]
        constants = [each for each in inputs if each.axis is None]
        index_and_carried = self.body.arguments[: 1 + len(self.initial)]
        arguments = [
            *[argument for argument, _, _ in walked],
            *[each.argument for each in constants],
        ]
        (body,) = self.take_regions()
        body.set_arguments([*index_and_carried, *arguments])
        return Scan(
            self.initial,
            [outside for _, outside, _ in walked],
            [each.outside for each in constants],
            body,
            self.length,
            tuple([axis for _, _, axis in walked]),
            self.y_axes,
            self.reverse,
        )

    def infer(self) -> tuple[Type, ...]:
        carries, slices = types_of(self.initial), [self._slice(k) for k in range(len(self.xs))]
        types = [COUNTER, *carries, *slices, *types_of(self.constants)]
        check_arguments(self, "the body", self.body, types)
        ends = yielded(self.body)
        check_carried(self, self.initial, ends[: len(carries)])
        ys = ends[len(carries) :]
        if len(ys) != len(self.y_axes):
            raise self.fail(f"{self.name} stacks {len(ys)} values, y_axes has {len(self.y_axes)}")
        stacks = [self._stack(y, axis) for y, axis in zip(ys, self.y_axes, strict=True)]
        return (*carries, *stacks)

    def _slice(self, k: int) -> TensorType:
        """What the body sees of one of `xs`."""
        source = self.xs[k]
        axis = self.x_axes[k] if len(self.x_axes) == len(self.xs) else -1
        type = array.tensor_type(source)
        if not 0 <= axis < type.rank:
            raise self.fail(f"{type.text} has no axis {axis} to walk along", code="D0407")
        if type.shape[axis] != self.length:
            raise self.fail(
                f"the loop takes {self.length} steps, but axis {axis} of {show(source)} "
                f"has size {type.shape[axis]}",
                code="D0407",
            )
        return type.with_shape(type.shape[:axis] + type.shape[axis + 1 :])

    def _stack(self, value: Value, axis: int) -> TensorType:
        type = array.tensor_type(value)
        if not 0 <= axis <= type.rank:
            raise self.fail(f"{type.text} cannot be stacked along axis {axis}", code="D0407")
        return type.with_shape((*type.shape[:axis], self.length, *type.shape[axis:]))

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        count, walked = len(self.initial), len(self.initial) + len(self.xs)
        carries, constants = inputs[:count], inputs[walked:]
        xs = [
            np.moveaxis(source, axis, 0)
            for source, axis in zip(inputs[count:walked], self.x_axes, strict=True)
        ]
        stacks = [self._empty(at, result) for result in self.results[count:]]
        by_step = [np.moveaxis(s, axis, 0) for s, axis in zip(stacks, self.y_axes, strict=True)]
        steps = range(at.size(self.length))
        for index in reversed(steps) if self.reverse else steps:
            slices = [np.asarray(x[index]) for x in xs]
            ends = at.run(self.body, [np.asarray(index, np.int64), *carries, *slices, *constants])
            carries = ends[:count]
            for rows, y in zip(by_step, ends[count:], strict=True):
                rows[index] = y
        return (*carries, *stacks)

    def _empty(self, at: Evaluation, result: Value) -> Array:
        type = array.tensor_type(result)
        return np.empty(at.shape(type.shape), type.dtype.numpy)

    def stack(self, values: Sequence[Value]) -> tuple[Value, ...]:
        """Stack further values of the body along a new first axis; gives the new results."""
        self.body.terminator.set_operands((*yielded(self.body), *values))
        self.attributes["y_axes"] = (*self.y_axes, *[0] * len(values))
        return grow(self)

    def backward(
        self, emit: Backward, cotangents: Sequence[Value | None], active: Sequence[bool]
    ) -> tuple[Value | None, ...]:
        reversed_scan = _Reversed(self, active, emit)
        cotangents_of = reversed_scan.half.pull_back(reversed_scan.seeds(cotangents))
        order = reversed_scan.half.end(cotangents_of)
        reversed_scan.keep()
        received = dict(zip(order, reversed_scan.place(emit, order), strict=True))
        return tuple([received.get(k) for k in range(len(self.operands))])


class _Reversed:
    """The scan that pulls cotangents back through another one, while it is built.

    It runs the other way round, walks what the stacks receive and the values that the steps kept, and
    stacks what the slices receive.
    """

    def __init__(self, scan: Scan, active: Sequence[bool], emit: Backward) -> None:
        self.scan = scan
        self.count = len(scan.initial)
        self.walked_to = self.count + len(scan.xs)
        arguments = scan.body.arguments[1:]
        self.half = Half(scan.body, arguments, self.count, self.walked_to, active, emit)
        self.index = self.half.block.add_argument(COUNTER, "index")
        self.walked = Inputs(self.half.block)
        self.x_axes: list[int] = []

    def seeds(self, cotangents: Sequence[Value | None]) -> list[Value | None]:
        """An argument for what each value that the body hands over receives."""
        seeds = self.half.seed_carried(cotangents[: self.count])
        stacks = zip(yielded(self.scan.body)[self.count :], cotangents[self.count :], strict=True)
        for axis, (y, cotangent) in zip(self.scan.y_axes, stacks, strict=True):
            seed = cotangent and repeated(self.half.emit, cotangent, y)
            if cotangent is not None and seed is None:
                self.x_axes.append(axis)
                seed = self.walked.add(cotangent, y)
            seeds.append(seed)
        return seeds

    def keep(self) -> None:
        """Pass to the backward half what it needs of the forward one.

        Slices and constants are passed again; other values are stacked, if they are not already.
        """
        scan, block = self.scan, self.half.block
        index_of = {argument: k for k, argument in enumerate(self.half.arguments)}
        stacked = {y: k for k, y in enumerate(yielded(scan.body)[self.count :])}
        fresh: list[Value] = []
        at_hand = [scan.body.arguments[0], *self.half.arguments[self.count :], *stacked]
        for value in captured(block, scan.body, at_hand):
            index = index_of.get(value, -1)
            if value is scan.body.arguments[0]:
                redirect(block, value, self.index)
            elif index >= self.walked_to:
                self.half.constants.bind(scan.operands[index], value)
            elif index >= self.count:
                self._walk(scan.operands[index], scan.x_axes[index - self.count], value)
            elif value in stacked:
                stack = scan.results[self.count + stacked[value]]
                self._walk(stack, scan.y_axes[stacked[value]], value)
            else:
                fresh.append(value)
        for stack, value in zip(scan.stack(fresh), fresh, strict=True):
            self._walk(stack, 0, value)

    def _walk(self, stack: Value, axis: int, forward: Value) -> None:
        self.x_axes.append(axis)
        self.walked.bind(stack, forward)

    def place(self, emit: Backward, order: Sequence[int]) -> tuple[Value, ...]:
        """Place the finished scan and give its results."""
        scan, half = self.scan, self.half
        groups = (half.carried, self.walked, half.constants)
        arrange(half.block, [self.index, *[a for group in groups for a in group.arguments]])
        y_axes = [scan.x_axes[k - self.count] for k in order if self.count <= k < self.walked_to]
        return emit.all(
            Scan(
                self.half.carried.values,
                self.walked.values,
                self.half.constants.values,
                half.block,
                scan.length,
                tuple(self.x_axes),
                tuple(y_axes),
                not scan.reverse,
            )
        )
