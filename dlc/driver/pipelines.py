"""The order of passes at each optimisation level, and the reasons for it, which are checked."""

from __future__ import annotations

import dlc.lowering.array_to_kernel
import dlc.lowering.kernel_to_loop
import dlc.lowering.kernel_to_plan
from dlc.ir.passes import Order, check_order

STAGES = ("graph", "kernel", "plan", "loop")
"""The levels of IR, highest first."""

TO_STAGE: dict[str, tuple[str, ...]] = {
    "graph": (),
    "kernel": ("lower_to_kernels",),
    "plan": ("plan_memory",),
    "loop": ("lower_to_loops",),
}
"""The passes that lead from the stage before to each stage."""

REASONS = (
    Order("lower_to_kernels", "plan_memory", "only kernels have memory"),
    Order("plan_memory", "lower_to_loops", "loops need to know where their arrays are"),
)


def pipeline(first: str, last: str) -> tuple[str, ...]:
    """The passes from one stage (it is there already) to another."""
    stages = STAGES[STAGES.index(first) + 1 : STAGES.index(last) + 1]
    return tuple(name for stage in stages for name in TO_STAGE[stage])


check_order(pipeline("graph", "loop"), REASONS)

__all__ = ["REASONS", "STAGES", "TO_STAGE", "dlc", "pipeline"]
