"""Common subexpression elimination: compute each value once.

Graph operations have no effects, so two with the same class, operands and attributes define the same
value and the later one can go. Collectives stay: a weight that the ranks split is gathered again for the
backward pass, so that no rank has it whole in between.
"""

from __future__ import annotations

from dlc.dialects.comm import Collective
from dlc.ir.core import Op
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL
from dlc.passes.graph.canonicalize import graph_blocks


@define_pass("cse")
def cse(module: Op, context: Context) -> None:
    """Compute each value once."""
    rewriter = context.rewriter
    for block in graph_blocks(module):
        first: dict[tuple[object, ...], Op] = {}
        for op in block:
            if not op.pure or op.regions or isinstance(op, Collective):
                continue
            earlier = first.setdefault(op.equivalent, op)
            if earlier is not op and rewriter.count.take():
                if op.operands:
                    context.log.did("compute once", op, first_at=str(earlier.location.place))
                rewriter.replace(op, earlier.results, relation=EQUAL)
