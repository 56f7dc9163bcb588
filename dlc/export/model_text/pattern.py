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
    match = _matched(graph, root, value, Match())
    if match is None:
        return None
    inner = {result for op in match.ops for result in op.results} - {value}
    if not all(graph.is_used_only_by(result, match.ops) for result in inner):
        return None
    if any(argument not in match.values for argument in block.arguments):
        return None
    holes = [match.numbers[hole] for hole in HOLES if hole in match.numbers]
    return [match.values[argument] for argument in block.arguments], holes


def _matched(graph: Graph, pattern: Value, value: Value, match: Match) -> Match | None:
    if pattern.type is not value.type:
        return None
    pattern_op = pattern.op
    if pattern_op is None:
        known = match.values.setdefault(pattern, value)
        return match if known is value else None
    if isinstance(pattern_op, array.Fill):
        return _number(graph, pattern_op, value, match)
    op = value.op
    if op is None or not _alike(pattern_op, op) or pattern.index != value.index:
        return None
    pairs = list(zip(pattern_op.operands, op.operands, strict=True))
    straight = _all_matched(graph, pairs, match.copy())
    if straight is None and op.commutative:
        crossed = list(zip(pattern_op.operands, reversed(op.operands), strict=True))
        straight = _all_matched(graph, crossed, match.copy())
    if straight is not None:
        straight.ops.add(op)
    return straight


def _all_matched(
    graph: Graph, pairs: Sequence[tuple[Value, Value]], match: Match | None
) -> Match | None:
    for pattern, value in pairs:
        if match is None:
            return None
        match = _matched(graph, pattern, value, match)
    return match


def _alike(one: Op, other: Op) -> bool:
    if type(one) is not type(other) or len(one.operands) != len(other.operands):
        return False
    if exact_items(one.attributes) != exact_items(other.attributes):
        return False
    return not one.regions or fingerprint(one) == fingerprint(other)


def _number(graph: Graph, pattern_op: array.Fill, value: Value, match: Match) -> Match | None:
    number = graph.number(value)
    if number is None:
        return None
    if pattern_op.value in HOLES:
        hole = float(pattern_op.value)
        return match if match.numbers.setdefault(hole, float(number)) == number else None
    dtype = tensor_type(value).dtype
    return match if _bits(number, dtype) == _bits(pattern_op.value, dtype) else None


def _bits(number: float, dtype: DType) -> bytes:
    if dtype.is_float:
        return encode(np.asarray(number, np.float64), dtype).tobytes()
    return struct.pack("q", int(number))
