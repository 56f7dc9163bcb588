"""Every way to compute an operation that its sharding rule allows gives what the operation gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.dialects import func
from dlc.ir.attributes import decode, encode
from dlc.ir.core import Evaluation, Op
from dlc.ir.passes import Context
from dlc.ir.types import DType, TensorType
from dlc.ir.verify import verify
from dlc.passes.sharding.assign import Assignment
from dlc.passes.sharding.find_rule import rule_of
from dlc.passes.sharding.partition import Partition
from dlc.passes.sharding.placement import PARTIAL, Placement, Shard, allows
from dlc.passes.sharding.reshard import Axis
from dlc.passes.sharding.rule import Strategy, strategies
from dlc.runtime.ranks.mesh import Mesh
from dlc.runtime.ranks.simulated import SimulatedRanks, run_simulated
from tests.op_examples.every import OPERATORS
from tests.op_examples.example import EXAMPLES, TOLERANCE, Example
from tests.suites import together

RANKS = (2, 3)

Array: TypeAlias = NDArray[Any]


def _operation(example: Example) -> Op:
    block, op = example.block()
    assert op.parent is block
    return op


def _cases() -> Iterator[tuple[str, int, int, int]]:
    """The number of each example, of ranks and of the strategy, for each operation."""
    for name in OPERATORS:
        for number, example in enumerate(EXAMPLES.get(name, [])):
            op = _operation(example)
            if example.dims or not all(isinstance(v.type, TensorType) for v in op.results):
                continue
            for ranks in RANKS:
                for which, strategy in enumerate(strategies(op, rule_of(op))):
                    if which and _is_possible(op, strategy, ranks):
                        yield name, number, ranks, which


def _is_possible(op: Op, strategy: Strategy, ranks: int) -> bool:
    pairs = [
        *zip(op.operands, strategy.operands, strict=True),
        *zip(op.results, strategy.results, strict=True),
    ]
    return all(isinstance(v.type, TensorType) and allows(v.type, p, ranks) for v, p in pairs)


CASES = list(_cases())


@together(("name", "number", "ranks", "which"), CASES, parts=4)
def test_a_divided_operation_equals_the_whole(
    name: str, number: int, ranks: int, which: int
) -> None:
    example = EXAMPLES[name][number]
    module = example.module()
    (function,) = [op for op in module.body if isinstance(op, func.Func)]
    op = next(iter(function.body))
    strategy = list(strategies(op, rule_of(op)))[which]
    whole = example.run(function.body)
    partition = Partition(function, Axis("data", ranks), Context(), {})
    assignment = Assignment(strategy.operands, {op: strategy}, ends=strategy.results)
    local = partition.block(function.body, assignment)
    function.swap_body(local)
    verify(module)

    parts = [
        _divided(given.array, given.dtype, place, ranks)
        for given, place in zip(example.inputs, strategy.operands, strict=True)
    ]

    def work(at: SimulatedRanks) -> tuple[Array, ...]:
        return Evaluation({}, None, None, at).run(local, [part[at.rank] for part in parts])

    by_rank = run_simulated(Mesh({"data": ranks}), work)
    for k, (expected, place) in enumerate(zip(whole, strategy.results, strict=True)):
        type = op.results[k].type
        assert isinstance(type, TensorType)
        found = _together([results[k] for results in by_rank], type.dtype, place)
        floats = [given.dtype for given in example.inputs if given.dtype.is_float]
        coarsest = max([type.dtype, *floats], key=lambda dtype: TOLERANCE.get(dtype, 0))
        _assert_close(found, decode(expected, type.dtype), type.dtype, coarsest)


def _divided(array: Array, dtype: DType, place: Placement, ranks: int) -> list[Array]:
    """What each rank has of an array."""
    if isinstance(place, Shard):
        return np.split(array, ranks, place.axis)
    if place is not PARTIAL:
        return [array] * ranks
    random = np.random.default_rng(5)
    values: NDArray[Any] = decode(array, dtype)
    others = [random.integers(0, 4, values.shape).astype(values.dtype) for _ in range(ranks - 1)]
    # Integers wrap around, and so do their partial sums.
    parts = [*others, values - np.sum(others, axis=0, dtype=values.dtype)]
    return [encode(part, dtype) if dtype.is_float else part for part in parts]


def _together(parts: list[Array], dtype: DType, place: Placement) -> Array:
    """The value that the ranks have."""
    values = [decode(part, dtype) for part in parts]
    if isinstance(place, Shard):
        return np.concatenate(values, place.axis)
    if place is PARTIAL:
        return np.asarray(np.sum(values, axis=0, dtype=values[0].dtype))
    for other in values[1:]:
        np.testing.assert_array_equal(values[0], other)
    return values[0]


def _assert_close(found: Array, expected: Array, dtype: DType, coarsest: DType) -> None:
    """Compare; partial sums were rounded in the coarsest dtype."""
    if not dtype.is_float:
        np.testing.assert_array_equal(found, expected)
        return
    scale = float(np.max(np.abs(expected), initial=1, where=np.isfinite(expected)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=32 * TOLERANCE[coarsest] * scale)
