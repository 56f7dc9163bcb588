"""Recognising operations that say the same, whatever their values are called."""

from __future__ import annotations

from dlc.ir.attributes import exact_items
from dlc.ir.core import Block, Op, Value


def fingerprint(op: Op) -> tuple[object, ...]:
    """A key that is equal for two operations whose regions compute the same in the same way.

    Values count by position, so names and locations do not matter; symbols' own names do not either.
    """
    numbers: dict[Value, int] = {}
    parts: list[object] = []
    for region in op.regions:
        _block(region, numbers, parts)
    return (type(op), tuple(parts))


def _block(block: Block, numbers: dict[Value, int], parts: list[object]) -> None:
    """Number the values of a block and of those inside it, in order of text, without recursion."""
    pending: list[Block | Op | str] = [block]
    while pending:
        item = pending.pop()
        match item:
            case str():
                parts.append(item)
            case Block():
                for argument in item.arguments:
                    numbers[argument] = len(numbers)
                    parts.append(argument.type)
                pending.append("end")
                pending.extend(reversed(list(item)))
            case Op():
                parts.append(type(item))
                parts.append(tuple([numbers[operand] for operand in item.operands]))
                parts.append(exact_items(item.attributes))
                for result in item.results:
                    numbers[result] = len(numbers)
                pending.extend(reversed(item.regions))
