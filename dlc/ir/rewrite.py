"""Rewriting: patterns indexed by operation, applied until nothing changes.

A pattern is a function of an operation that either leaves everything alone and returns False, or
replaces the operation through the rewriter and returns True. The rewriter refuses a replacement that
does not say how the new values relate to the old ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, TypeVar

from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.log import DecisionLog
from dlc.ir.value_map import EQUAL, Equal, Gone, Rearrangement, Relation, ValueMap


@dataclass(slots=True)
class RewriteCount:
    """The optional rewrites of a compilation so far; none is done after the `last`, where there is one.

    A wrong rewrite is found by bisection: it is the first N for which the model with N rewrites is wrong.
    """

    done: int = 0
    last: int | None = None

    @property
    def allows(self) -> bool:
        """Whether one more rewrite may be done."""
        return self.last is None or self.done < self.last

    def take(self) -> bool:
        """Whether the rewrite that is about to be done may be; it is counted then."""
        allowed = self.allows
        self.done += allowed
        return allowed


class Rewriter:
    """Replaces and erases operations, keeping the value map and the list of what to look at again."""

    __slots__ = ("_pending", "_rule", "count", "log", "values")

    def __init__(
        self, values: ValueMap, log: DecisionLog, count: RewriteCount | None = None
    ) -> None:
        self.values = values
        self.log = log
        self.count = count or RewriteCount()
        self._pending: OrderedDict[Op, None] | None = None
        self._rule = ""
        """What the pattern does that is tried; empty where a pass replaces operations by itself."""

    def before(self, op: Op) -> Builder:
        """A builder that places just before the operation, with its location."""
        if self._pending is None:
            return Builder.before_op(op)
        return _Watching(op, self._pending)

    def replace(
        self, op: Op, new: Value | Sequence[Value], *, relation: Relation | Sequence[Relation]
    ) -> None:
        """Put new values in place of the results of an operation and erase it."""
        values = (new,) if isinstance(new, Value) else tuple(new)
        if isinstance(relation, Sequence):
            relations = tuple(relation)
        else:
            relations = (relation,) * len(values)
        for old, value, how in zip(op.results, values, relations, strict=True):
            if isinstance(how, Equal):
                assert old.type is value.type, f"{op} is replaced by a {value.type}"
                if value.name is None:
                    value.name = old.name
            self._revisit(old.uses)
            self.values.replaced(old, value, how)
            old.replace_by(value)
        self.erase(
            op, Gone(f"its last reader was rewritten: {self._rule or self.log.current_pass}")
        )

    def erase(self, op: Op, why: Gone) -> None:
        """Take away an operation that nothing uses; `why` tells where its values went."""
        for result in op.results:
            self.values.replaced(result, None, why)
        operands = dict.fromkeys(op.operands)
        self._revisit(operand.op for operand in operands if operand.op is not None)
        op.erase()
        for operand in operands:
            if not operand.uses:
                self.values.unread(operand, why)
        if self._pending is not None:
            self._pending.pop(op, None)

    def drop(self, op: Op) -> None:
        """Erase an operation whose results nothing uses."""
        if op.operands:  # not worth a word: a constant that was merged into another
            self.log.did("drop what nothing uses", op)
        if isinstance(op, Rearrangement):
            self.values.rearranged(op.results[0], op)
        known = self.values.why_unread(op.results[0]) if op.results else None
        self.erase(op, known or Gone("nothing uses it"))

    def _revisit(self, ops: Iterable[Op]) -> None:
        if self._pending is not None:
            self._pending.update(dict.fromkeys(ops))

    def run(
        self, blocks: Iterable[Block], patterns: Mapping[type[Op], Sequence[Pattern[Any]]]
    ) -> int:
        """Apply patterns to the operations of these blocks until none fits; how many did.

        Operations without users and without effect are erased on the way.
        """
        # Taking the first of a plain dict passes over all that were taken before.
        self._pending = OrderedDict(
            (op, None)
            for block in blocks
            for op in block
            if type(op) in patterns or (op.pure and op.results and op.is_unused)
        )
        applied = 0
        try:
            while self._pending:
                op, _ = self._pending.popitem(last=False)
                if op.parent is None:
                    continue
                if op.pure and op.results and op.is_unused:
                    self.drop(op)
                    continue
                for pattern in patterns.get(type(op), ()) if self.count.allows else ():
                    self._rule = _rule(pattern)
                    if pattern(op, self):
                        self.count.done += 1
                        self.log.did(self._rule, op)
                        applied += 1
                        break
        finally:
            self._pending, self._rule = None, ""
        return applied


@cache
def _rule(pattern: Pattern[Any]) -> str:
    """What a pattern does, as its documentation begins."""
    return (pattern.__doc__ or pattern.__name__).partition("\n")[0].rstrip(".")


class _Watching(Builder):
    """A builder whose new operations are looked at, too."""

    __slots__ = ("_pending",)

    def __init__(self, op: Op, pending: dict[Op, None]) -> None:
        assert op.parent is not None
        super().__init__(op.parent, op.location, op)
        self._pending = pending

    def place(self, op: Op) -> Op:
        self._pending[op] = None
        return super().place(op)


OpT = TypeVar("OpT", bound=Op)
Pattern: TypeAlias = "Callable[[OpT, Rewriter], bool]"

__all__ = ["EQUAL", "Gone", "Pattern", "Rewriter"]
