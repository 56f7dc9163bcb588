"""The gradient of attention for a GPU: two kernels that walk, and never all scores at once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from dlc.dialects import flow, mem, nn, simt
from dlc.evaluation.gpu.shadow_memory import Race
from dlc.evaluation.gpu.warp_memory import PendingCopyAccess
from dlc.ir.core import Array, Block, Builder, Op, Value
from dlc.ir.types import BF16, F16, F32, DType
from tests.lowering.everywhere import Program
from tests.lowering.gpu.on_gpu import ROUNDING, TF32, Compiled, compiled
from tests.suites import every

WEIGHTS = 4
"""Weights, and what scores receive, are rounded like the results, too: that much more than the results."""
WAYS = [
    pytest.param(F32, "ieee", ROUNDING[F32], id="f32"),
    pytest.param(F32, "tf32", TF32, id="tf32"),
    pytest.param(BF16, "ieee", ROUNDING[BF16], id="bf16"),
]
IN_ORDER = ["attention", "attention_gradient", "attention_gradient", "generic"]
"""The kernels of a gradient: the attention, the means of what scores receive, and the two walks."""


def gradient(causal: int | None = None, wrt: tuple[int, ...] = (0, 1, 2)) -> Program:
    """What the operands of an attention receive; what its result receives comes after the values."""

    def program(emit: Builder, *operands: Value) -> Sequence[Value]:
        query, keys, values, dy, *mask = operands
        given = (query, keys, values, *mask)
        body = Block([value.type for value in given])
        inner = Builder(body, emit.location)
        q, k, v, *seen = body.arguments
        inner.place(flow.Yield([inner(nn.Attention(q, k, v, seen, 0.25, causal))]))
        return emit.all(flow.Vjp(given, (dy,), body, wrt))

    return program


def shapes_of(
    m: int, n: int, depth: int, width: int, *batch: int
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Queries, keys, values, and what the result receives."""
    return (*batch, m, depth), (*batch, n, depth), (*batch, n, width), (*batch, m, width)


def names(made: Compiled) -> list[str]:
    calls = [op for op in made.all(mem.Call) if isinstance(op, mem.Call)]
    return sorted(call.kernel.name.rpartition("_")[0] for call in calls)


def hidden(m: int, n: int) -> Array:
    """Keys that a few queries see; one sees none of the first half."""
    mask = np.random.default_rng(3).random((m, n)) < 0.5
    mask[:, 0] = True
    mask[1, : n // 2] = False
    return mask


CASES = [
    pytest.param(None, shapes_of(3, 35, 8, 16), (), False, id="several-rounds-of-keys"),
    pytest.param(None, shapes_of(35, 3, 8, 16), (), False, id="several-rounds-of-queries"),
    pytest.param(None, shapes_of(2, 5, 3, 1), (), False, id="few-and-odd"),
    pytest.param(0, shapes_of(9, 9, 16, 24, 2), (), False, id="causal"),
    pytest.param(2, shapes_of(33, 34, 4, 4), (), False, id="later-queries"),
    pytest.param(-1, shapes_of(4, 33, 4, 4), (), False, id="a-query-that-sees-nothing"),
    pytest.param(1, shapes_of(4, 6, 8, 8), (4, 6), False, id="numbers-are-added"),
    pytest.param(None, shapes_of(4, 35, 8, 8), (), True, id="keys-are-hidden"),
    pytest.param(None, shapes_of(3, 18, 72, 72), (), False, id="wide-heads"),
]


@pytest.mark.parametrize(
    ("causal", "shapes", "added", "hides", "dtype", "precision", "rounding"),
    every(16, itertools.product(CASES, WAYS)),
)
def test_a_gradient_is_two_walks(
    dtype: DType,
    precision: str,
    rounding: float,
    causal: int | None,
    shapes: tuple[tuple[int, ...], ...],
    added: tuple[int, ...],
    hides: bool,
) -> None:
    mask = hidden(shapes[0][-2], shapes[1][-2]) if hides else None
    more = (added,) if added else ()
    made = compiled(gradient(causal), dtype, *shapes, *more, products=precision, mask=mask)
    assert names(made) == IN_ORDER
    assert bool(made.all(simt.Mma)) == (dtype is BF16 or precision == "tf32")
    assert made.error() <= WEIGHTS * rounding


def test_a_block_has_64_rows_of_16_bits() -> None:
    made = compiled(gradient(0), BF16, *shapes_of(66, 66, 8, 8))
    assert made.error() <= WEIGHTS * ROUNDING[BF16]


def test_f16_is_as_exact_as_it_can_be() -> None:
    assert compiled(gradient(), F16, *shapes_of(3, 18, 8, 8)).error() <= WEIGHTS * ROUNDING[F16]


def test_what_nothing_uses_is_not_computed() -> None:
    made = compiled(gradient(wrt=(0,)), F32, *shapes_of(3, 5, 8, 8))
    assert names(made) == IN_ORDER[:1] + IN_ORDER[2:]
    assert made.error() <= ROUNDING[F32]


@pytest.mark.parametrize(
    ("wrt", "shapes", "level"),
    every(
        2,
        [
            pytest.param((0, 3), (*shapes_of(4, 6, 8, 8), (4, 6)), 2, id="of-the-mask"),
            pytest.param((0, 1, 2), shapes_of(3, 5, 8, 130), 2, id="of-wide-values"),
            pytest.param((0, 1, 2), shapes_of(3, 5, 8, 8), 1, id="below-level-2"),
        ],
    ),
)
def test_some_gradients_are_products(
    wrt: tuple[int, ...], shapes: tuple[tuple[int, ...], ...], level: int
) -> None:
    made = compiled(gradient(wrt=wrt), F32, *shapes, level=level)
    assert "attention_gradient" not in names(made)
    assert made.error() <= ROUNDING[F32]


# Barriers and waits that are needed are missed.


@pytest.mark.parametrize(
    ("kind", "found", "dtype", "precision"),
    every(
        5,
        itertools.product(
            [
                pytest.param(simt.Wait, PendingCopyAccess, id="wait"),
                pytest.param(simt.Barrier, (Race, PendingCopyAccess), id="barrier"),
            ],
            [pytest.param(*way.values[:2], id=way.id) for way in WAYS],
        ),
    ),
)
def test_a_gradient_misses_what_it_waits_for(
    dtype: DType, precision: str, kind: type[Op], found: tuple[type[Exception], ...]
) -> None:
    made = compiled(gradient(wrt=(1, 2)), dtype, *shapes_of(70, 3, 8, 8), products=precision)
    (walk,) = [f for f in functions(made) if f.sym_name.startswith("attention_gradient")]
    next(op for op in walk.walk() if isinstance(op, kind)).erase()
    with pytest.raises(found, match="shared memory"):
        made.error()


def functions(made: Compiled) -> list[simt.Func]:
    return [op for op in made.all(simt.Func) if isinstance(op, simt.Func)]
