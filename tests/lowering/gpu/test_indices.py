"""Indices on a GPU: one of u64 that i64 does not hold is beyond every axis, not a place from its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from dlc.dialects import array, mem
from dlc.driver.compile.pipelines import Device, pipeline
from dlc.errors import CallError
from dlc.evaluation.plan import evaluate_plan
from dlc.ir.core import Array, Builder, Evaluation, Value
from dlc.ir.passes import Context, Manager, Options
from dlc.ir.types import F32, I64, U64, TensorType
from dlc.target import Target
from dlc.target.gpu import GpuTarget
from tests.lowering.everywhere import function_of

Indexed = Callable[[Builder, Value, Value], Value]

ROWS, ONE = TensorType(F32, (3, 4)), TensorType(U64, (1,))
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def gather(emit: Builder, x: Value, index: Value) -> Value:
    return emit(array.Gather(x, (index,), (0,)))


def scatter(mode: str) -> Indexed:
    def program(emit: Builder, x: Value, index: Value) -> Value:
        row = array.fill(emit, 1, TensorType(F32, (1, 4)))
        return emit(array.Scatter(x, row, (index,), (0,), mode))

    return program


def slice(emit: Builder, x: Value, index: Value) -> Value:
    start = array.wide_index(emit, emit(array.Reshape(index, ())))
    zero = array.fill(emit, 0, TensorType(I64))
    return emit(array.DynamicSlice(x, (start, zero), (1, 4)))


PROGRAMS: dict[str, Indexed] = {
    "gather": gather,
    "slice": slice,
    **{mode: scatter(mode) for mode in ("set", "add", "max")},
}


def on_gpu(program: Indexed, index: int) -> tuple[Array, Array]:
    """What a program gives for an index, by the warps of a GPU and by its graph."""

    def indexed(emit: Builder, x: Value, place: Value) -> Sequence[Value]:
        return (program(emit, x, place),)

    module, function = function_of(indexed, [ROWS, ONE], {})
    inputs = [X, np.array([index], np.uint64)]
    (wanted,) = Evaluation().run(function.body, inputs) if index < len(X) else (X,)
    options = Options(target=Target.all_on(GpuTarget.named("sm_80")))
    Manager(Context(options=options)).run(module, pipeline("graph", "loop", 2, Device.CUDA))
    made = module.symbol("f")
    assert isinstance(made, mem.Program)
    (found,) = evaluate_plan(made, inputs)
    return found, wanted


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_u64_beyond_i64_is_out_of_range(name: str) -> None:
    found, wanted = on_gpu(PROGRAMS[name], 2)
    np.testing.assert_array_equal(found, wanted)
    for index in ((1 << 64) - 1, 1 << 63):
        with pytest.raises(CallError, match="9223372036854775807"):
            on_gpu(PROGRAMS[name], index)
