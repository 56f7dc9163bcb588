"""Where kernels for GPUs compute by approximate instructions, and how far off their results may then be.

NumPy evaluates these instructions exactly. Here they are as far off as their documentation allows, up or
down by the bits of their operands, so the errors that are measured are those of the worst hardware.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pytest

from dlc.dialects import array, mem, nn, simt
from dlc.driver.compile.pipelines import Device, pipeline
from dlc.evaluation.plan import evaluate_plan
from dlc.ir.attributes import decode, encode
from dlc.ir.core import Array, Builder, Evaluation, Op, Value
from dlc.ir.passes import Context, Manager, Options
from dlc.ir.types import BF16, F16, F32, DType, TensorType
from tests.lowering.everywhere import Program, function_of
from tests.lowering.gpu.on_gpu import ROUNDING
from tests.targets import ON_GPU

Numbers: TypeAlias = npt.NDArray[np.float64]

ERRORS = {simt.Exp2: 2.0**-22, simt.Divide: 2.0**-22, simt.Sqrt: 2.0**-23, simt.Rsqrt: 2.0**-22}
"""The relative errors that PTX's documentation allows."""


@pytest.fixture(autouse=True)
def worst_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each approximate instruction is off by all that it may be."""
    for cls, error in ERRORS.items():
        monkeypatch.setattr(cls, "evaluate", _off_by(cls.evaluate, error))


def _off_by(evaluate: Callable[..., Array], error: float) -> Callable[..., Array]:
    def off(op: Op, at: Evaluation, *inputs: Array) -> Array:
        up = (inputs[-1].view(np.uint32) * np.uint32(2654435761)) >> np.uint32(31)
        factors = np.where(up == 1, 1 + error, 1 - error)
        return (evaluate(op, at, *inputs) * factors).astype(np.float32)

    return off


def unary(cls: Callable[[Value], Op]) -> Program:
    def program(emit: Builder, x: Value) -> Sequence[Value]:
        return (emit(cls(x)),)

    return program


def softmax(emit: Builder, x: Value) -> Sequence[Value]:
    return (emit(nn.Softmax(x, 1)),)


def silu(emit: Builder, x: Value) -> Sequence[Value]:
    return (nn.silu(emit, x),)


def quotient(emit: Builder, x: Value) -> Sequence[Value]:
    return (emit(array.Divide(array.constant_like(emit, 3, x), x)),)


def difference(emit: Builder, x: Value) -> Sequence[Value]:
    """One operation of 16 bits that a kernel computes with further ones in f32."""
    wide = emit(array.Cast(x, F32))
    near = emit(array.Subtract(emit(array.Exp(wide)), array.constant_like(emit, 1, wide)))
    return (emit(array.Cast(near, array.tensor_type(x).dtype)),)


def run(
    program: Program, values: Array, dtype: DType, accuracy: str = "default"
) -> tuple[Numbers, bool]:
    """The result on a GPU in f64, and whether an approximate instruction computes it."""
    type = TensorType(dtype, values.shape)
    module, _ = function_of(program, [type], {})
    fast = accuracy == "fast"
    options = Options(target=ON_GPU, accuracy=accuracy, fast_narrow=fast)
    Manager(Context(options=options)).run(module, pipeline("graph", "loop", 2, Device.CUDA))
    found = module.symbol("f")
    assert isinstance(found, mem.Program)
    (result,) = evaluate_plan(found, [encode(values, dtype)])
    approximate = any(isinstance(op, simt.Approximation) for op in module.walk())
    return decode(result, dtype).astype(np.float64), approximate


def relative(found: Numbers, wanted: Numbers) -> float:
    return float(np.max(np.abs(found - wanted) / np.abs(wanted)))


def thirds(x: Numbers) -> Numbers:
    return 3 / x


def reciprocal_root(x: Numbers) -> Numbers:
    return 1 / np.sqrt(x)


def logistic(x: Numbers) -> Numbers:
    return 1 / (1 + np.exp(-x))


NUMBERS = np.linspace(-60, 60, 200).reshape(4, 50).astype(np.float32)
POSITIVE = np.geomspace(1e-30, 1e30, 200).reshape(4, 50).astype(np.float32)


@pytest.mark.parametrize(
    ("program", "values", "reference", "most"),
    [
        # |x| of up to 60 adds 60 * 2**-24 to the error of the instruction.
        pytest.param(unary(array.Exp), NUMBERS, np.exp, 2.0**-22 + 61 * 2.0**-24, id="exp"),
        pytest.param(quotient, POSITIVE, thirds, 2.0**-22 + 2.0**-24, id="quotient"),
        pytest.param(unary(array.Sqrt), POSITIVE, np.sqrt, 2.0**-22, id="sqrt"),
        pytest.param(unary(array.Rsqrt), POSITIVE, reciprocal_root, 2.0**-21, id="rsqrt"),
        pytest.param(unary(array.Sigmoid), NUMBERS, logistic, 2.0**-17, id="sigmoid"),
    ],
)
def test_fast_functions_of_f32_are_as_exact_as_documented(
    program: Program, values: Array, reference: Callable[[Numbers], Numbers], most: float
) -> None:
    found, approximate = run(program, values, F32, "fast")
    assert approximate
    assert relative(found, reference(values.astype(np.float64))) <= most


@pytest.mark.parametrize("program", [unary(array.Exp), quotient, unary(array.Sqrt), softmax])
def test_functions_of_f32_are_exact_where_nothing_else_is_asked_for(program: Program) -> None:
    _, approximate = run(program, POSITIVE[:, :20], F32)
    assert not approximate


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize(("program", "roundings"), [(softmax, 1), (silu, 2)])
def test_numbers_of_16_bits_lose_nothing_but_rare_last_bits(
    program: Program, roundings: int, dtype: DType
) -> None:
    """The approximations add less than a fiftieth to the error of the roundings of the graph."""
    values = np.random.default_rng(3).normal(size=(4, 50)).astype(np.float32)
    found, approximate = run(program, values, dtype)
    assert approximate
    exact = decode(encode(values, dtype), dtype).astype(np.float64)
    wide = TensorType(F32, values.shape)
    module, function = function_of(program, [wide], {})
    (wanted,) = Evaluation().run(function.body, [exact.astype(np.float32)])
    assert module is not None
    assert relative(found, wanted.astype(np.float64)) <= 1.02 * roundings * ROUNDING[dtype]


def test_a_difference_of_an_exponential_keeps_the_exact_function() -> None:
    _, approximate = run(difference, NUMBERS, BF16)
    assert not approximate
