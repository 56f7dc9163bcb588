"""Control flow and derivatives at graph level.

Regions are isolated: all they use are operands of the operation and arguments of the block.

`branch` if · `scan` a loop over slices · `while_loop` · `derivative` of functions · `regions` what they
share · `reverse` how cotangents go back through a block; `loops` and `residuals` through loops.
"""

from dlc.dialects.flow.branch import If
from dlc.dialects.flow.derivative import Custom, StopGradient, Vjp
from dlc.dialects.flow.regions import COUNTER, Yield
from dlc.dialects.flow.scan import Scan
from dlc.dialects.flow.while_loop import While

__all__ = ["COUNTER", "Custom", "If", "Scan", "StopGradient", "Vjp", "While", "Yield"]
