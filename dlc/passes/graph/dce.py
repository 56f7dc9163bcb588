"""Dead code elimination: drop what nothing uses.

An operation without effects whose results have no users computes nothing that anyone can see. Going
through a block from its end meets users before what they use.
"""

from __future__ import annotations

from dlc.ir.core import Block, Op
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import Rewriter
from dlc.passes.graph.canonicalize import graph_blocks


@define_pass("dce")
def dce(module: Op, context: Context) -> None:
    """Drop what nothing uses."""
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
