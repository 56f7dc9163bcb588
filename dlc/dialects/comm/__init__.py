"""Values that go from one device or one rank to another.

`transfer`: between the devices of one machine · `collectives`: among the ranks of a mesh, the processes
that run one program together.
"""

from dlc.dialects.comm.collectives import *  # noqa: F403
from dlc.dialects.comm.transfer import *  # noqa: F403
