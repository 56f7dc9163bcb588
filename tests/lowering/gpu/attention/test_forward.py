"""Attention of f16, bf16 and tf32 for a GPU is one kernel that multiplies matrices, warp by warp."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from dlc.dialects import mem, nn, simt
from dlc.evaluation.gpu.shadow_memory import Race
from dlc.evaluation.gpu.warp_memory import PendingCopyAccess
from dlc.ir.core import Array, Builder, Op, Value
from dlc.ir.types import BF16, F16, F32, DType
from tests.lowering.everywhere import Program
from tests.lowering.gpu.on_gpu import ROUNDING, TF32, Compiled, compiled
from tests.suites import every

WEIGHTS = 2
"""Weights are rounded, too: that much more than the rounding of a result, or of a product."""
WAYS = [
    pytest.param(F16, "ieee", ROUNDING[F16], id="f16"),
    pytest.param(BF16, "ieee", ROUNDING[BF16], id="bf16"),
    pytest.param(F32, "tf32", TF32, id="tf32"),
]


def attention(causal: int | None = None) -> Program:
    def program(emit: Builder, *operands: Value) -> Sequence[Value]:
        query, keys, values, *mask = operands
        return (emit(nn.Attention(query, keys, values, mask, 0.25, causal)),)

    return program


def hidden() -> Array:
    """Keys that a few queries see: one sees none, and one none of the first 64."""
    mask = np.random.default_rng(3).random((4, 70)) < 0.5
    mask[1] = False
    mask[2, :64] = False
    return mask


CASES = [
    pytest.param(None, ((3, 8), (70, 8), (70, 16)), None, id="several-rounds-of-keys"),
    pytest.param(None, ((2, 3), (5, 3), (5, 1)), None, id="few-and-odd"),
    pytest.param(0, ((2, 9, 16), (2, 9, 16), (2, 9, 24)), None, id="causal"),
    pytest.param(0, ((66, 8), (66, 8), (66, 8)), None, id="several-blocks"),
    pytest.param(1, ((4, 8), (6, 8), (6, 8), (4, 6)), None, id="numbers-are-added"),
    pytest.param(None, ((4, 8), (70, 8), (70, 8)), hidden(), id="keys-are-hidden"),
    pytest.param(None, ((2, 72), (34, 72), (34, 72)), None, id="wide-heads"),
    pytest.param(0, ((35, 20), (35, 20), (35, 72)), None, id="wide-values"),
]


@pytest.mark.parametrize(
    ("causal", "shapes", "mask", "dtype", "precision", "rounding"),
    every(8, itertools.product(CASES, WAYS)),
)
def test_attention_is_one_kernel_of_matrix_instructions(
    dtype: DType,
    precision: str,
    rounding: float,
    causal: int | None,
    shapes: tuple[tuple[int, ...], ...],
    mask: Array | None,
) -> None:
    made = compiled(attention(causal), dtype, *shapes, products=precision, mask=mask)
    assert len(made.all(mem.Call)) == 1
    assert made.all(simt.Mma)
    assert made.error() <= WEIGHTS * rounding


def test_f32_is_exact_unless_it_may_be_rounded() -> None:
    exact, rounded = (
        compiled(attention(), F32, (3, 8), (70, 8), (70, 16), products=precision)
        for precision in ("ieee", "tf32")
    )
    assert not exact.all(simt.Mma)
    assert exact.error() <= ROUNDING[F32] < rounded.error()


@pytest.mark.parametrize(("dtype", "precision"), [(F16, "ieee"), (F32, "tf32")])
def test_wider_values_are_attended_to_in_f32(dtype: DType, precision: str) -> None:
    made = compiled(attention(), dtype, (2, 8), (5, 8), (5, 130), products=precision)
    assert not made.all(simt.Mma)
    assert made.error() <= ROUNDING[dtype]


def test_below_level_2_it_is_computed_in_f32() -> None:
    made = compiled(attention(0), BF16, (3, 8), (4, 8), (4, 8), level=1)
    assert not made.all(simt.Mma)
    assert made.error() <= ROUNDING[BF16]


# Barriers and waits that are needed are missed.


def spoiled(kind: type[Op], dtype: DType) -> Compiled:
    made = compiled(attention(), dtype, (3, 16), (200, 16), (200, 16), products="tf32")
    made.all(kind)[0].erase()
    return made


@pytest.mark.parametrize("dtype", [F16, F32], ids=str)
@pytest.mark.parametrize(
    ("kind", "found"),
    [(simt.Wait, PendingCopyAccess), (simt.Barrier, (Race, PendingCopyAccess))],
    ids=["wait", "barrier"],
)
def test_attention_misses_what_it_waits_for(
    dtype: DType, kind: type[Op], found: type[Exception]
) -> None:
    with pytest.raises(found, match="shared memory"):
        spoiled(kind, dtype).error()
