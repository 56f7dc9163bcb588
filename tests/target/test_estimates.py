"""What kernels take, roughly: products count each multiplication and addition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from dlc.dialects import flow, func, nn
from dlc.dialects.kernel.attention import Attention, AttentionGradient
from dlc.driver.compile.pipelines import Device, pipeline
from dlc.ir.core import Block, Builder, Value
from dlc.ir.dims import symbol
from dlc.ir.passes import Context, Manager
from dlc.ir.types import F32, TensorType
from dlc.target.cpu_costs import CpuCosts
from dlc.target.estimates import gpu_picoseconds, work_of
from dlc.target.gpu import GpuTarget
from tests.lowering.everywhere import function_of

COSTS = CpuCosts(kernel_product=20)
DEPTH, WIDTH = 8, 12


def attended(causal: int | None) -> func.Func:
    """The kernels of an attention and of its gradient, over T queries and 30 keys."""
    rows, columns = (3, symbol("T")), (3, 30)
    types = [
        TensorType(F32, shape)
        for shape in ((*rows, DEPTH), (*columns, DEPTH), (*columns, WIDTH), (*rows, WIDTH))
    ]

    def program(emit: Builder, *operands: Value) -> Sequence[Value]:
        *given, dy = operands
        body = Block([value.type for value in given])
        inner = Builder(body, emit.location)
        query, keys, values = body.arguments
        inner.place(flow.Yield([inner(nn.Attention(query, keys, values, (), 0.25, causal))]))
        return emit.all(flow.Vjp(given, (dy,), body, (0, 1, 2)))

    module, _ = function_of(program, types, {"T": (1, 64)})
    Manager(Context()).run(module, pipeline("graph", "kernel", 2, Device.CUDA))
    made = module.symbol("f")
    assert isinstance(made, func.Func)
    return made


@pytest.mark.parametrize("causal", [None, 0, 7, -3, -100, 100])
@pytest.mark.parametrize("queries", [1, 20, 50])
def test_attention_and_its_gradient_count_what_they_multiply(
    causal: int | None, queries: int
) -> None:
    sizes = {"T": queries}
    pairs = queries * 30 if causal is None else int(np.tri(queries, 30, causal).sum())
    found = {
        (type(op), isinstance(op, AttentionGradient) and op.by_keys): work_of(op, sizes, COSTS)
        for op in attended(causal).walk()
        if isinstance(op, Attention | AttentionGradient)
    }
    each = {
        (Attention, False): DEPTH + WIDTH,
        (AttentionGradient, False): 2 * DEPTH + WIDTH,
        (AttentionGradient, True): 2 * DEPTH + 2 * WIDTH,
    }
    assert found == {
        kind: COSTS.kernel_product * 3 * pairs * products for kind, products in each.items()
    }


def test_long_attention_takes_a_gpu_more_than_its_launch() -> None:
    (op,) = [op for op in attended(None).walk() if isinstance(op, Attention)]
    gpu = GpuTarget.named("sm_80")
    few, many = (gpu_picoseconds(op, {"T": count}, gpu) - gpu.costs.launch for count in (64, 6400))
    assert many > 90 * few > 0
