"""`flow.while`: a loop that runs while a condition holds, and its derivative."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array
from dlc.dialects.array.elementwise import show
from dlc.dialects.flow.loops import Half
from dlc.dialects.flow.regions import (
    COUNTER,
    Yield,
    check_arguments,
    check_carried,
    grow,
    types_of,
    yielded,
)
from dlc.dialects.flow.residuals import arrange, captured, redirect
from dlc.dialects.flow.reverse import Backward, Structured
from dlc.ir.core import Array, Block, Builder, Evaluation, Value
from dlc.ir.define import attribute, op, operands, region
from dlc.ir.location import Location
from dlc.ir.types import BOOL, TensorType, Type
from dlc.runtime.abi import Status
from dlc.runtime.calling.status import failure

__all__ = ["While"]


@op("flow.while")
class While(Structured):
    """Run the body on the carried values as long as the condition holds for them.

    Both regions take the carried values and the constants; the condition hands over one bool, the body
    the next carried values. A call in which the condition still holds after `limit` rounds fails.
    """

    initial: Sequence[Value] = operands()
    constants: Sequence[Value] = operands()
    condition: Block = region()
    body: Block = region()
    limit: int | None = attribute(default=None)
    decided: bool = attribute(
        default=False, doc="whether an earlier check has found that it ends within its limit"
    )

    isolated = True

    @property
    def carried(self) -> Sequence[Value]:
        """What the body takes for `initial`."""
        return self.body.arguments[: len(self.initial)]

    def infer(self) -> tuple[Type, ...]:
        types = types_of(self.operands)
        check_arguments(self, "the condition", self.condition, types)
        check_arguments(self, "the body", self.body, types)
        tests = yielded(self.condition)
        if types_of(tests) != (TensorType(BOOL),):
            raise self.fail(
                f"a condition is one bool, found {', '.join(map(show, tests))}",
                code="D0401",
                help="use all(...) or any(...)",
            )
        check_carried(self, self.initial, yielded(self.body))
        return types_of(self.initial)

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        carries, constants = inputs[: len(self.initial)], inputs[len(self.initial) :]
        rounds = 0
        while at.run(self.condition, [*carries, *constants])[0]:
            if rounds == self.limit:
                raise failure(Status.LIMIT, rounds, 0, self.location.own.place)
            carries = at.run(self.body, [*carries, *constants])
            rounds += 1
        return carries

    def carry(self, initial: Sequence[Value]) -> list[Value]:
        """Carry further values; gives their arguments in the body.

        The body must then hand over one more value for each of them, before `grow` gives the results.
        """
        count, types = len(self.initial), types_of(initial)
        for block in self.regions:
            old = list(block.arguments)
            new = [block.add_argument(type) for type in types]
            arrange(block, [*old[:count], *new, *old[count:]])
        self.attributes["segments"] = (count + len(initial), len(self.constants))
        self.set_operands([*self.operands[:count], *initial, *self.operands[count:]])
        return self.body.arguments[count : count + len(initial)]

    def backward(
        self, emit: Backward, cotangents: Sequence[Value | None], active: Sequence[bool]
    ) -> tuple[Value | None, ...]:
        if self.limit is None:
            raise self.fail(
                "a while without a limit has no derivative: what its rounds leave behind has no place",
                code="D0406",
                help="say how many rounds it takes at most: while ... limit 100 { ... }",
            )
        count, operands = len(self.initial), len(self.operands)
        half = Half(self.body, self.body.arguments, count, count, active, emit)
        round_after = half.block.add_argument(COUNTER, "round")
        cotangents_of = half.pull_back(half.seed_carried(cotangents))
        order = half.end(cotangents_of)
        rounds = self._keep(half, round_after, self.limit)
        groups = (half.carried, half.constants)
        arrange(half.block, [round_after, *[a for group in groups for a in group.arguments]])
        results = emit.all(
            While(
                (rounds, *half.carried.values),
                half.constants.values,
                _positive(half.block, self.location),
                half.block,
                self.limit,
            )
        )
        received = dict(zip(order, results[1:], strict=True))
        return tuple([received.get(k) for k in range(operands)])

    def _keep(self, half: Half, round_after: Value, limit: int) -> Value:
        """Pass to the backward half what it needs; gives how many rounds the loop took.

        Constants are passed again. For every other value the loop carries a tape of `limit` entries, on
        which each round writes one; going back, the half counts down and reads it.
        """
        places = {argument: k for k, argument in enumerate(self.body.arguments)}
        recorded: list[Value] = []
        for value in captured(half.block, self.body, self.body.arguments[half.count :]):
            if places.get(value, -1) >= half.count:
                half.constants.bind(self.operands[places[value]], value)
            else:
                recorded.append(value)
        rounds, *tapes = self._record(recorded, limit)
        start = Builder(half.block, self.location, half.block.first)
        index = start(array.Subtract(round_after, array.fill(start, 1, COUNTER)))
        for tape, value in zip(tapes, recorded, strict=True):
            redirect(half.block, value, _read(start, half.constants.add(tape), index))
        half.block.terminator.set_operands((index, *yielded(half.block)))
        return rounds

    def _record(self, values: Sequence[Value], limit: int) -> tuple[Value, ...]:
        """Count the rounds and write values of each one to tapes: the count and the tapes."""
        before, within = Builder.before_op(self), Builder.before_op(self.body.terminator)
        types = [array.tensor_type(value) for value in values]
        tapes = [type.with_shape((limit, *type.shape)) for type in types]
        blank = [array.fill(before, 0, type) for type in (COUNTER, *tapes)]
        index, *arguments = self.carry(blank)
        following = within(array.Add(index, array.fill(within, 1, COUNTER)))
        written = [
            _write(within, tape, index, value)
            for tape, value in zip(arguments, values, strict=True)
        ]
        self.body.terminator.set_operands([*yielded(self.body), following, *written])
        return grow(self)


def _read(emit: Builder, tape: Value, index: Value) -> Value:
    """Entry `index` of a tape."""
    shape = array.tensor_type(tape).shape[1:]
    part = emit(array.DynamicSlice(tape, _starts(emit, index, len(shape)), (1, *shape)))
    return emit(array.Reshape(part, shape))


def _write(emit: Builder, tape: Value, index: Value, value: Value) -> Value:
    """The tape with a value as entry `index`."""
    shape = array.tensor_type(value).shape
    part = emit(array.Reshape(value, (1, *shape)))
    return emit(array.DynamicUpdateSlice(tape, part, _starts(emit, index, len(shape))))


def _starts(emit: Builder, index: Value, rank: int) -> tuple[Value, ...]:
    return (index, *[array.fill(emit, 0, COUNTER)] * rank)


def _positive(body: Block, location: Location) -> Block:
    """A condition for a loop with this body: its first carried value is above 0."""
    block = Block(types_of(body.arguments))
    emit = Builder(block, location)
    zero = array.fill(emit, 0, COUNTER)
    emit.place(Yield((emit(array.Compare(block.arguments[0], zero, "gt")),)))
    return block
