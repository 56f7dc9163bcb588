"""Programs compiled for a GPU, for tests: evaluated warp by warp, next to what they are to give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlc.dialects import mem
from dlc.driver.compile.pipelines import Device, pipeline
from dlc.evaluation.plan import evaluate_plan
from dlc.ir.attributes import decode, encode
from dlc.ir.core import Array, Evaluation, Op
from dlc.ir.passes import Context, Manager, Options
from dlc.ir.types import BF16, BOOL, F16, F32, F64, DType, TensorType
from dlc.target import Target
from dlc.target.gpu import GpuTarget
from tests.lowering.everywhere import Program, function_of

ROUNDING = {F16: 2.0**-11, BF16: 2.0**-8, F32: 2.0**-20}
"""The relative error of a result that is rounded once; sums of f32 are rounded more often."""
TF32 = 2.0**-10
"""The relative error of a product whose factors were rounded to 10 bits of mantissa."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A function for a GPU, what it is given, and what it is to give."""

    program: mem.Program
    inputs: Sequence[Array]
    wanted: Sequence[Array]
    dtype: DType

    def error(self) -> float:
        """The largest difference of a result, relative to its largest number; NaN is where it is to be."""
        found = evaluate_plan(self.program, self.inputs)
        return max(map(self._difference, found, self.wanted))

    def _difference(self, found: Array, wanted: Array) -> float:
        one, other = (decode(array, self.dtype).astype(float) for array in (found, wanted))
        assert np.array_equal(np.isnan(one), np.isnan(other))
        there = ~np.isnan(other)
        apart, largest = (np.max(np.abs(x[there]), initial=0) for x in (one - other, other))
        return float(apart / largest) if apart else 0.0

    def all(self, kind: type[Op]) -> list[Op]:
        """Its operations of a class."""
        assert self.program.parent is not None
        module = self.program.parent.parent
        assert module is not None
        return [op for op in module.walk() if isinstance(op, kind)]


def evaluate(made: Compiled) -> Array:
    """The only result of a function, from its warps."""
    (found,) = evaluate_plan(made.program, made.inputs)
    return found


def compiled(
    program: Program,
    dtype: DType,
    *shapes: tuple[int, ...],
    products: str = "ieee",
    level: int = 2,
    mask: Array | None = None,
    architecture: str = "sm_80",
) -> Compiled:
    """A program of arrays of normal numbers, and perhaps of bools, compiled for a GPU and evaluated."""
    types = [TensorType(dtype, shape) for shape in shapes]
    random = np.random.default_rng(5)
    inputs = [encode(random.normal(size=shape), dtype) for shape in shapes]
    if mask is not None:
        types.append(TensorType(BOOL, mask.shape))
        inputs.append(mask)
    module, _ = function_of(program, types, {})
    options = Options(
        level=level, target=Target.all_on(GpuTarget.named(architecture)), matmul_precision=products
    )
    Manager(Context(options=options)).run(module, pipeline("graph", "loop", level, Device.CUDA))
    found = module.symbol("f")
    assert isinstance(found, mem.Program)
    return Compiled(found, inputs, wanted(program, types, inputs), dtype)


def wanted(
    program: Program, types: Sequence[TensorType], inputs: Sequence[Array]
) -> Sequence[Array]:
    """What a program gives; where it works in f32, in f64: how NumPy adds up depends on the machine."""
    exact = [TensorType(F64, type.shape) if type.dtype is F32 else type for type in types]
    _, function = function_of(program, exact, {})
    given = [array.astype(type.dtype.numpy) for array, type in zip(inputs, exact, strict=True)]
    return Evaluation().run(function.body, given)
