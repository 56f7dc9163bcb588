"""Dead code elimination: drop unused operations.

An operation without effects whose results have no users can go. A block is visited from its end, so that
users come before the operations that they use.
"""

from __future__ import annotations

from dlc.ir.core import Block, Op
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import Rewriter
from dlc.passes.graph.canonicalize import graph_blocks


@define_pass("dce")
def dce(module: Op, context: Context) -> None:
    """Drop unused operations."""
    rewriter = context.rewriter
    for block in graph_blocks(module):
        _sweep(block, rewriter)


def _sweep(block: Block, rewriter: Rewriter) -> None:
    op = block.last
    while op is not None:
        previous = op.previous
        if op.pure and op.results and op.is_unused:
            rewriter.drop(op)
        op = previous
