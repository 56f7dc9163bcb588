"""Derivatives become ordinary operations: every function asked for its derivative, and its reverse.

The rules are in the operations' classes and `dlc.dialects.flow.reverse` walks them. Inner derivatives
come first, so that a derivative of a derivative differentiates plain operations. Functions with a rule of
their own keep it until no derivative is left, and then become what they compute.
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
    """The same, but what counts as a constant for a derivative still says so."""
    rewriter = context.rewriter
    for vjp in _inner_first(module, flow.Vjp):
        context.log.did("differentiated", vjp, inputs=len(vjp.wrt))
        results = vjp.expand(rewriter.before(vjp), context.values)
        rewriter.replace(vjp, results, relation=EQUAL)
    for custom in _inner_first(module, flow.Custom):
        results = custom.expand(rewriter.before(custom))
        rewriter.replace(custom, results, relation=EQUAL)


def _inner_first(module: Op, kind: type[AnyOp]) -> Sequence[AnyOp]:
    return [op for op in reversed(list(module.walk())) if isinstance(op, kind)]
