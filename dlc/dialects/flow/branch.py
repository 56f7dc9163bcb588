"""A choice between two regions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from dlc.dialects.array.elementwise import show
from dlc.dialects.flow.regions import Yield, check_arguments, grow, types_of, yielded
from dlc.dialects.flow.residuals import bind, captured
from dlc.dialects.flow.reverse import (
    Backward,
    Structured,
    filled_with,
    pull_back,
    repeated,
    sweep,
    zeros,
)
from dlc.ir.core import Array, Block, Builder, Evaluation, Value
from dlc.ir.define import op, operand, operands, region
from dlc.ir.types import BOOL, TensorType, Type

__all__ = ["If"]

Pair: TypeAlias = "tuple[Value | None, Value | None]"
"""What a branch needs from its forward half and what the other branch needs in the same place."""


@op("flow.if")
class If(Structured):
    """The results of `then` where the condition holds, else those of `otherwise`.

    Both regions take the inputs and hand over values of the same types; only one of them runs.
    """

    condition: Value = operand()
    inputs: Sequence[Value] = operands()
    then: Block = region()
    otherwise: Block = region()

    isolated = True

    def infer(self) -> tuple[Type, ...]:
        if self.condition.type is not TensorType(BOOL):
            raise self.fail(
                f"a condition is one bool, found {show(self.condition)}",
                code="D0401",
                help="use all(...) or any(...), or where(...) to choose for each element",
            )
        for name, block in (("the branch then", self.then), ("the branch else", self.otherwise)):
            check_arguments(self, name, block, types_of(self.inputs))
        yes, no = yielded(self.then), yielded(self.otherwise)
        if types_of(yes) != types_of(no):
            raise self.fail(
                f"one branch gives ({', '.join(map(show, yes))}), "
                f"the other ({', '.join(map(show, no))})",
                code="D0402",
                help="convert or broadcast one of them",
            )
        return types_of(yes)

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        condition, *rest = inputs
        return at.run(self.then if condition else self.otherwise, rest)

    def backward(
        self, emit: Backward, cotangents: Sequence[Value | None], active: Sequence[bool]
    ) -> tuple[Value | None, ...]:
        """The cotangents come from another `If`, whose branches are the backward halves of these."""
        wrt = [index for index, matters in enumerate(active[1:]) if matters]
        halves = (Block(), Block())
        yes, no = [
            _pull_back(front, emit.inside(back), cotangents, wrt)
            for front, back in zip(self.regions, halves, strict=True)
        ]
        reached = [k for k in range(len(wrt)) if yes[k] is not None or no[k] is not None]
        inputs = [wrt[k] for k in reached]
        for back, part in zip(halves, (yes, no), strict=True):
            self._yield_cotangents(back, inputs, [part[k] for k in reached])
        if not reached:
            return (None,) * len(self.operands)
        kept = self._keep(halves)
        seeds = [c for c in cotangents if c is not None and filled_with(c) is None]
        results = emit.all(If(self.condition, (*seeds, *kept), *halves))
        cotangent_of = dict(zip(inputs, results, strict=True))
        return (None, *[cotangent_of.get(index) for index in range(len(self.inputs))])

    def _yield_cotangents(
        self, back: Block, inputs: Sequence[int], cotangents: Sequence[Value | None]
    ) -> None:
        """End a backward half with the cotangents of inputs, by number; zeros where it has none."""
        end = Builder(back, self.location)
        end.place(
            Yield(
                tuple(
                    [
                        cotangent or zeros(end, self.inputs[index])
                        for index, cotangent in zip(inputs, cotangents, strict=True)
                    ]
                )
            )
        )
        sweep(back)

    def _keep(self, halves: Sequence[Block]) -> list[Value]:
        """Bind what the backward halves need to arguments that both have; gives their values.

        Inputs are passed again, results are used as they are, and other values become further results.
        Two branches never run both, so values of one type share a result.
        """
        known = len(self.results)
        passed: dict[int, Pair] = {}
        fresh: tuple[list[Value], list[Value]] = ([], [])
        for side, (front, back) in enumerate(zip(self.regions, halves, strict=True)):
            places = {value: len(self.inputs) + k for k, value in enumerate(yielded(front))}
            places.update({argument: k for k, argument in enumerate(front.arguments)})
            for value in captured(back, front, places):
                place = places.get(value)
                if place is None:
                    fresh[side].append(value)
                else:
                    yes, no = passed.get(place, (None, None))
                    passed[place] = (value, no) if side == 0 else (yes, value)
        pairs = _share(*fresh)
        self._hand_over(pairs)
        outer = [*self.inputs, *self.results]
        kept = [*passed, *range(len(self.inputs) + known, len(outer))]
        for place, pair in zip(kept, [*passed.values(), *pairs], strict=True):
            for back, value in zip(halves, pair, strict=True):
                if value is None:
                    back.add_argument(outer[place].type, outer[place].name)
                else:
                    bind(back, value)
        return [outer[place] for place in kept]

    def _hand_over(self, pairs: Sequence[Pair]) -> None:
        """Make each branch yield its values too, and zeros where only the other one has a value."""
        for side, front in enumerate(self.regions):
            emit = Builder.before_op(front.terminator)
            values = [pair[side] or zeros(emit, _either(pair)) for pair in pairs]
            front.terminator.set_operands([*yielded(front), *values])
        grow(self)


def _pull_back(
    front: Block, emit: Backward, cotangents: Sequence[Value | None], wrt: Sequence[int]
) -> list[Value | None]:
    """Build the backward half of one branch; its arguments are the cotangents so far."""
    seeds = [
        c and (repeated(emit, c, c) or emit.block.add_argument(c.type, c.name)) for c in cotangents
    ]
    return pull_back(front, [front.arguments[index] for index in wrt], seeds, emit)


def _either(pair: Pair) -> Value:
    value = pair[0] or pair[1]
    assert value is not None
    return value


def _share(yes: Sequence[Value], no: Sequence[Value]) -> list[Pair]:
    """Pair values of the two branches that have one type; what is left stands alone."""
    left = list(no)
    pairs: list[Pair] = []
    for value in yes:
        partner = next((other for other in left if other.type is value.type), None)
        if partner is not None:
            left.remove(partner)
        pairs.append((value, partner))
    return pairs + [(None, value) for value in left]
