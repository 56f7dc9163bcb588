"""The sharding rule of an operation, and the attributes of its part on a rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dlc.dialects import array, weight
from dlc.dialects.array.elementwise import tensor_type
from dlc.ir.attributes import Attribute
from dlc.ir.core import Op
from dlc.ir.types import TensorType
from dlc.passes.sharding.rule import ShardingRule
from dlc.passes.sharding.rules_array import RULES
from dlc.passes.sharding.rules_nn import RULES as NN_RULES

_ALL = {**RULES, **NN_RULES}


def _find(op: Op) -> Callable[[Any], ShardingRule | None] | None:
    return next((_ALL[base] for base in type(op).__mro__ if base in _ALL), None)


def has_rule(op: Op) -> bool:
    """Whether there is a rule for operations of this class."""
    return _find(op) is not None


def rule_of(op: Op) -> ShardingRule | None:
    """The rule of an operation; None if it is computed on every rank alike."""
    found = _find(op)
    return None if found is None else found(op)


def local_attributes(op: Op, results: Sequence[TensorType]) -> dict[str, Attribute]:
    """The attributes of the operation that a rank does, whose results have these types."""
    match op:
        case array.Fill() | weight.Get():
            return {"type": results[0]}
        case array.Iota() | array.Broadcast() | array.Reshape():
            return {"shape": results[0].shape}
        case array.DynamicSlice():
            return {"sizes": results[0].shape}
        case array.Slice():
            sizes = zip(op.limits, tensor_type(op.result).shape, results[0].shape, strict=True)
            # An axis that is split is whole in the source: it starts at 0.
            limits = [limit if size == local else local for limit, size, local in sizes]
            return {"limits": tuple(limits)}
        case _:
            return {}
