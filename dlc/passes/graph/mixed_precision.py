"""Mixed precision: a `train` block with `precision = bf16` has its products computed in 16 bits.

The derivative of such a loss says so (`flow.vjp`, `precision`). Here its function gets the conversions, so
that reverse mode differentiates them, too: what a product receives is rounded to 16 bits, the products of
the backward pass have 16 bits, and the gradients that they give are widened. Weights stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dlc.dialects import flow
from dlc.dialects.flow.precision import narrow_products
from dlc.ir.core import Op, Value
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL
from dlc.ir.types import DType


@define_pass("mixed_precision", required=True)
def mixed_precision(module: Op, context: Context) -> None:
    """Compute the products of functions in the precision that their derivatives ask for."""
    for vjp in list(module.walk()):
        if isinstance(vjp, flow.Vjp) and vjp.precision is not None:
            narrow_products(vjp.body, vjp.precision, partial(_replace, context, vjp.precision))
            del vjp.attributes["precision"]


def _replace(context: Context, dtype: DType, op: Op, values: Sequence[Value]) -> None:
    what = "compute in 16 bits" if op.is_product else "decompose: its products take 16 bits"
    context.log.did(what, op, dtype=dtype.name)
    context.rewriter.replace(op, values, relation=EQUAL)
