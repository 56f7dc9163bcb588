"""Descriptions of GPUs: limits, and what lowerings do where an architecture lacks something."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlc.dialects import array, mem, simt
from dlc.driver.compile.pipelines import Device, pipeline
from dlc.errors import UsageError
from dlc.ir.core import Builder, Value
from dlc.ir.passes import Context, Manager, Options
from dlc.ir.types import BF16, F16, F32, F64, DType, TensorType
from dlc.target import Target
from dlc.target.gpu import GPUS, GpuTarget, Occupancy
from dlc.target.gpu_costs import GpuCosts
from tests.lowering.everywhere import function_of

A100 = GpuTarget.named("sm_80")
WIDE = Occupancy(wide_tiles=0)
"""Products of any size are computed in wide tiles."""
OLD = replace(A100, name="sm_70", matrix_dtypes=frozenset({F16}))
"""As sm_80, but of 16 bits matrix instructions multiply f16 alone."""


def functions(gpu: GpuTarget, dtype: DType, precision: str = "ieee") -> list[simt.Func]:
    """The functions of a product of matrices for a GPU."""

    def program(emit: Builder, x: Value, y: Value) -> list[Value]:
        return [emit(array.MatMul(x, y))]

    module, _ = function_of(program, [TensorType(dtype, (256, 256))] * 2, {})
    options = Options(target=Target.all_on(gpu), matmul_precision=precision)
    Manager(Context(options=options)).run(module, pipeline("graph", "loop", 2, Device.CUDA))
    return [op for op in module.body if isinstance(op, simt.Func)]


def has(gpu: GpuTarget, dtype: DType, kind: type[object], precision: str = "ieee") -> bool:
    """Whether the functions have an operation of a kind."""
    found = functions(gpu, dtype, precision)
    assert found
    return any(isinstance(op, kind) for function in found for op in function.walk())


def test_matrix_instructions_multiply_16_bits_and_tf32() -> None:
    for gpu in GPUS.values():
        assert gpu.has_matrix_instructions(F16, "ieee") and gpu.has_matrix_instructions(
            BF16, "ieee"
        )
        assert not gpu.has_matrix_instructions(F32, "ieee")
        assert gpu.has_matrix_instructions(F32, "tf32")
        assert not gpu.has_matrix_instructions(F64, "tf32")


def test_what_an_architecture_lacks_is_not_used() -> None:
    assert has(A100, BF16, simt.Mma) and has(OLD, F16, simt.Mma)
    assert not has(OLD, BF16, simt.Mma)
    assert has(A100, F32, simt.Mma, "tf32")
    assert not has(OLD, F32, simt.Mma, "tf32")


def test_without_asynchronous_copies_products_bring_what_they_read_by_loads() -> None:
    assert has(A100, F32, simt.Copy)
    assert not has(replace(A100, copies_async=False), F32, simt.Copy)


def test_an_unknown_gpu_is_refused_with_the_known_ones() -> None:
    assert GpuTarget.named("").name == "sm_80"
    with pytest.raises(UsageError, match=r"D0920.*no GPU is called 'sm_1'"):
        GpuTarget.named("sm_1")


def test_who_names_a_gpu_by_its_number_is_told_the_option_for_it() -> None:
    with pytest.raises(UsageError, match=r"(?s)D0920.*--device cuda:1 says which GPU"):
        GpuTarget.named("1")


@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda gpu: gpu.name)
@pytest.mark.parametrize(("dtype", "precision"), [(F32, "ieee"), (F32, "tf32"), (BF16, "ieee")])
def test_no_function_takes_more_than_its_architecture_has(
    gpu: GpuTarget, dtype: DType, precision: str
) -> None:
    """Blocks that a multiprocessor is to hold at once fit into its shared memory."""
    for function in functions(replace(gpu, occupancy=WIDE), dtype, precision):
        assert function.shared_bytes > 0
        assert gpu.has_room_for(function.blocks, function.shared_bytes)
        assert function.threads <= gpu.block_threads


@pytest.mark.parametrize(("dtype", "precision"), [(F32, "tf32"), (BF16, "ieee")])
@pytest.mark.parametrize(("name", "kib"), [("sm_80", 48), ("sm_90a", 96), ("sm_120", 48)])
def test_k_tiles_are_as_deep_as_two_blocks_have_room_for(
    name: str, kib: int, dtype: DType, precision: str
) -> None:
    (function,) = functions(replace(GPUS[name], occupancy=WIDE), dtype, precision)
    assert function.shared_bytes == kib << 10
    assert function.dynamic_bytes == (function.shared_bytes if kib > 48 else 0)


def test_costs_of_a_block_are_the_tables() -> None:
    def cost(gpu: GpuTarget) -> list[object]:
        def program(emit: Builder, x: Value) -> list[Value]:
            return [emit(array.CumulativeSum(x, 1))]

        module, _ = function_of(program, [TensorType(F32, (64, 1000))], {})
        options = Options(target=Target.all_on(gpu))
        Manager(Context(options=options)).run(module, pipeline("graph", "loop", 2, Device.CUDA))
        return [op.cost for op in module.walk() if isinstance(op, mem.Call)]

    slow = replace(A100, costs=GpuCosts(scanned_element=3000))
    assert cost(A100) == [1500] and cost(slow) == [3000]
