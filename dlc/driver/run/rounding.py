"""Values computed by NumPy that still have the bits of machine code.

An operation that moves, selects or compares elements rounds nothing: what it gives for operands with the
bits of machine code are these bits, too. Everything else is computed again, in another order of the sums or
with another approximation of a function.
"""

from __future__ import annotations

from collections.abc import Callable

from dlc.dialects.array.elementwise import Elementwise
from dlc.ir.core import Block, Op, Value
from dlc.ir.types import TensorType

_MOVING = (
    *("bitcast", "broadcast", "compare", "concatenate", "constant", "dynamic_slice"),
    *("dynamic_update_slice", "extent", "fill", "gather", "iota", "maximum", "minimum"),
    *(
        "abs",
        "negate",
        "pad",
        "reshape",
        "reverse",
        "select",
        "slice",
        "sort",
        "top_k",
        "transpose",
    ),
    *("argmax", "argmin", "reduce_max", "reduce_min"),
)
ROUNDS_NOTHING = frozenset([f"array.{name}" for name in _MOVING]) | {"weight.get"}
"""Operations whose results have bits of their operands, or bits that follow from them without rounding."""


def exact_values(block: Block, is_known: Callable[[Op], bool]) -> set[Value]:
    """The values of a function with the bits of machine code, where it computed those that are known.

    The arguments of the function have them. A loop's values have them if all that enters it has them.
    """
    exact = set(_all_values(block))
    while True:
        left = {value for value in exact if _is_exact(value, exact, is_known, block)}
        if left == exact:
            return exact
        exact = left


def _is_exact(value: Value, exact: set[Value], is_known: Callable[[Op], bool], top: Block) -> bool:
    op = value.op
    if op is None:
        around = value.block
        return (
            around is top
            or around is None
            or around.parent is None
            or _enters(around.parent, exact)
        )
    if is_known(op):
        return True
    if op.regions:
        return _enters(op, exact)
    type = value.type
    whole = isinstance(type, TensorType) and not type.dtype.is_float
    moves = op.name in ROUNDS_NOTHING or (whole and isinstance(op, Elementwise))
    return moves and all(operand in exact for operand in op.operands)


def _enters(op: Op, exact: set[Value]) -> bool:
    """Whether what an operation with regions takes, and what these hand over, is exact."""
    handed = [operand for region in op.regions for operand in region.terminator.operands]
    return all(value in exact for value in (*op.operands, *handed))


def _all_values(block: Block) -> list[Value]:
    found = [*block.arguments]
    for op in block:
        found += op.results
        for region in op.regions:
            found += _all_values(region)
    return found
