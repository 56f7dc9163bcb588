"""What is computed together: the operations that become one piece of machine code each."""

from dlc.dialects.kernel.attention import *  # noqa: F403
from dlc.dialects.kernel.generic import *  # noqa: F403
from dlc.dialects.kernel.ordered import *  # noqa: F403
from dlc.dialects.kernel.pieces import *  # noqa: F403
from dlc.dialects.kernel.products import *  # noqa: F403
from dlc.dialects.kernel.schedule import *  # noqa: F403
