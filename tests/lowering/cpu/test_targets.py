"""Code for old processors: right, and without instructions that they lack."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import numpy as np
import pytest

from dlc.codegen.kernels import kernel_texts
from dlc.codegen.llvm.target_machine import assembly
from dlc.dialects import array
from dlc.driver.compile.pipelines import pipeline
from dlc.driver.compile.settings import Settings
from dlc.ir.attributes import decode
from dlc.ir.core import Builder, Value
from dlc.ir.passes import Context, Manager
from dlc.ir.types import F16, F32, F64, DType, TensorType
from dlc.runtime.model import Model
from dlc.target.cpu import CpuTarget
from tests.lowering.everywhere import Program, called, function_of, model_of, random_inputs
from tests.lowering.test_every_op_natively import natively
from tests.op_examples.every import OPERATORS
from tests.op_examples.example import EXAMPLES, TOLERANCE, Example
from tests.suites import every

OLD = ("x86-64", "x86-64-v2")
NEWER = {
    "x86-64": re.compile(r"^\tv[a-z0-9]+|%[yz]mm|\bround[sp][sd]\b|\bp?blendv", re.MULTILINE),
    "x86-64-v2": re.compile(r"^\tv[a-z0-9]+|%[yz]mm", re.MULTILINE),
}
"""AVX and everything after it; for the oldest level also rounding to integers and blending."""


def built(program: Program, types: Sequence[TensorType], target: str) -> Model:
    """A program as machine code for a target."""
    return model_of(program, types, Settings(2, f"cpu:{target}").options(), target=target)


@pytest.mark.parametrize(
    ("found", "target"),
    every(
        5, itertools.product([pytest.param(EXAMPLES[name][0], id=name) for name in OPERATORS], OLD)
    ),
)
def test_an_operation_runs_on_an_old_processor(found: Example, target: str) -> None:
    block, op = found.block()
    wanted = found.run(block)
    settings = Settings(2, target=f"cpu:{target}")
    for value, one, other in zip(op.results, natively(found, settings), wanted, strict=True):
        assert isinstance(value.type, TensorType)
        dtype = value.type.dtype
        tolerance = 4 * TOLERANCE[dtype] if dtype.is_float else 0
        numbers = [decode(array, dtype).astype(np.float64) for array in (one, other)]
        np.testing.assert_allclose(*numbers, rtol=tolerance, atol=tolerance)


def everything(emit: Builder, x: Value, y: Value) -> Sequence[Value]:
    """Products, sums, functions, conversions, rounding."""
    narrow = emit(array.Cast(emit(array.MatMul(x, y)), F16))
    wide = emit(array.Cast(emit(array.Cast(narrow, F64)), F32))
    rounded = [emit(kind(wide)) for kind in (array.Floor, array.Ceil, array.Round, array.Trunc)]
    functions = [emit(kind(wide)) for kind in (array.Exp, array.Sin, array.Tanh, array.Erf)]
    rest = emit(array.Remainder(x, y))
    return narrow, *rounded, *functions, rest, emit(array.ReduceSum(rest, (0, 1)))


TYPES = [TensorType(F32, (40, 40))] * 2


@pytest.mark.parametrize("matmul", ["blas", "generated"])
@pytest.mark.parametrize("target", OLD)
def test_code_for_an_old_processor_has_only_its_instructions(target: str, matmul: str) -> None:
    settings = Settings(2, target=f"cpu:{target}", matmul=matmul)
    module, _ = function_of(everything, TYPES, {})
    Manager(Context(options=settings.options())).run(module, pipeline("graph", "loop", 2))
    processor = settings.processor
    assert isinstance(processor, CpuTarget)
    for text in kernel_texts(module).values():
        code = assembly(text, processor)
        assert not NEWER[target].findall(code)


@pytest.mark.parametrize("target", OLD)
def test_old_and_new_processors_agree(target: str) -> None:
    inputs = random_inputs(TYPES, {})
    old = called(built(everything, TYPES, target), inputs)
    new = called(built(everything, TYPES, "host"), inputs)
    for one, other in zip(old, new, strict=True):
        scale = float(np.abs(other.astype(np.float64)).max())
        numbers = [each.astype(np.float64) for each in (one, other)]
        tolerance = 1e-3 if one.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(*numbers, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_rounding_without_its_instruction_is_exact(dtype: DType) -> None:
    kinds = (array.Floor, array.Ceil, array.Round, array.Trunc)
    type = TensorType(dtype, (4096,))

    def program(emit: Builder, x: Value) -> Sequence[Value]:
        return [emit(kind(x)) for kind in kinds]

    random = np.random.default_rng(0)
    x = random.standard_normal(4096) * 10.0 ** random.integers(-3, 20, 4096)
    halves = np.arange(-8, 8) / 2
    x[: halves.size] = halves
    x[16:24] = [0.0, -0.0, np.inf, -np.inf, np.nan, 2.0**23 - 0.5, 2.0**52 - 0.5, -0.3]
    x = x.astype(type.dtype.numpy)
    found = called(built(program, [type], "x86-64"), [x])
    for one, function in zip(found, (np.floor, np.ceil, np.rint, np.trunc), strict=True):
        assert np.array_equal(one, function(x), equal_nan=True)
        assert np.array_equal(np.signbit(one[~np.isnan(x)]), np.signbit(function(x)[~np.isnan(x)]))
