"""`limit fast_narrow`: inside one kernel, f16 and bf16 values stay the f32 that they were computed in.

Every operation of the graph rounds its result once. Where a kernel fuses several of them, the rounding
in between costs time and gives nothing but the same bits as elsewhere; a text that says `limit
fast_narrow` gives them up. What a kernel stores is rounded as ever.
"""

from __future__ import annotations

from dlc.dialects import scalar
from dlc.ir.core import Op
from dlc.ir.passes import Context, define_pass
from dlc.ir.types import BF16, F16


@define_pass("elide_narrowing", required=True)
def elide_narrowing(module: Op, context: Context) -> None:
    """Do not round 16-bit values that the same kernel reads again."""
    if not context.options.fast_narrow:
        return
    for op in list(module.walk()):
        if isinstance(op, scalar.Cast) and isinstance(op.source.op, scalar.Cast):
            narrow, wide = op.source, op.source.op.source
            if (
                narrow.type in (F16, BF16)
                and wide.type is op.result.type
                and context.rewrites.take()
            ):
                context.log.did("keep in f32", narrow)
                op.result.replace_by(wide)
                op.erase()
