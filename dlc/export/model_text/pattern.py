"""Recognising what a function of the language makes in a graph.

A pattern is made by the function itself, called with numbers that stand for any number: so it can never
say anything else than the function does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from dlc.dialects import array
from dlc.dialects.array import tensor_type
from dlc.export.model_text.graph import Graph
from dlc.ir.attributes import encode, exact_items
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.fingerprint import fingerprint
from dlc.ir.location import UnknownLocation
from dlc.ir.types import DType, TensorType

Build = Callable[..., Value]
"""Places operations with a builder, from values: the pattern is what it gives."""

HOLES = (0.123456789012, 0.234567890123, 0.345678901234)
"""Numbers that stand for any number in a pattern."""


@dataclass(slots=True)
class Match:
    """A match: the graph's values for those and the holes of a pattern, and the operations covered."""

    values: dict[Value, Value] = field(default_factory=dict[Value, Value])
    numbers: dict[float, float] = field(default_factory=dict[float, float])
    ops: set[Op] = field(default_factory=set[Op])

    def copy(self) -> Match:
        """The same, to go on with."""
        return Match(dict(self.values), dict(self.numbers), set(self.ops))


@lru_cache(maxsize=4096)
def _pattern(build: Build, types: tuple[TensorType, ...]) -> tuple[Block, Value]:
    block = Block(types)
    emit = Builder(block, UnknownLocation("pattern"))
    return block, build(emit, *block.arguments)


def matched(
    graph: Graph, value: Value, build: Build, types: Sequence[TensorType]
) -> tuple[list[Value], list[float]] | None:
    """The values that `build` makes `value` of, and the numbers in its holes; None if it does not.

    What the pattern makes on the way is used for nothing else. All such functions are of floats.
    """
    if not all(type.dtype.is_float for type in types):
        return None
    block, root = _pattern(build, tuple(types))
    found = _matched(graph, root, value, Match())
    if found is None:
        return None
    inner = {result for op in found.ops for result in op.results} - {value}
    if not all(graph.is_used_only_by(result, found.ops) for result in inner):
        return None
    if any(argument not in found.values for argument in block.arguments):
        return None
    holes = [found.numbers[hole] for hole in HOLES if hole in found.numbers]
    return [found.values[argument] for argument in block.arguments], holes


def _matched(graph: Graph, pattern: Value, value: Value, found: Match) -> Match | None:
    if pattern.type is not value.type:
        return None
    wanted = pattern.op
    if wanted is None:
        known = found.values.setdefault(pattern, value)
        return found if known is value else None
    if isinstance(wanted, array.Fill):
        return _number(graph, wanted, value, found)
    op = value.op
    if op is None or not _alike(wanted, op) or pattern.index != value.index:
        return None
    pairs = list(zip(wanted.operands, op.operands, strict=True))
    straight = _all_matched(graph, pairs, found.copy())
    if straight is None and op.commutative:
        crossed = list(zip(wanted.operands, reversed(op.operands), strict=True))
        straight = _all_matched(graph, crossed, found.copy())
    if straight is not None:
        straight.ops.add(op)
    return straight


def _all_matched(
    graph: Graph, pairs: Sequence[tuple[Value, Value]], found: Match | None
) -> Match | None:
    for pattern, value in pairs:
        if found is None:
            return None
        found = _matched(graph, pattern, value, found)
    return found


def _alike(one: Op, other: Op) -> bool:
    if type(one) is not type(other) or len(one.operands) != len(other.operands):
        return False
    if exact_items(one.attributes) != exact_items(other.attributes):
        return False
    return not one.regions or fingerprint(one) == fingerprint(other)


def _number(graph: Graph, wanted: array.Fill, value: Value, found: Match) -> Match | None:
    number = graph.number(value)
    if number is None:
        return None
    if wanted.value in HOLES:
        hole = float(wanted.value)
        return found if found.numbers.setdefault(hole, float(number)) == number else None
    dtype = tensor_type(value).dtype
    return found if _bits(number, dtype) == _bits(wanted.value, dtype) else None


def _bits(number: float, dtype: DType) -> bytes:
    if dtype.is_float:
        return encode(np.asarray(number, np.float64), dtype).tobytes()
    return struct.pack("q", int(number))
