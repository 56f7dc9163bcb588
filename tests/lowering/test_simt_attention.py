"""Attention of f16 and bf16 for a GPU is one kernel that multiplies matrices, warp by warp."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from dlc.dialects import mem, nn, simt
from dlc.dialects.shadow import Race
from dlc.dialects.warp_memory import Early
from dlc.ir.builder import Builder
from dlc.ir.core import Op, Value
from dlc.ir.evaluation import Array
from dlc.ir.types import BF16, F16, DType
from tests.lowering.everywhere import Program
from tests.lowering.on_gpu import ROUNDING, Compiled, compiled

WEIGHTS = 2
"""Weights are rounded to 16 bits, too: that much more than the rounding of a result."""


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
]


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize(("causal", "shapes", "mask"), CASES)
def test_attention_in_16_bits_is_one_kernel(
    dtype: DType, causal: int | None, shapes: tuple[tuple[int, ...], ...], mask: Array | None
) -> None:
    made = compiled(attention(causal), dtype, *shapes, mask=mask)
    assert len(made.all(mem.Call)) == 1
    assert made.all(simt.MultiplyAdd)
    assert made.error() <= WEIGHTS * ROUNDING[dtype]


def test_wider_values_are_attended_to_in_f32() -> None:
    made = compiled(attention(), F16, (2, 8), (5, 8), (5, 130))
    assert not made.all(simt.MultiplyAdd)
    assert made.error() <= ROUNDING[F16]


def test_below_level_2_it_is_computed_in_f32() -> None:
    made = compiled(attention(0), BF16, (3, 8), (4, 8), (4, 8), level=1)
    assert not made.all(simt.MultiplyAdd)
    assert made.error() <= ROUNDING[BF16]


# Barriers and waits that are needed are missed.


def spoiled(kind: type[Op]) -> Compiled:
    made = compiled(attention(), F16, (3, 16), (200, 16), (200, 16))
    made.all(kind)[0].erase()
    return made


@pytest.mark.parametrize(
    ("kind", "found"), [(simt.Wait, Early), (simt.Barrier, (Race, Early))], ids=["wait", "barrier"]
)
def test_attention_misses_what_it_waits_for(kind: type[Op], found: type[Exception]) -> None:
    with pytest.raises(found, match="shared memory"):
        spoiled(kind).error()
