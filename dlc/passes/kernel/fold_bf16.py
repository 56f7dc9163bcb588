"""Products of bf16 in pairs: factors that were widened to f32 are multiplied as they are stored.

Where the processor adds the products of two pairs of bf16 to a sum in f32 (AVX512-BF16's `vdpbf16ps`), a
product takes half as many instructions and half the bytes. Each product of two factors is exact in f32, so
that only the order of additions changes; but numbers below 2^-126, factors and sums, count as 0. So it is
done at -O3, and where the model says `limit fast_narrow`.
"""

from __future__ import annotations

from dlc.dialects import kernel
from dlc.dialects.kernel.products import Gemm
from dlc.ir.core import Op
from dlc.ir.passes import Context, define_pass
from dlc.ir.types import BF16
from dlc.passes.graph.device_placement import kernels_on_gpu
from dlc.passes.kernel.fold_operands import erase_unused, narrow_source, set_first_operands
from dlc.target import cpu_of


@define_pass("fold_bf16")
def fold_bf16(module: Op, context: Context) -> None:
    """Multiply bf16 in pairs and sum in f32, where both factors were cast to f32."""
    options = context.options
    is_allowed = options.level >= 3 or options.fast_narrow
    if not is_allowed or not cpu_of(options).dot_bf16 or options.matmul == "blas":
        return
    on_gpu = set(kernels_on_gpu(module))
    for op in list(module.walk()):
        if isinstance(op, Gemm) and op not in on_gpu and not op.outs:
            _fold(op, context)


def _fold(op: Gemm, context: Context) -> None:
    found = [narrow_source(value, (BF16,)) for value in (op.lhs, op.rhs)]
    factors = [value for value in found if value is not None]
    if len(factors) < 2:
        reason = "one factor is not bf16" if factors else ""
    elif op.lhs_transposed:
        reason = "its left factor is transposed"
    elif not isinstance(op.inner, int) or op.inner % 2:
        reason = f"it sums over {op.inner} products, which make no pairs"
    else:
        context.log.did("multiply pairs of bf16 and sum in f32", op)
        set_first_operands(op, factors)
        return
    if reason:
        context.log.refused(reason, op)
    for value in factors:
        erase_unused(value)


def in_pairs(op: Gemm) -> bool:
    """Whether a product of a CPU multiplies its factors in pairs of bf16."""
    return all(kernel.array_type(value).dtype is BF16 for value in (op.lhs, op.rhs))
