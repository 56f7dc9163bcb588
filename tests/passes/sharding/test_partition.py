"""The pass `partition`: what the ranks of a mesh compute together is what one computes alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from dlc.dialects import array, flow, nn
from dlc.dialects.builtin import Module
from dlc.dialects.comm import AllGather, AllReduce, Collective, ReduceScatter
from dlc.dialects.flow.regions import COUNTER
from dlc.errors import ModelError
from dlc.evaluation.ranks import evaluate_ranks
from dlc.ir.core import Array, Builder, Value
from dlc.ir.dims import symbol
from dlc.ir.types import F64, TensorType
from dlc.passes.sharding.partition import Splits
from dlc.passes.sharding.placement import REPLICATED, Placement, Shard
from dlc.runtime.ranks.mesh import Mesh
from tests.dialects.programs import (
    Build,
    assert_close,
    emitted,
    expanded,
    gradient,
    main,
    ops,
    program,
    region,
    run,
    tensor,
    types_of,
)
from tests.passes.sharding.meshes import partitioned

TWO = Mesh({"data": 2})


def compare(build: Build, mesh: Mesh, splits: Sequence[Splits], *inputs: Array) -> Module:
    """Run a program whole and on a mesh; `splits` are those of the inputs, results are replicated."""
    whole = run(expanded(build, types_of(inputs)), *inputs)
    module = expanded(build, types_of(inputs))
    nothing: Splits = {}
    every = [*splits, *[nothing] * (len(whole) + len(inputs) - len(splits))]
    partitioned(module, mesh, every)
    found = evaluate_ranks(main(module).body, mesh, every, inputs)
    for one, other in zip(found, whole, strict=True):
        assert_close(one, other, 1e-11, 1e-11)
    return module


def drawn(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def perceptron(emit: Builder, x: Value, w: Value, b: Value, v: Value) -> Value:
    hidden = emit(nn.Linear(x, w, [b]))
    return emit(nn.Linear(emit(array.Tanh(hidden)), v, []))


def test_data_parallel_gradients_are_reduced_once_each() -> None:
    inputs = drawn(8, 6), drawn(6, 4), drawn(4), drawn(4, 2)
    module = compare(gradient(perceptron, [1, 2, 3]), TWO, [{"data": 0}], *inputs)
    reduced = ops(module, AllReduce)
    assert len(ops(module, Collective)) == len(reduced) == 3


def _adam(emit: Builder, x: Value, dy: Value, w: Value, m: Value, v: Value) -> tuple[Value, ...]:
    """New weights and moments, from a gradient that is summed over examples."""

    def scaled(value: Value, factor: float) -> Value:
        return emit(array.Multiply(value, array.constant_like(emit, factor, value)))

    dw = emit(array.MatMul(emit(array.Transpose(x, (1, 0))), dy))
    first = emit(array.Add(scaled(m, 0.9), scaled(dw, 0.1)))
    second = emit(array.Add(scaled(v, 0.99), scaled(emit(array.Multiply(dw, dw)), 0.01)))
    step = emit(array.Divide(first, emit(array.Exp(second))))
    return emit(array.Subtract(w, step)), first, second


@pytest.mark.parametrize("size", [8, 400])
def test_an_update_needs_the_sum_of_its_gradient_only(size: int) -> None:
    """Each rank updates all weights: updating a part saves less than gathering three arrays takes."""
    shapes = [(1024, size), (1024, size), *[(size, size)] * 3]
    module = compare(_adam, TWO, [{"data": 0}, {"data": 0}], *[drawn(*each) for each in shapes])
    assert [type(op) for op in ops(module, Collective)] == [AllReduce]


def test_tensor_parallel_needs_one_sum() -> None:
    """Columns of the first weight, rows of the second: only the result is summed (Megatron-LM)."""
    inputs = drawn(8, 6), drawn(6, 4), drawn(4), drawn(4, 2)
    splits = [{}, {"model": 1}, {"model": 0}, {"model": 0}]
    module = compare(perceptron, Mesh({"model": 2}), splits, *inputs)
    assert [type(op) for op in ops(module, Collective)] == [AllReduce]


def test_a_mesh_of_two_axes() -> None:
    inputs = drawn(8, 6), drawn(6, 4), drawn(4), drawn(4, 2)
    mesh = Mesh({"data": 2, "model": 2})
    splits = [{"data": 0}, {"model": 1}, {"model": 0}, {"model": 0}]
    compare(gradient(perceptron, [1, 2, 3]), mesh, splits, *inputs)


def _product(emit: Builder, x: Value, w: Value) -> Value:
    return emit(nn.Linear(x, w, []))


def test_a_split_optimizer_state_takes_a_part_of_the_gradient() -> None:
    """ZeRO: the gradient is scattered to the ranks that hold the state, the new weight gathered."""

    def step(emit: Builder, x: Value, w: Value, m: Value) -> tuple[Value, Value]:
        (dw,) = emitted(gradient(_product, [1]), emit, [x, w])
        half = array.constant_like(emit, 0.5, m)
        new = emit(array.Add(emit(array.Multiply(m, half)), dw))
        return emit(array.Subtract(w, new)), new

    x, w, m = drawn(4096, 32), drawn(32, 16), drawn(32, 16)
    types = types_of([x, w, m])
    whole = run(expanded(step, types), x, w, m)
    module = expanded(step, types)
    splits = [{"data": 0}, {}, {"data": 0}, {}, {"data": 0}]
    partitioned(module, TWO, splits)
    kinds = [type(op) for op in ops(module, Collective)]
    assert kinds == [ReduceScatter, AllGather]
    for one, other in zip(
        evaluate_ranks(main(module).body, TWO, splits, [x, w, m]), whole, strict=True
    ):
        assert_close(one, other, 1e-11, 1e-11)


def recurrent(emit: Builder, xs: Value, h: Value, w: Value) -> tuple[Value, ...]:
    type = array.tensor_type(h)

    def step(emit: Builder, i: Value, h: Value, x: Value, w: Value) -> tuple[Value, Value]:
        new = emit(array.Tanh(emit(array.Add(emit(array.MatMul(h, w)), x))))
        return new, new

    body = region(step, [COUNTER, type, type, w.type])
    return emit.all(flow.Scan([h], [xs], [w], body, 3, (0,), (0,)))


def test_the_gradient_of_a_loop_is_summed_after_it() -> None:
    inputs = drawn(3, 4, 5), drawn(4, 5), drawn(5, 5)
    module = compare(gradient(recurrent, [2]), TWO, [{"data": 1}, {"data": 0}], *inputs)
    (sum,) = ops(module, Collective)
    assert sum.parent is main(module).body


def test_a_named_batch_becomes_the_part_of_a_rank() -> None:
    batch = symbol("B")
    types = [TensorType(F64, (batch, 6)), tensor(6, 4), tensor(4), tensor(4, 2)]
    module = program(perceptron, types)
    partitioned(module, TWO, [{"data": 0}, {}, {}, {}, {"data": 0}])
    function = main(module)
    assert function.function_type.inputs[0] is types[0]
    assert not ops(module, Collective)


def test_an_odd_size_is_refused() -> None:
    module = program(perceptron, [tensor(7, 6), tensor(6, 4), tensor(4), tensor(4, 2)])
    with pytest.raises(ModelError, match="no equal parts for the 2 ranks") as error:
        partitioned(module, TWO, [{"data": 0}, {}, {}, {}, {}])
    assert error.value.diagnostics[0].code == "D0381"


def _pairs() -> Iterator[tuple[Placement, Placement]]:
    places = [REPLICATED, *[Shard(axis) for axis in range(3)]]
    for one in places:
        for other in places:
            if one != other:
                yield one, other


@pytest.mark.parametrize(("have", "want"), list(_pairs()), ids=str)
def test_from_each_placement_to_each(have: Placement, want: Placement) -> None:
    value = drawn(4, 6, 2)

    def split(place: Placement) -> Splits:
        return {"data": place.axis} if isinstance(place, Shard) else {}

    module = program(lambda emit, x: x, [tensor(4, 6, 2)])
    splits = [split(have), split(want)]
    partitioned(module, TWO, splits)
    (found,) = evaluate_ranks(main(module).body, TWO, splits, [value])
    np.testing.assert_array_equal(found, value)
