"""`flow.if`: one of two regions runs, and its derivative."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
"""A forward value of the branch `then` and one of `otherwise` that share an argument of the halves."""


@op("flow.if")
class If(Structured):
    """The results of `then` where the condition holds, else those of `otherwise`.

    Both regions take the inputs and yield values of the same types; only one of them runs.
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
        """The cotangents are results of another `If`, whose branches are the backward halves of these."""
        wrt = [index for index, is_active in enumerate(active[1:]) if is_active]
        halves = (Block(), Block())
        by_branch = [
            dict(zip(wrt, _pull_back(branch, emit.inside(half), cotangents, wrt), strict=True))
            for branch, half in zip(self.regions, halves, strict=True)
        ]
        reached = [
            index for index in wrt if any(received[index] is not None for received in by_branch)
        ]
        for half, received in zip(halves, by_branch, strict=True):
            self._yield_cotangents(half, {index: received[index] for index in reached})
        if not reached:
            return (None,) * len(self.operands)
        kept = self._pass_forward_values(halves)
        seeds = [c for c in cotangents if c is not None and filled_with(c) is None]
        results = emit.all(If(self.condition, (*seeds, *kept), *halves))
        cotangent_of = dict(zip(reached, results, strict=True))
        return (None, *[cotangent_of.get(index) for index in range(len(self.inputs))])

    def _yield_cotangents(self, half: Block, cotangents: Mapping[int, Value | None]) -> None:
        """End a backward half with the cotangents of inputs, by index; zeros where it computes none."""
        end = Builder(half, self.location)
        values = [
            cotangent or zeros(end, self.inputs[index]) for index, cotangent in cotangents.items()
        ]
        end.place(Yield(tuple(values)))
        sweep(half)

    def _pass_forward_values(self, halves: Sequence[Block]) -> list[Value]:
        """Turn the forward values that the halves use into arguments of both; the values to pass for them.

        Inputs are passed again, results are used as they are, and other values become further results.
        Since only one branch runs, two values of one type, one of each branch, share a result.
        """
        old_results = len(self.results)
        shared: dict[int, Pair] = {}
        unshared: tuple[list[Value], list[Value]] = ([], [])
        for side, (branch, half) in enumerate(zip(self.regions, halves, strict=True)):
            # Where a forward value is among the inputs and results, which are available outside.
            index_of = {value: len(self.inputs) + k for k, value in enumerate(yielded(branch))}
            index_of.update({argument: k for k, argument in enumerate(branch.arguments)})
            for value in captured(half, branch, index_of):
                index = index_of.get(value)
                if index is None:
                    unshared[side].append(value)
                else:
                    yes, no = shared.get(index, (None, None))
                    shared[index] = (value, no) if side == 0 else (yes, value)
        pairs = _pair_by_type(*unshared)
        self._add_results(pairs)
        available = [*self.inputs, *self.results]
        passed = [*shared, *range(len(self.inputs) + old_results, len(available))]
        for index, pair in zip(passed, [*shared.values(), *pairs], strict=True):
            for half, value in zip(halves, pair, strict=True):
                if value is None:
                    half.add_argument(available[index].type, available[index].name)
                else:
                    bind(half, value)
        return [available[index] for index in passed]

    def _add_results(self, pairs: Sequence[Pair]) -> None:
        """Add a result for each pair: each branch yields its own value, or zeros where it has none."""
        for side, branch in enumerate(self.regions):
            emit = Builder.before_op(branch.terminator)
            values = [pair[side] or zeros(emit, _either(pair)) for pair in pairs]
            branch.terminator.set_operands([*yielded(branch), *values])
        grow(self)


def _pull_back(
    branch: Block, emit: Backward, cotangents: Sequence[Value | None], wrt: Sequence[int]
) -> list[Value | None]:
    """Build the backward half of a branch, whose arguments are the cotangents of the results.

    Returns the cotangents of the inputs `wrt`.
    """
    seeds = [
        c and (repeated(emit, c, c) or emit.block.add_argument(c.type, c.name)) for c in cotangents
    ]
    return pull_back(branch, [branch.arguments[index] for index in wrt], seeds, emit)


def _either(pair: Pair) -> Value:
    value = pair[0] or pair[1]
    assert value is not None
    return value


def _pair_by_type(yes: Sequence[Value], no: Sequence[Value]) -> list[Pair]:
    """Pair values of the two branches that have the same type; the others stand alone."""
    unpaired = list(no)
    pairs: list[Pair] = []
    for value in yes:
        partner = next((other for other in unpaired if other.type is value.type), None)
        if partner is not None:
            unpaired.remove(partner)
        pairs.append((value, partner))
    return pairs + [(None, value) for value in unpaired]
