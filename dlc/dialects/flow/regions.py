"""Regions of operations at graph level: their terminator, and the checks that all such operations share.

Their regions are isolated: whatever a region uses is an operand of the operation and an argument of the
block, so differentiating, planning and evaluating look at one block at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.array.elementwise import show
from dlc.ir.core import Block, Op, Value
from dlc.ir.define import op, operands
from dlc.ir.types import I64, TensorType, Type

COUNTER = TensorType(I64)
"""The type of a loop's index."""


@op("flow.yield")
class Yield(Op):
    """End a region and hand over these values."""

    values: Sequence[Value] = operands()

    pure = False
    terminator = True

    def infer(self) -> tuple[Type, ...]:
        return ()


def yielded(region: Block) -> tuple[Value, ...]:
    """What a region hands over."""
    return region.terminator.operands


def types_of(values: Sequence[Value]) -> tuple[Type, ...]:
    """The type of each value."""
    return tuple([value.type for value in values])


def check_arguments(op: Op, what: str, region: Block, expected: Sequence[Type]) -> None:
    """Refuse a region that does not take values of exactly these types."""
    found = types_of(region.arguments)
    if found != tuple(expected):
        raise op.fail(f"{what} of {op.name} takes {_list(found)}, it is given {_list(expected)}")


def check_carried(op: Op, initial: Sequence[Value], following: Sequence[Value]) -> None:
    """Refuse a loop whose carried values do not keep their types."""
    if len(initial) != len(following):
        raise op.fail(
            f"{op.name} carries {len(initial)} values, its body hands over {len(following)}",
            code="D0403",
        )
    for before, after in zip(initial, following, strict=True):
        if before.type is not after.type:
            name = after.name or before.name or "a carried value"
            raise op.fail(
                f"{name} starts as {show(before)} and the next step makes it {show(after)}",
                code="D0403",
                help="convert or reshape one of them: a carried value keeps its type",
            )


def grow(op: Op) -> tuple[Value, ...]:
    """Give an operation the results that its grown regions have; gives back the new ones.

    New results follow the old ones, which stay the values that they are.
    """
    types = op.infer()
    assert isinstance(types, tuple)
    known = len(op.results)
    assert types_of(op.results) == types[:known]
    new = [Value(type, op, known + i) for i, type in enumerate(types[known:])]
    op.results = (*op.results, *new)
    return tuple(new)


def _list(types: Sequence[Type]) -> str:
    texts = [type.text if isinstance(type, TensorType) else str(type) for type in types]
    return f"({', '.join(texts)})"
