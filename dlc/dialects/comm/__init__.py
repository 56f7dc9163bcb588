"""Values that go from one device or one rank to another.

`transfer`: between the devices of one machine · `collectives`: among the ranks of a mesh, the processes
that run one program together · `under_way`: collectives that go on while other kernels run.
"""

from dlc.dialects.comm.collectives import *  # noqa: F403
from dlc.dialects.comm.transfer import *  # noqa: F403
from dlc.dialects.comm.under_way import *  # noqa: F403
