"""Costs of placements: the work of an operation, and moving a value from one placement to another.

Of n ranks, each sends (n - 1) / n of the bytes of a whole array in an all-gather or a reduce-scatter,
twice as many in an all-reduce, and 1 / n of that in an all-to-all (Thakur, Rabenseifner and Gropp,
"Optimization of Collective Communication Operations in MPICH", 2005).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, prod

from dlc.dialects import array, nn
from dlc.dialects.array.elementwise import is_number
from dlc.dialects.comm import Collective, Send
from dlc.ir.core import Op, Value
from dlc.ir.dims import Size, evaluate, names
from dlc.ir.types import TensorType
from dlc.passes.sharding.placement import PARTIAL, REPLICATED, Placement, Shard, allows
from dlc.passes.sharding.rule import WHOLE, ShardingRule
from dlc.target.cpu_costs import CpuCosts
from dlc.target.network import USUAL_NETWORK

SAMPLE = 256
"""The size assumed for a named dim."""

_PRODUCTS = (
    array.MatMul, array.DotGeneral, array.Convolution, array.DepthwiseGradient, nn.Linear, nn.Conv,
    nn.Attention, nn.AttentionGradient, nn.LSTM,
)  # fmt: skip
"""Operations that multiply each element of one operand by several of another."""


_FORMULAS = (
    array.Elementwise, array.Compare, array.Select, array.Cast, array.Broadcast, array.Fill,
)  # fmt: skip
"""Operations that become one kernel with those that read them: what is between them is not in memory."""


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs, in picoseconds, along an axis of a mesh with `ranks` ranks."""

    ranks: int
    cpu: CpuCosts
    bounds: Mapping[str, tuple[int, int | None]]
    splits: Mapping[str, int] = field(default_factory=dict[str, int])
    """Of weights that a rank reads a part of, by name: the axis that this axis of the mesh splits."""

    def work(self, op: Op, rule: ShardingRule | None) -> float:
        """The time of an operation on one rank that does all of it."""
        if isinstance(op, Collective):
            return self._sent(self.bytes(op.operands[0].type))
        moved = sum(self.bytes(value.type) for value in _in_memory(op))
        time = float(self.cpu.memory_byte * moved)
        if rule is not None and isinstance(op, _PRODUCTS):
            time += self.cpu.product * self._products(op, rule)
        return time

    def _products(self, op: Op, rule: ShardingRule) -> float:
        """The sizes of all axes multiplied, those with the same letter once."""
        sizes: dict[str, int] = {}
        operands = [value.type for value in op.operands]
        for number, (word, type) in enumerate(zip(rule.operands, operands, strict=True)):
            assert isinstance(type, TensorType)
            for axis, (letter, size) in enumerate(zip(word, type.shape, strict=True)):
                key = f"{number}.{axis}" if letter == WHOLE else letter
                sizes[key] = self.size(size)
        return prod(sizes.values())

    def size(self, size: Size) -> int:
        """A size with named dims at a typical value within their bounds."""
        if isinstance(size, int):
            return size
        typical: dict[str, int] = {}
        for name in names(size):
            low, high = self.bounds.get(name, (1, None))
            typical[name] = max(low, SAMPLE if high is None else min(high, SAMPLE))
        return evaluate(size, typical)

    def bytes(self, type: object) -> int:
        """The bytes of a whole value of this type, with named dims at a typical value."""
        if not isinstance(type, TensorType):
            return 0
        return prod(self.size(size) for size in type.shape) * type.dtype.bytes

    def _sent(self, bytes: float) -> float:
        return USUAL_NETWORK.latency + USUAL_NETWORK.byte * bytes * (self.ranks - 1) / self.ranks

    def conversion(self, value: Value, have: Placement, want: Placement) -> float:
        """The time to bring a value from one placement to another; infinite if there is no way."""
        type = value.type
        assert isinstance(type, TensorType)
        if have == want:
            return 0
        if isinstance(value.op, array.Fill) and have is not PARTIAL:
            return 0 if want is not PARTIAL or is_number(value, 0) else inf
        # What a stage sends is received as it is.
        if isinstance(value.op, Send) or not allows(type, want, self.ranks):
            return inf
        bytes = self.bytes(type)
        match have, want:
            case Shard(one), Shard(other):
                part = bytes / self.ranks
                return (
                    self._sent(part) + self._moved(type, one, part) + self._moved(type, other, part)
                )
            case Shard(axis), _ if want is REPLICATED:
                return self._sent(bytes) + self._moved(type, axis, bytes)
            case _, Shard(axis) if have is PARTIAL:
                return self._sent(bytes) + self._moved(type, axis, bytes)
            case _, Shard():
                return self.cpu.memory_byte * bytes / self.ranks
            case _ if have is PARTIAL and want is REPLICATED:
                return self._sent(2 * bytes)
            case _:
                return inf

    def _moved(self, type: TensorType, axis: int, bytes: float) -> float:
        """The time to bring parts along an axis one behind the other, or back; along the first they are."""
        is_first = all(size == 1 for size in type.shape[:axis])
        return 0 if is_first else 2 * self.cpu.memory_byte * bytes


def _in_memory(op: Op) -> Iterator[Value]:
    """The operands that an operation reads from memory, and the results that it writes there."""
    if not isinstance(op, _FORMULAS):
        yield from (*op.operands, *op.results)
        return
    yield from (value for value in op.operands if not isinstance(value.op, _FORMULAS))
    for value in op.results:
        if any(not isinstance(user, _FORMULAS) for user in value.uses):
            yield value
