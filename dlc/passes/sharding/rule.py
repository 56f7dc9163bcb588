"""Sharding rules: which axes of an operation's operands and results belong together.

A rule writes each operand and result as a word with a letter for each axis, as einsum does: a matrix
product is `mk,kn->mn`. An axis with a letter may be split if all axes with this letter are; a `.` stands
for an axis that every rank needs whole. A letter that no result has is summed over: then the results are
partial sums. `linear` names groups of operands in which the operation is linear: partial sums for these
operands, the others being replicated, give partial sums. (Compare `sdy.op_sharding_rule` of OpenXLA's
Shardy.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from string import ascii_letters
from typing import Any, TypeAlias, TypeVar

from dlc.dialects.array.elementwise import tensor_type
from dlc.ir.core import Op
from dlc.ir.types import TensorType
from dlc.passes.sharding.placement import PARTIAL, REPLICATED, Placement, Shard

OpT = TypeVar("OpT", bound=Op)
WHOLE = "."


@dataclass(frozen=True, slots=True)
class ShardingRule:
    """The axes of the operands and results of an operation, a letter each."""

    operands: tuple[str, ...]
    results: tuple[str, ...]
    linear: tuple[tuple[int, ...], ...] = ()

    @property
    def letters(self) -> str:
        """All letters, each once."""
        words = "".join((*self.operands, *self.results))
        return "".join(dict.fromkeys(words.replace(WHOLE, "")))


@dataclass(frozen=True, slots=True)
class Strategy:
    """How an operation may be computed: the placements of its operands and of its results."""

    operands: tuple[Placement, ...]
    results: tuple[Placement, ...]
    is_divided: bool
    """Whether each rank does only its part of the work."""


def strategies(op: Op, rule: ShardingRule | None) -> Iterator[Strategy]:
    """All ways to compute an operation, that on every rank alike first."""
    yield Strategy((REPLICATED,) * len(op.operands), (REPLICATED,) * len(op.results), False)
    if rule is None:
        return
    for letter in rule.letters:
        yield Strategy(
            tuple([_placed(word, letter, REPLICATED) for word in rule.operands]),
            tuple([_placed(word, letter, PARTIAL) for word in rule.results]),
            True,
        )
    for group in rule.linear:
        operands = [PARTIAL if k in group else REPLICATED for k in range(len(op.operands))]
        yield Strategy(tuple(operands), (PARTIAL,) * len(op.results), False)


def _placed(word: str, letter: str, otherwise: Placement) -> Placement:
    return Shard(word.index(letter)) if letter in word else otherwise


Rule: TypeAlias = Callable[[OpT], ShardingRule | None]
Rules: TypeAlias = dict[type[Op], Callable[[Any], ShardingRule | None]]


def declaring(rules: Rules) -> Callable[..., Callable[[Rule[OpT]], Rule[OpT]]]:
    """A decorator that adds the rule of some classes, and of those derived from them, to a table."""

    def rule(*classes: type[OpT]) -> Callable[[Rule[OpT]], Rule[OpT]]:
        def declare(function: Rule[OpT]) -> Rule[OpT]:
            rules.update(dict.fromkeys(classes, function))
            return function

        return declare

    return rule


# Words.


def word(type: TensorType, whole: Sequence[int] = ()) -> str:
    """A letter for each axis, in order; a `.` for those in `whole`."""
    return "".join(
        WHOLE if axis in whole else ascii_letters[axis] for axis in range(len(type.shape))
    )


def pick(word: str, axes: Sequence[int]) -> str:
    """The letters of some axes."""
    return "".join(word[axis] for axis in axes)


def unary(op: Op, whole: Sequence[int] = (), *, linear: bool = False) -> ShardingRule:
    """The rule of an operation whose operands and results all have the axes of the first."""
    letters = word(tensor_type(op.operands[0]), whole)
    count = len(op.operands)
    return ShardingRule((letters,) * count, (letters,) * len(op.results), ((0,),) if linear else ())
