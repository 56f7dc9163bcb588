"""Reverse-mode automatic differentiation: derivatives become ordinary operations.

The rules are in the classes of operations, and `dlc.dialects.flow.reverse` applies them. Inner derivatives
come first, so that a derivative of a derivative differentiates plain operations. Functions with a custom
rule keep it until no derivative is left, and are then inlined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from dlc.dialects import flow
from dlc.ir.core import Op
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL

AnyOp = TypeVar("AnyOp", bound=Op)


@define_pass("autodiff", required=True)
def autodiff(module: Op, context: Context) -> None:
    """Replace derivatives by the operations that compute them."""
    differentiate(module, context)
    for stop in _inner_first(module, flow.StopGradient):
        context.rewriter.replace(stop, stop.source, relation=EQUAL)


def differentiate(module: Op, context: Context) -> None:
    """The same, but keep the marks of values that derivatives treat as constants."""
    rewriter = context.rewriter
    for vjp in _inner_first(module, flow.Vjp):
        context.log.did("differentiate", vjp, inputs=len(vjp.wrt))
        results = vjp.expand(rewriter.before(vjp), context.values)
        rewriter.replace(vjp, results, relation=EQUAL)
    for custom in _inner_first(module, flow.Custom):
        results = custom.expand(rewriter.before(custom))
        rewriter.replace(custom, results, relation=EQUAL)


def _inner_first(module: Op, kind: type[AnyOp]) -> Sequence[AnyOp]:
    return [op for op in reversed(list(module.walk())) if isinstance(op, kind)]
