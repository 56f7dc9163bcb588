"""The kernel level: operations each of which becomes one kernel of machine code."""

from dlc.dialects.kernel.attention import *  # noqa: F403
from dlc.dialects.kernel.generic import *  # noqa: F403
from dlc.dialects.kernel.ordered import *  # noqa: F403
from dlc.dialects.kernel.pieces import *  # noqa: F403
from dlc.dialects.kernel.product_schedule import *  # noqa: F403
from dlc.dialects.kernel.products import *  # noqa: F403
from dlc.dialects.kernel.winograd_gradient import *  # noqa: F403
from dlc.dialects.kernel.winograd_kernel import *  # noqa: F403
