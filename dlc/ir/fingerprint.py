"""Fingerprints of operations: equal for operations that differ only in the names of their values."""

from __future__ import annotations

from collections.abc import Iterator

from dlc.ir.attributes import exact_items
from dlc.ir.core import Block, Op, Value


def fingerprint(op: Op) -> tuple[object, ...]:
    """A key that is equal for two operations whose regions compute the same in the same way.

    Values count by position, so names and locations do not matter; symbols' own names do not either.
    """
    numbers: dict[Value, int] = {}
    parts: list[object] = []
    # What is being gone through, outermost first: without recursion, since regions may be deep.
    within: list[Iterator[Op] | Iterator[Block]] = [iter(op.regions)]
    while within:
        for item in within[-1]:
            if isinstance(item, Op):
                parts.append(type(item))
                parts.append(tuple([numbers[operand] for operand in item.operands]))
                if item.attributes:  # the parts before and after are types, or the word "end"
                    parts.append(exact_items(item.attributes))
                for result in item.results:
                    numbers[result] = len(numbers)
                if item.regions:
                    within.append(iter(item.regions))
                    break
            else:
                for argument in item.arguments:
                    numbers[argument] = len(numbers)
                    parts.append(argument.type)
                within.append(iter(item))
                break
        else:
            within.pop()
            parts.append("end")
    return (type(op), tuple(parts))
